"""Batches as no honest producer packs them: each number is the test's."""

from collections.abc import Sequence

from crc32c import crc32c
from tidemark_broker.kafka_wire.records.compression import packed
from tidemark_broker.kafka_wire.records.record_batch import Batch, split_batches
from tidemark_protocol.record_batch_writer import HEADER, HEADER_BYTES, MAGIC

NO_PRODUCER = (-1, -1, -1)


def zigzag(number: int) -> bytes:
    """Of up to 70 bits: more than any field has, and as many as ten bytes hold."""
    rest = number << 1 if number >= 0 else ~number << 1 | 1
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def field(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def crafted_record(
    key: bytes | None,
    value: bytes | None,
    *,
    offset_delta: int = 0,
    timestamp_delta_ms: int = 0,
    headers: bytes = b"\x00",
) -> bytes:
    """`headers`: with their count before them."""
    payload = b"\x00" + zigzag(timestamp_delta_ms) + zigzag(offset_delta)
    payload += field(key) + field(value) + headers
    return zigzag(len(payload)) + payload


def crafted_batch(
    records: Sequence[bytes],
    *,
    base_ms: int,
    max_ms: int,
    attributes: int = 0,
    codec: int = 0,
    producer: tuple[int, int, int] = NO_PRODUCER,
    body: bytes | None = None,
) -> Batch:
    """`producer`: id, epoch, first sequence. `body`: in the place of the records, as it is."""
    if body is None:
        body = packed(codec, b"".join(records))
    count = len(records)
    data = bytearray(HEADER_BYTES) + body
    HEADER.pack_into(
        data, 0, 0, len(data) - 12, -1, MAGIC, 0, attributes | codec, count - 1,
        base_ms, max_ms, *producer, count,
    )  # fmt: skip
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return split_batches(memoryview(bytes(data)), max_batch_bytes=len(data))[0]
