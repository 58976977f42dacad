"""What `Partitions` answers to its callers (HTTP, the Kafka listener, /metrics). Values only."""

from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId

UNKNOWN_OFFSET = Offset(-1)


@dataclass(frozen=True, slots=True)
class ProduceResult:
    error: ErrorCode
    base_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    message: str = ""
    is_for_want_of_space: bool = False  # KAFKA_STORAGE_ERROR of a disk that is sound; not written


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a consumer says of itself. `rack` None: it reads from leaders only; a name (or "": no
    rack) means that it goes where the leader sends it (KIP-392). `current_leader_epoch`: the one
    it knows of, refused unless it is ours (KIP-320)."""

    rack: str | None = None
    current_leader_epoch: LeaderEpoch = LeaderEpoch(NO_EPOCH)


LEADER_ONLY = Consumer()


@dataclass(frozen=True, slots=True)
class FetchResult:
    """`data`: whole record batches; the first may begin below the asked offset. With a
    `preferred_replica` there is neither data nor error: the reader is to ask that broker."""

    error: ErrorCode
    data: bytes = b""
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    log_end_offset: Offset = UNKNOWN_OFFSET
    message: str = ""
    preferred_replica: BrokerId = NO_BROKER


@dataclass(frozen=True, slots=True)
class OffsetsResult:
    """With OFFSET_NOT_AVAILABLE (a new leader whose high watermark is still below the start of
    its epoch, KIP-207) `log_start_offset` is valid all the same."""

    error: ErrorCode
    log_start_offset: Offset = UNKNOWN_OFFSET
    high_watermark: Offset = UNKNOWN_OFFSET
    log_end_offset: Offset = UNKNOWN_OFFSET
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)


@dataclass(frozen=True, slots=True)
class LeaderAddress:
    broker_id: BrokerId
    leader_epoch: LeaderEpoch
    http_url: str


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica on this broker, whatever its role: "leader", "follower" or "idle" (no leader)."""

    role: str
    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class FollowerSnapshot:
    """One remote replica as its leader sees it. `caught_up_age_ms` -1: never in this epoch."""

    broker_id: BrokerId
    lag_records: int
    caught_up_age_ms: int
    in_sync: bool


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One consistent cut of a replica, for /metrics. `followers` is empty unless it leads."""

    topic: str
    topic_id: TopicId
    partition: int
    is_leader: bool
    leader_epoch: LeaderEpoch
    epoch_start_offset: Offset
    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    size_bytes: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    min_insync: int
    followers: tuple[FollowerSnapshot, ...]
    isr_shrinks: int
    isr_expands: int
    truncated_records: int
    committed_truncated_records: int
    producer_ids: int = 0
    duplicate_batches: int = 0
