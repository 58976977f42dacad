"""I15: what a leader counts on, against the slice. I6: what an entry stands for, at its broker."""

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_broker.replication.partition import Partition
from tidemark_operator.api.broker import BrokerRecord
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import Member, PartitionState

from tests.simulation.checks.cluster_observer import ClusterObserver, LiveBroker
from tests.simulation.checks.corruption_checks import CorruptionChecker
from tests.simulation.checks.replica_audit import ReplicaAudit
from tests.simulation.checks.slice_checks import proves_since
from tests.simulation.checks.violations import Violation

TopicPartition = tuple[TopicId, int]


class MaximalChecker:
    """I15. A proposal and a write of the slice change nothing of a replica or its log: they are
    looked for by themselves."""

    def __init__(
        self,
        states: Mapping[TopicPartition, PartitionState],
        restored: Mapping[TopicPartition, Any],
    ) -> None:
        """`states`: as they are stored; `restored`: where that is from long ago (S17)."""
        self._states = states
        self._restored = restored
        self._scraped_between: dict[Partition, tuple[object, ...]] = {}

    def look(self, broker_id: BrokerId, replica: Partition) -> None:
        """After any event that may have touched it, or its slice. Raises Violation."""
        leader = replica.leader
        if leader is None:
            return
        key = (replica.topic_id, replica.partition)
        stored = self._states.get(key)
        now = (stored, leader, leader.state, leader.pending_proposal)
        before = self._scraped_between.get(replica)
        if stored is None or (before is not None and all(map(is_, before, now))):
            return
        self._scraped_between[replica] = now
        if stored.leader_epoch == leader.leader_epoch and key not in self._restored:
            _check_maximal(
                f"{replica.topic}-{replica.partition}: leader {broker_id}", leader, stored
            )


def _check_maximal(who: str, leader: PartitionLeader, stored: PartitionState) -> None:
    maximal = {member.broker_id for member in leader.maximal_in_sync_replicas}
    if not stored.in_sync_ids <= maximal:
        raise Violation(
            "I15",
            f"{who} counts on {leader.maximal_in_sync_replicas}, the slice has"
            f" {stored.in_sync_replicas}",
        )
    is_applied = leader.state.partition_epoch == stored.partition_epoch
    if is_applied and leader.state.in_sync_replicas != stored.in_sync_replicas:
        raise Violation(
            "I15",
            f"{who} has {leader.state.in_sync_replicas} at partition epoch"
            f" {stored.partition_epoch}, the slice {stored.in_sync_replicas}",
        )


class EntryChecker:
    """I6: every valid ISR or eligible entry whose broker lives has all that was acknowledged."""

    def __init__(
        self,
        cluster: ClusterObserver,
        damages: CorruptionChecker,
        audit_of: Callable[[Any, Partition], ReplicaAudit],
    ) -> None:
        self._cluster = cluster
        self._damages = damages
        self._audit_of = audit_of

    def check(
        self,
        key: TopicPartition,
        state: PartitionState,
        flush: str,
        live: Mapping[BrokerId, LiveBroker],
    ) -> None:
        """As it is stored, of a partition in which something was acknowledged. Raises Violation."""
        records = self._cluster.broker_records()
        for member in state.in_sync_replicas + state.eligible_leaders:
            broker, record = live.get(member.broker_id), records.get(member.broker_id)
            if broker is None or record is None or not _is_proof(member, record, flush, broker):
                continue
            kind = "in the ISR" if member in state.in_sync_replicas else "eligible"
            self._check_held(
                key, member, broker, f"{kind} as {member.broker_id}@{member.broker_epoch}"
            )

    def _check_held(
        self, key: TopicPartition, member: Member, broker: LiveBroker, why: str
    ) -> None:
        if self._cluster.is_lost(*key, member):
            return
        replica = broker.partitions.hosted(*key)
        if replica is None:
            raise Violation(
                "I6",
                f"{key[0]}-{key[1]}: broker {member.broker_id} is {why}, its replica is not there",
            )
        audit = self._audit_of(broker.broker, replica)
        audit.check_holds_acknowledged(why)
        self._damages.check_entry(key, member.broker_id, audit, why)


def _is_proof(member: Member, record: BrokerRecord, flush: str, broker: LiveBroker) -> bool:
    if member.broker_epoch < proves_since(record, flush):
        return False
    # Before its broker is registered anew it is being judged what the entry proves.
    return broker.partitions.broker_epoch >= member.broker_epoch
