"""Make a legal change of a partition: epochs, ISR and eligible leaders together (I12, I13, I14).

Each change of leader or ISR passes `changed`. It also tidies: invalid entries are removed, valid
ones of live brokers get their present epoch (S2).

The effective min ISR is a field of each partition that changes only together with its eligible
leaders (S6).
"""

from dataclasses import dataclass, replace

from tidemark_protocol.ids import (
    NO_BROKER,
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.controller.core.eligibility import Eligibility, Replica

COMMIT_RULE_ISR = "Isr"


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader to assign; an assignment, also to the same broker, raises the leader epoch."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


NOBODY = Leadership(NO_BROKER, BrokerEpoch(NO_EPOCH))


def changed(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    *,
    in_sync_replicas: tuple[Member, ...],
    leadership: Leadership | None = None,
) -> PartitionState:
    """Return the partition with that ISR and, unless None, that leadership.

    The same value if leader, ISR and eligible leaders do not change.
    """
    replica = (topic.topic_id, partition.partition)
    in_sync = tuple(
        eligibility.renewed(member, replica, topic.flush) for member in in_sync_replicas
    )
    eligible = eligible_leaders(topic, partition, eligibility, in_sync_replicas=in_sync)
    entries = (partition.in_sync_replicas, partition.eligible_leaders)
    if leadership is None and (in_sync, eligible) == entries:
        return partition
    leader, life = partition.leader, partition.leader_broker_epoch
    leader_epoch = partition.leader_epoch
    if leadership is not None:
        leader, life = leadership.broker_id, leadership.broker_epoch
        leader_epoch = LeaderEpoch(leader_epoch + 1)  # I14: also to the same or none
    # At once: an election makes this value for thousands of partitions.
    next_state = replace(
        partition,
        leader=leader,
        leader_broker_epoch=life,
        leader_epoch=leader_epoch,
        in_sync_replicas=in_sync,
        eligible_leaders=eligible,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )
    assert not next_state.has_leader or any(member.broker_id == leader for member in in_sync), (
        f"partition {replica}: leader {leader} not in {in_sync}"  # I12
    )
    return next_state


def raised(partition: PartitionState) -> PartitionState:
    return replace(partition, partition_epoch=PartitionEpoch(partition.partition_epoch + 1))


# guard: eligible-leaders-are-kept (S15)
def eligible_leaders(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    *,
    in_sync_replicas: tuple[Member, ...],
) -> tuple[Member, ...]:
    """Return the eligible leaders, while the new ISR is below min ISR (I13, S15; KIP-966).

    (old eligible + old ISR) - new ISR - invalid - non-replicas. With commitRule Isr there are none.
    """
    if topic.commit_rule == COMMIT_RULE_ISR:
        return ()
    if len(in_sync_replicas) >= partition.min_insync_replicas:
        return ()
    replica: Replica = (topic.topic_id, partition.partition)
    in_sync = {member.broker_id for member in in_sync_replicas}
    kept: dict[BrokerId, Member] = {}
    for member in (*partition.eligible_leaders, *partition.in_sync_replicas):
        if member.broker_id in in_sync or member.broker_id not in partition.replicas:
            continue
        if eligibility.is_valid(member, replica, topic.flush):
            kept[member.broker_id] = eligibility.renewed(member, replica, topic.flush)
    return tuple(sorted(kept.values()))


MIN_INSYNC_REPLICAS = "min.insync.replicas"


def effective_min_insync(topic: TopicState) -> int:
    """Return min(min.insync.replicas, replication factor); Tidemark's default is min(2, RF)."""
    configured = int(topic.config.get(MIN_INSYNC_REPLICAS, "2"))
    return max(1, min(configured, topic.replication_factor))


def with_min_insync(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility, min_insync_replicas: int
) -> PartitionState:
    """Return the partition with that min ISR, new eligible leaders and a raised partition epoch."""
    if partition.min_insync_replicas == min_insync_replicas:
        return partition
    lowered = replace(partition, min_insync_replicas=min_insync_replicas)
    eligible = eligible_leaders(
        topic, lowered, eligibility, in_sync_replicas=partition.in_sync_replicas
    )
    # guard: min-isr-changes-with-eligible-leaders (S6)
    return raised(replace(lowered, eligible_leaders=eligible))
