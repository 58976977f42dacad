"""Effective min ISR: a field of each partition, changed only with its eligible leaders (S6)."""

from dataclasses import replace

from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.controller.partition_change import eligible_leaders, raised
from tidemark_operator.controller.standing import Standings

MIN_INSYNC_REPLICAS = "min.insync.replicas"


def effective_min_insync(topic: TopicState) -> int:
    """min(min.insync.replicas, replication factor); Tidemark's default is min(2, RF)."""
    configured = int(topic.config.get(MIN_INSYNC_REPLICAS, "2"))
    return max(1, min(configured, topic.replication_factor))


def with_min_insync(
    topic: TopicState, partition: PartitionState, standings: Standings, min_insync_replicas: int
) -> PartitionState:
    """The partition with that min ISR; eligible leaders recomputed, partition epoch raised."""
    if partition.min_insync_replicas == min_insync_replicas:
        return partition
    lowered = replace(partition, min_insync_replicas=min_insync_replicas)
    eligible = eligible_leaders(
        topic, lowered, standings, in_sync_replicas=partition.in_sync_replicas
    )
    # guard: min-isr-changes-with-eligible-leaders (S6)
    return raised(replace(lowered, eligible_leaders=eligible))
