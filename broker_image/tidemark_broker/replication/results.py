"""Define the results of the replica manager for HTTP and the Kafka server."""

from dataclasses import dataclass
from typing import NamedTuple

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId

UNKNOWN_OFFSET = Offset(-1)
NO_APPEND_TIME = -1
NO_TOPIC_ID = TopicId("")


class RecordError(NamedTuple):
    """The error of one record of a produce (KIP-467).

    `position` is its index among all records, Kafka's batch index.
    """

    position: int
    message: str


class ProduceResult(NamedTuple):
    """The result of a produce.

    `record_errors` are the records for which all of them are rejected; empty if the error is of the
    whole batch.
    """

    error: ErrorCode
    base_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    message: str = ""
    append_time_ms: int = NO_APPEND_TIME  # where the topic stamps records itself
    is_out_of_space: bool = False  # KAFKA_STORAGE_ERROR of a disk that is sound; not written
    record_errors: tuple[RecordError, ...] = ()


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a consumer says of itself.

    A `rack` of None reads from leaders only; a name (or "": no rack) goes where the leader
    redirects it (KIP-392). `current_leader_epoch` is rejected unless it is ours (KIP-320).
    """

    rack: str | None = None
    current_leader_epoch: LeaderEpoch = LeaderEpoch(NO_EPOCH)


LEADER_ONLY = Consumer()


class FetchResult(NamedTuple):
    """The result of a fetch; `data` is complete batches, the first may begin below the offset.

    With a `preferred_replica` there is neither data nor error: the consumer asks that broker.
    """

    error: ErrorCode
    data: bytes = b""
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    log_end_offset: Offset = UNKNOWN_OFFSET
    message: str = ""
    preferred_replica: BrokerId = NO_BROKER
    topic_id: TopicId = NO_TOPIC_ID  # of the log that was read


@dataclass(frozen=True, slots=True)
class OffsetsResult:
    """The offsets of a partition.

    With OFFSET_NOT_AVAILABLE (a new leader whose high watermark is still below the start of its
    epoch, KIP-207) `log_start_offset` is valid all the same.
    """

    error: ErrorCode
    log_start_offset: Offset = UNKNOWN_OFFSET
    high_watermark: Offset = UNKNOWN_OFFSET
    log_end_offset: Offset = UNKNOWN_OFFSET
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica on this broker with its role: "leader", "follower" or "idle" (no leader)."""

    role: str
    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    leader_epoch: LeaderEpoch
    # Of the leader: the log end offsets of its followers by their last fetches; -1: none yet.
    follower_ends: tuple[tuple[BrokerId, Offset], ...] = ()
