"""Define the state of a partition and of a topic, as PartitionSlice objects and pushes hold it.

Values are frozen: a change is a new value with a higher partition epoch (I14).
"""

from dataclasses import dataclass, field, replace

from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)

FLUSH_ALWAYS = "Always"  # no record is acknowledged before it is on the disk of all in sync


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """An ISR or ELR entry: a broker in one broker epoch (S2)."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition: its replicas, its leader, its epochs."""

    partition: int
    replicas: tuple[BrokerId, ...]
    leader: BrokerId  # NO_BROKER while there is none
    leader_broker_epoch: BrokerEpoch  # the grant names the life that may lead (S2); -1 without one
    leader_epoch: LeaderEpoch
    in_sync_replicas: tuple[Member, ...]
    eligible_leaders: tuple[Member, ...]
    partition_epoch: PartitionEpoch
    min_insync_replicas: int  # effective: min(min.insync.replicas, replication factor) (S6)
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_BROKER

    @property
    def in_sync_ids(self) -> frozenset[BrokerId]:
        return frozenset(member.broker_id for member in self.in_sync_replicas)


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as brokers know it; `config` has effective values under Kafka's names."""

    topic: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int
    commit_rule: str = "MinInsync"  # MinInsync | Isr
    flush: str = "Os"  # Os | FLUSH_ALWAYS
    config: dict[str, str] = field(default_factory=dict)

    def counting(self, partition_count: int) -> "TopicState":
        """Return the topic with this number of partitions."""
        if self.partition_count == partition_count:
            return self
        return replace(self, partition_count=partition_count)
