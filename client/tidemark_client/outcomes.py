"""What became of records that were sent: the three outcomes that an honest client tells apart.

`Refused` is a promise: none of these records is in any log, so sending them again cannot make a
duplicate. `Unknown` says that they may or may not be there; only those of an idempotent
producer are sent again.
"""

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """`offset` is that of the first record; those of one request follow each other. -1 with acks=0:
    sent, and nobody waited for it."""

    offset: int
    broker_url: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Certainly not written. `error` is Kafka's name of it."""

    error: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Sent, and the answer was lost or says that it is not known."""

    error: str
    message: str = ""


Outcome = Acknowledged | Refused | Unknown


class RecordHeader(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes | None = None


class OutgoingRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """As the HTTP API takes it: bytes become base64."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()
    timestamp_ms: int | None = msgspec.field(default=None, name="timestamp")


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Of one idempotent producer, from POST /producers; no two clients may share it."""

    producer_id: int
    producer_epoch: int


class ConsumedRecord(msgspec.Struct, frozen=True):
    """As the HTTP API gives it, in the binary format."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = msgspec.field(default=-1, name="timestamp")
    headers: tuple[RecordHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordPage:
    """One answer of a fetch; `next_offset` is where the next one starts. `topic_id` is of the log
    that was read, "" from a broker that does not tell."""

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
    """One replica as its own broker sees it; `sha256` is of its log's bytes below `to_offset`."""

    broker_id: int
    role: str
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    to_offset: int
    sha256: str


class BrokerRefused(Exception):
    """A read that a broker refused; `error` is Kafka's name of it."""

    def __init__(self, error: str, message: str, *, is_retriable: bool) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error
        self.message = message
        self.is_retriable = is_retriable
