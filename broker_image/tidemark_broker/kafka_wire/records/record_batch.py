"""Read and write Kafka's RecordBatch v2: header, CRC32C, and the records inside.

The broker treats batches as opaque bytes: it reads the 61 header bytes, checks the CRC, and writes
a new 16-byte prefix (base offset, length, leader epoch) before the rest, which the CRC covers from
byte 21 on. Only `build_batch` and `read_records`, which serve the HTTP API, do work for each
record (`tidemark_protocol.record_batch_writer` encodes them). Layout: Apache Kafka,
DefaultRecordBatch and DefaultRecord.

`DecompressionBudget` bounds how much is decompressed in one turn of the broker's loop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, Protocol

from crc32c import crc32c
from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import (
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAX_INT64,
    MIN_INT64,
    as_int64,
    encode_record,
    finish_batch,
)

from tidemark_broker.kafka_wire.records.compression import MAX_DECOMPRESSED_BYTES, decompressed
from tidemark_broker.kafka_wire.records.errors import (
    CorruptBatch,
    InvalidBatch,
    TruncatedBatch,
    UnsupportedCompression,
)

__all__ = [
    "PREFIX",
    "Batch",
    "BatchHeader",
    "CorruptBatch",
    "InvalidBatch",
    "NewRecord",
    "Record",
    "TruncatedBatch",
    "UnsupportedCompression",
    "build_batch",
    "check_crc",
    "opened",
    "read_header",
    "read_records",
    "records_of",
    "split_batches",
    "with_append_time",
    "with_create_time",
]

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
MAX_COMPRESSION = 4

PREFIX = Struct(">qii")  # base offset, length, leader epoch: all that a leader rewrites
_ATTRIBUTES_AT = Struct(">h")
_TIMESTAMP_AT = Struct(">q")
_MAX_TIMESTAMP_START = 35


class BatchHeader(NamedTuple):
    """The header of a batch.

    A tuple, not a frozen dataclass: one is made for each batch on the hot path (4x cheaper).
    """

    base_offset: Offset
    size_bytes: int  # the whole batch, with the 12 bytes before the length's count
    partition_leader_epoch: LeaderEpoch
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def compression(self) -> int:
        """Return the codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_append_time(self) -> bool:
        """Return whether the records have the time of their append instead of their own times."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


class Batch(NamedTuple):
    header: BatchHeader
    data: memoryview  # the whole batch; a view into the caller's buffer


@dataclass(frozen=True, slots=True)
class Record:
    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


RecordTuple = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class RecordLike(Protocol):
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def read_header(view: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Return the header at `position`, its fields checked against each other, but not the CRC.

    Does not check that the whole batch is in `view`. Raises CorruptBatch.
    """
    if len(view) - position < HEADER_BYTES:
        raise TruncatedBatch(
            position, f"{HEADER_BYTES} header bytes", f"{max(0, len(view) - position)} bytes"
        )
    (
        base_offset, length, leader_epoch, magic, crc, attributes, last_offset_delta,
        base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence,
        record_count,
    ) = HEADER.unpack_from(view, position)  # fmt: skip
    if magic != MAGIC:
        raise CorruptBatch(position, f"magic {MAGIC}", f"magic {magic}")
    if length < HEADER_BYTES - LENGTH_END:
        raise CorruptBatch(
            position, f"a length of at least {HEADER_BYTES - LENGTH_END}", f"length {length}"
        )
    if base_offset < 0 or last_offset_delta < 0 or base_offset > MAX_INT64 - last_offset_delta - 1:
        raise CorruptBatch(
            position, "offsets from 0 on", f"base {base_offset} and delta {last_offset_delta}"
        )
    # Fewer records than offsets is what compaction leaves; more cannot be.
    if not 0 <= record_count <= last_offset_delta + 1:
        raise CorruptBatch(
            position, f"0 to {last_offset_delta + 1} records", f"{record_count} records"
        )
    if attributes & COMPRESSION_MASK > MAX_COMPRESSION:
        raise CorruptBatch(
            position, "compression 0 to 4", f"compression {attributes & COMPRESSION_MASK}"
        )
    return BatchHeader(
        base_offset, length + LENGTH_END, leader_epoch, crc, attributes, last_offset_delta,
        base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence,
        record_count,
    )  # fmt: skip


def check_crc(header: BatchHeader, batch: memoryview, position: int = 0) -> None:
    found = crc32c(batch[CRC_START:])
    if found != header.crc:
        raise CorruptBatch(position, f"CRC32C {header.crc:08x}", f"{found:08x}")


def split_batches(data: memoryview, *, max_batch_bytes: int) -> list[Batch]:
    """Return all batches of `data`, the CRC of each verified; an incomplete last batch is corrupt.

    Raises CorruptBatch. The batches are views: they keep `data`'s buffer alive.
    """
    batches: list[Batch] = []
    position = 0
    end = len(data)
    while position < end:
        header = read_header(data, position)
        size_bytes = header.size_bytes
        if size_bytes > max_batch_bytes:
            raise CorruptBatch(
                position, f"a batch of at most {max_batch_bytes} bytes", f"{size_bytes} bytes"
            )
        if position + size_bytes > end:
            raise TruncatedBatch(position, f"{size_bytes} bytes", f"only {end - position} bytes")
        batch = data[position : position + size_bytes]
        if crc32c(batch[CRC_START:]) != header.crc:
            check_crc(header, batch, position)
        batches.append(Batch(header, batch))
        position += size_bytes
    return batches


def with_append_time(batch: Batch, now_ms: int) -> Batch:
    """Return a copy whose records all have the time `now_ms`.

    That is message.timestamp.type=LogAppendTime. It is a copy because attributes and timestamp
    are inside the CRC (Kafka: setMaxTimestamp).
    """
    return _stamped(batch, batch.header.attributes | LOG_APPEND_TIME, now_ms)


def with_create_time(batch: Batch) -> Batch:
    """Return a copy whose records have their own times (message.timestamp.type=CreateTime)."""
    header = batch.header
    return _stamped(batch, header.attributes & ~LOG_APPEND_TIME, header.max_timestamp_ms)


def _stamped(batch: Batch, attributes: int, max_timestamp_ms: int) -> Batch:
    stamped = bytearray(batch.data)
    _ATTRIBUTES_AT.pack_into(stamped, CRC_START, attributes)
    _TIMESTAMP_AT.pack_into(stamped, _MAX_TIMESTAMP_START, max_timestamp_ms)
    CRC_AT.pack_into(stamped, CRC_START - 4, crc32c(memoryview(stamped)[CRC_START:]))
    view = memoryview(bytes(stamped))
    return Batch(read_header(view), view)


def build_batch(
    records: Sequence[RecordLike | RecordTuple],
    *,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return one uncompressed batch at base offset 0, as a producer would send it.

    Each record is (key, value, headers): a tuple, or an object with these attributes.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    body = bytearray(HEADER_BYTES)
    add_records(body, records, first_delta=0)
    return finish_batch(
        body, len(records), timestamp_ms, producer_id, producer_epoch, base_sequence
    )


def add_records(
    body: bytearray, records: Sequence[RecordLike | RecordTuple], *, first_delta: int
) -> None:
    """Append records to a batch that begins with room for its header.

    `build_batch` in parts: add_records for each part, then finish_batch.
    """
    for delta, record in enumerate(records, start=first_delta):
        if isinstance(record, tuple):
            key, value, headers = record
        else:
            key, value, headers = record.key, record.value, record.headers
        body += encode_record(delta, 0, key, value, headers)


def read_records(
    batch: memoryview, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Yield the records of one whole batch, in offset order. Does not check the CRC.

    Raises CorruptBatch for contents that do not parse, UnsupportedCompression for more than
    `max_decompressed_bytes`.
    """
    header = read_header(batch)
    return records_of(header, opened(header, batch, max_decompressed_bytes))


def opened(
    header: BatchHeader, batch: memoryview, most_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Return the decompressed bytes after the header.

    Raises CorruptBatch, UnsupportedCompression.
    """
    try:
        return decompressed(header.compression, batch[HEADER_BYTES : header.size_bytes], most_bytes)
    except CorruptBatch as error:
        raise error.moved_to(HEADER_BYTES) from error


def records_of(
    header: BatchHeader, body: bytes, *, rejects_odd_times: bool = False
) -> Iterator[Record]:
    """Yield the records of a decompressed batch.

    Raises CorruptBatch; for a record whose time is outside of 64 bits only with
    `rejects_odd_times`.
    """
    reader = _RecordReader(body, rejects_odd_times=rejects_odd_times)
    for _ in range(header.record_count):
        yield reader.next_record(header)
    if reader.position != len(body):
        raise CorruptBatch(
            reader.position, f"{header.record_count} records and no more", "further bytes"
        )


class _RecordReader:
    """A cursor over the uncompressed records that checks each length before it uses it."""

    def __init__(self, body: bytes, *, rejects_odd_times: bool) -> None:
        self.body = body
        self.position = 0
        self._rejects_odd_times = rejects_odd_times

    def next_record(self, header: BatchHeader) -> Record:
        size = self._varint()
        start = self.position
        if not 0 < size <= len(self.body) - start:
            raise CorruptBatch(start, f"a record within {len(self.body) - start} bytes", f"{size}")
        self.position += 1  # attributes, unused
        timestamp_delta = self._varint()
        offset_delta = self._varint()
        if not 0 <= offset_delta <= header.last_offset_delta:
            raise CorruptBatch(
                start, f"an offset delta of 0 to {header.last_offset_delta}", f"{offset_delta}"
            )
        key = self._bytes()
        value = self._bytes()
        headers = tuple(self._header() for _ in range(self._header_count()))
        if self.position != start + size:
            raise CorruptBatch(start, f"a record of {size} bytes", f"{self.position - start}")
        return Record(
            Offset(header.base_offset + offset_delta),
            self._timestamp_ms(header, timestamp_delta, start),
            key,
            value,
            headers,
        )

    def _timestamp_ms(self, header: BatchHeader, delta_ms: int, start: int) -> int:
        """Return the time of a record, always one that 64 bits hold."""
        if header.has_append_time:
            return header.max_timestamp_ms
        timestamp_ms = header.base_timestamp_ms + delta_ms
        if MIN_INT64 <= timestamp_ms <= MAX_INT64:
            return timestamp_ms
        if self._rejects_odd_times:
            raise CorruptBatch(start, "a timestamp of 64 bits", f"{timestamp_ms}")
        return as_int64(timestamp_ms)

    def _header_count(self) -> int:
        count = self._varint()
        if not 0 <= count <= len(self.body) - self.position:
            raise CorruptBatch(self.position, "a header count that fits", f"{count}")
        return count

    def _header(self) -> tuple[str, bytes | None]:
        name = self._bytes()
        if name is None:
            raise CorruptBatch(self.position, "a header name", "null")
        try:
            return name.decode(), self._bytes()
        except UnicodeDecodeError as error:
            raise CorruptBatch(self.position, "a header name in UTF-8", repr(name[:32])) from error

    def _bytes(self) -> bytes | None:
        size = self._varint()
        if size == -1:
            return None
        start = self.position
        if not 0 <= size <= len(self.body) - start:
            raise CorruptBatch(start, f"at most {len(self.body) - start} bytes", f"{size}")
        self.position = start + size
        return self.body[start : self.position]

    def _varint(self) -> int:
        zigzag = 0
        for shift in range(0, 70, 7):
            if self.position >= len(self.body):
                raise CorruptBatch(self.position, "a varint", "the end of the batch")
            byte = self.body[self.position]
            self.position += 1
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (zigzag >> 1) ^ -(zigzag & 1)
        raise CorruptBatch(self.position, "a varint of at most 10 bytes", "a longer one")


MOST_RECORDS = 50_000
MOST_DECOMPRESSED_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class DecompressionBudget:
    """The limits of one turn of the loop: batches, records and decompressed bytes."""

    batches: int = MOST_RECORDS
    records: int = MOST_RECORDS
    inflated_bytes: int = MOST_DECOMPRESSED_BYTES

    def take(self, header: BatchHeader) -> None:
        """Count a batch before it is decompressed or read.

        Raises UnsupportedCompression.
        """
        self.batches -= 1
        self.records -= header.record_count
        if self.batches < 0 or self.records < 0:
            raise UnsupportedCompression(
                f"more than {MOST_RECORDS} records are not read at the same time"
            )

    def records_of(
        self, header: BatchHeader, batch: memoryview, *, rejects_odd_times: bool = False
    ) -> Iterator[Record]:
        """Yield records as `read_records` does, within the budget.

        Raises CorruptBatch, UnsupportedCompression.
        """
        if header.compression and self.inflated_bytes <= 0:
            text = (
                f"more than {MOST_DECOMPRESSED_BYTES} decompressed bytes are not read at the"
                " same time"
            )
            raise UnsupportedCompression(text)
        body = opened(header, batch, self.inflated_bytes)
        if header.compression:
            self.inflated_bytes -= len(body)
        return records_of(header, body, rejects_odd_times=rejects_odd_times)
