"""Short ways to write partitions, topics and standings in tests of the controller's core."""

from dataclasses import replace
from typing import Any

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.controller.core.elections import (
    ElectionEvidence,
    LeaderCounts,
    partition_after_election,
)
from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility
from tidemark_operator.controller.core.unclean_recovery import Reports
from tidemark_protocol.controller_messages import IsrProposal, ReplicaReport
from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

TOPIC_ID = TopicId("7f1c0000-0000-0000-0000-000000000001")
REPLICA = (TOPIC_ID, 0)


def topic(commit_rule: str = "MinInsync", *, flush: str = "Os", **config: str) -> TopicState:
    return TopicState("orders", TOPIC_ID, 1, 3, commit_rule=commit_rule, flush=flush, config=config)


def member(text: str) -> Member:
    """ "2@7": broker 2 at broker epoch 7."""
    broker_id, epoch = text.split("@")
    return Member(BrokerId(int(broker_id)), BrokerEpoch(int(epoch)))


def members(text: str) -> tuple[Member, ...]:
    return tuple(member(part) for part in text.split())


def partition(
    in_sync: str,
    *,
    leader: str | None = None,
    eligible: str = "",
    replicas: tuple[int, ...] = (0, 1, 2),
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    min_insync: int = 2,
    leader_epoch: int = 5,
    partition_epoch: int = 9,
) -> PartitionState:
    leading = member(leader) if leader else Member(NO_BROKER, BrokerEpoch(-1))
    return PartitionState(
        partition=0,
        replicas=tuple(BrokerId(i) for i in replicas),
        leader=leading.broker_id,
        leader_broker_epoch=leading.broker_epoch,
        leader_epoch=LeaderEpoch(leader_epoch),
        in_sync_replicas=members(in_sync),
        eligible_leaders=members(eligible),
        partition_epoch=PartitionEpoch(partition_epoch),
        min_insync_replicas=min_insync,
        adding_replicas=tuple(BrokerId(i) for i in adding),
        removing_replicas=tuple(BrokerId(i) for i in removing),
    )


def broker_eligibility(
    text: str, *, clean_since: int = 0, disk_since: int | None = None, **changes: Any
) -> BrokerEligibility:
    """Live, clean since epoch 0, and its disk lost whenever its log was, unless said otherwise."""
    entry = member(text)
    value = BrokerEligibility(
        entry.broker_id,
        entry.broker_epoch,
        BrokerEpoch(clean_since),
        BrokerEpoch(clean_since if disk_since is None else disk_since),
        is_live=True,
    )
    return replace(value, **changes)


def eligibility(*values: BrokerEligibility | str) -> Eligibility:
    listed = [broker_eligibility(value) if isinstance(value, str) else value for value in values]
    return Eligibility({value.broker_id: value for value in listed})


def dead(text: str, *, clean_since: int = 0) -> BrokerEligibility:
    return broker_eligibility(text, clean_since=clean_since, is_live=False)


def after(
    state: PartitionState,
    brokers: Eligibility,
    *,
    of: TopicState | None = None,
    counts: LeaderCounts | None = None,
    reports: Reports | None = None,
    choice: LeaderChoice | None = None,
) -> PartitionState:
    return partition_after_election(
        of or topic(),
        state,
        brokers,
        leader_counts=counts or LeaderCounts([state]),
        evidence=ElectionEvidence(reports or Reports({}), choice),
    ).partition


def shown(state: PartitionState) -> str:
    """Leader, its epoch, ISR, eligible leaders, partition epoch: one line to compare."""
    in_sync = " ".join(f"{m.broker_id}@{m.broker_epoch}" for m in state.in_sync_replicas)
    eligible = " ".join(f"{m.broker_id}@{m.broker_epoch}" for m in state.eligible_leaders)
    return (
        f"leader {state.leader}@{state.leader_broker_epoch} epoch {state.leader_epoch}"
        f" isr [{in_sync}] eligible [{eligible}] pe {state.partition_epoch}"
    )


def report(
    last_epoch: int, log_end: int, *, high_watermark: int = 0, failed: bool = False
) -> ReplicaReport:
    return ReplicaReport(
        TOPIC_ID, 0, LeaderEpoch(last_epoch), Offset(log_end), Offset(high_watermark), failed
    )


def reports(**ends: tuple[int, int] | None) -> Reports:
    """reports(b0=(epoch, end), b1=None): None is a broker that reported without the replica."""
    return Reports(
        {
            BrokerId(int(name[1:])): {} if end is None else {REPLICA: report(*end)}
            for name, end in ends.items()
        }
    )


def proposal(new: str, *, leader_epoch: int = 5, partition_epoch: int = 9) -> IsrProposal:
    return IsrProposal(
        TOPIC_ID, 0, LeaderEpoch(leader_epoch), PartitionEpoch(partition_epoch), members(new)
    )
