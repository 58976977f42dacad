"""What makes a broker the leader of a partition, and by which settings it leads. Values only."""

from dataclasses import dataclass

from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    commits_by_isr_alone: bool = False  # commitRule: Isr; else |ISR| >= min ISR is needed too
    flushes_always: bool = False  # flush: Always: only durable ends count (S11)
    replica_lag_max_ms: int = 10_000  # replica.lag.time.max.ms


@dataclass(frozen=True, slots=True)
class LeaderGrant:
    """The state that makes this life of this broker the leader."""

    topic_id: TopicId
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    state: PartitionState
    settings: LeaderSettings
