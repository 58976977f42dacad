"""S9, I6: what becomes of a replica that met a corrupt batch of its own; S10: of a failed append.

It is rebuilt only when nobody counts on it, and counts again only once that batch is sound,
whatever became of its process meanwhile.
"""

from collections.abc import Mapping
from typing import Any

from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.replication.core.corruption import Corruption
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.results import FetchResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.replica_audit import ReplicaAudit
from tests.simulation.checks.slice_checks import proves_since
from tests.simulation.checks.violations import Violation

TopicPartition = tuple[TopicId, int]


def check_file_ends(who: str, log: PartitionLog) -> None:
    """I10, S10: of an append that failed nothing stays behind the log's end."""
    segment = log.segments[-1]
    size_bytes = len(ClusterObserver.segment_bytes(segment))
    if not log.failure and size_bytes > segment.size_bytes:
        raise Violation(
            "I10",
            f"{who}: {segment.path.name} has {size_bytes} bytes, the log ends at"
            f" {segment.size_bytes}",
        )


class CorruptionChecker:
    def __init__(self, cluster: ClusterObserver) -> None:
        self._cluster = cluster
        self._known: dict[tuple[TopicPartition, BrokerId], dict[int, None]] = {}  # offsets met
        self._met_by: dict[tuple[TopicPartition, BrokerId], Partition] = {}
        self._rebuilt: dict[Partition, Corruption] = {}  # the last time, if it was

    def look(
        self,
        broker_id: BrokerId,
        audit: ReplicaAudit,
        states: Mapping[TopicPartition, PartitionState],
        flushes: Mapping[TopicPartition, str],
    ) -> None:
        """`states` and `flushes` as they are stored."""
        replica, corruption = audit.replica, audit.replica.corruption
        if corruption is None and not self._known:
            return
        key = (replica.topic_id, replica.partition)
        is_rebuilt = replica in self._rebuilt or replica is not self._met_by.get((key, broker_id))
        if corruption is None and is_rebuilt:  # in this life, or in one before
            self._forget_mended(key, broker_id, audit)
        if corruption is None or key not in states:
            return
        self._known.setdefault((key, broker_id), {})[corruption.offset] = None
        self._met_by[key, broker_id] = replica
        if corruption.valid_from is None or self._rebuilt.get(replica) is corruption:
            return
        self._rebuilt[replica] = corruption
        if self._is_isr_or_elr_member(key, broker_id, states[key], flushes[key]):
            raise Violation("I6", f"{audit.who} is rebuilt while others count on it: {states[key]}")

    def record_error(
        self, broker: Any, replica: Partition, offset: int, result: FetchResult
    ) -> bool:
        """Whether a reader was told of one. Whoever could not read a sector has met the damage, by
        whatever name it calls that (0089)."""
        if result.error is ErrorCode.NONE:
            return False
        if self._cluster.is_unreadable(replica.log, offset):
            key = (replica.topic_id, replica.partition), broker.settings.broker_id
            self._known.setdefault(key, {})[offset] = None
        return True

    def _forget_mended(self, key: TopicPartition, broker_id: BrokerId, audit: ReplicaAudit) -> None:
        """Its leader sent it anew, and what a later flip does to it nobody has met yet."""
        known = self._known.get((key, broker_id), {})
        for offset in [offset for offset in known if audit.is_valid(offset)]:
            del known[offset]

    def _is_isr_or_elr_member(
        self, key: TopicPartition, broker_id: BrokerId, state: PartitionState, flush: str
    ) -> bool:
        record = self._cluster.broker_records().get(broker_id)
        least = -1 if record is None else proves_since(record, flush)
        return any(
            member.broker_id == broker_id
            and member.broker_epoch >= least
            and not self._cluster.is_lost(*key, member)
            for member in state.in_sync_replicas + state.eligible_leaders
        )

    def check_entry(
        self, key: TopicPartition, broker_id: BrokerId, audit: ReplicaAudit, why: str
    ) -> None:
        known = self._known.get((key, broker_id))
        if not known or audit.replica.corruption is not None:  # it knows, and says so
            return
        for header in audit.corrupt():
            end: int = header.next_offset
            if audit.is_truncated and end == audit.end_offset:
                end = header.base_offset + 1  # its count of offsets may be what flipped
            if any(header.base_offset <= offset < end for offset in known):
                raise Violation(
                    "I6",
                    f"{audit.who}, {why}, has a corrupt batch at {header.base_offset}, which it"
                    " had met before",
                )
