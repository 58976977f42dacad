"""Define the three outcomes of records that were sent.

`Rejected` is a promise: none of these records is in any log, so sending them again cannot make a
duplicate. After `Unknown` they may be there; only those of an idempotent producer are sent again.
"""

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The outcome of written records; `offset` is that of the first one, others follow it.

    -1 with acks=0, where no response is waited for.
    """

    offset: int
    broker_url: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The outcome of records that were certainly not written; `error` is Kafka's name."""

    error: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome of records whose response was lost or is not conclusive."""

    error: str
    message: str = ""


Outcome = Acknowledged | Rejected | Unknown


class RecordHeader(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes | None = None


class OutgoingRecord(msgspec.Struct, frozen=True):
    """A record to send; without a time it gets that of its sending."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The identity of one idempotent producer, from POST /producers; clients must not share it."""

    producer_id: int
    producer_epoch: int


class ConsumedRecord(msgspec.Struct, frozen=True):
    """A record as the HTTP API returns it in the binary format."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = msgspec.field(default=-1, name="timestamp")
    headers: tuple[RecordHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordPage:
    """The response to a fetch; `next_offset` is where the next one starts.

    `topic_id` is of the log that was read, "" from a broker that does not send it.
    """

    records: tuple[ConsumedRecord, ...]
    high_watermark: int
    next_offset: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ReplicaDigest:
    """A replica as its broker sees it; `sha256` is of its log's bytes below `to_offset`."""

    broker_id: int
    role: str
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    to_offset: int
    sha256: str


class BrokerError(Exception):
    """An error: a broker rejected a read; `error` is Kafka's name."""

    def __init__(self, error: str, message: str, *, is_retriable: bool) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error
        self.message = message
        self.is_retriable = is_retriable
