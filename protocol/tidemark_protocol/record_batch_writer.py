"""Write Kafka's RecordBatch v2: the header, its CRC32C, and the records inside.

Brokers make batches of what HTTP clients send as JSON and of what compaction keeps; our own client
makes its batches itself. Layout: Apache Kafka, DefaultRecordBatch and DefaultRecord.
"""

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

HEADER_BYTES = 61
LENGTH_END = 12  # the length field counts what follows it
CRC_START = 21
MAGIC = 2
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1

HEADER = Struct(">qiibIhiqqqhii")
CRC_AT = Struct(">I")
assert HEADER.size == HEADER_BYTES

Headers = Sequence[tuple[str, bytes | None]]


def finish_batch(
    body: bytearray,
    record_count: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    max_timestamp_ms: int | None = None,
) -> bytes:
    """Write the header of a batch that has all its records, and return the batch.

    `body` begins with HEADER_BYTES of room. `timestamp_ms` is what the records' deltas count from,
    and the largest time too unless `max_timestamp_ms` is.
    """
    HEADER.pack_into(
        body, 0, 0, len(body) - LENGTH_END, -1, MAGIC, 0, 0, record_count - 1, timestamp_ms,
        timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    CRC_AT.pack_into(body, CRC_START - 4, crc32c(memoryview(body)[CRC_START:]))
    return bytes(body)


def as_int64(time_ms: int) -> int:
    """Wrap a sum or difference of times to 64 bits, as Java does.

    Producers choose both times. So there is a record for each batch that Java clients can read, and
    none that cannot be written.
    """
    return (time_ms - MIN_INT64) % 2**64 + MIN_INT64


def encode_record(
    offset_delta: int,
    timestamp_delta_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> bytes:
    """Return one encoded record, its length included."""
    if key is None and value is not None and not headers and not timestamp_delta_ms:
        return _encode_plain(offset_delta, value)
    parts = [b"\x00", varint(timestamp_delta_ms), varint(offset_delta)]  # no attributes
    for field in (key, value):
        parts += _encode_bytes(field)
    parts.append(varint(len(headers)))
    for name, field in headers:
        name_bytes = name.encode()
        parts += (varint(len(name_bytes)), name_bytes, *_encode_bytes(field))
    payload = b"".join(parts)
    return varint(len(payload)) + payload


def _encode_plain(offset_delta: int, value: bytes) -> bytes:
    """Return a record of a value alone, which most records of our own client are: 5 times faster.

    In its order: length, no attributes, no timestamp delta, offset delta, no key, the value, no
    headers.
    """
    delta, length = varint(offset_delta), varint(len(value))
    size = varint(4 + len(delta) + len(length) + len(value))
    return b"%b\x00\x00%b\x01%b%b\x00" % (size, delta, length, value)


def _encode_bytes(field: bytes | None) -> tuple[bytes, ...]:
    return (b"\x01",) if field is None else (varint(len(field)), field)  # varint -1


def varint(value: int) -> bytes:
    """Encode a signed number in Protocol Buffers' zigzag form."""
    return _VARINTS[value] if 0 <= value < _MOST else _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_MOST = 8192  # of two bytes at most: offset deltas and lengths of most records
_VARINTS = tuple(map(_encode_varint, range(_MOST)))
