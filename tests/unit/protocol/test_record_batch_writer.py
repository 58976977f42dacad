"""Written batches have the bytes of Kafka's layout, and the broker reads them."""

import pytest
from tidemark_broker.kafka_wire.records.record_batch import check_crc, read_header, read_records
from tidemark_protocol.record_batch_writer import (
    HEADER_BYTES,
    MAX_INT64,
    MIN_INT64,
    Headers,
    as_int64,
    encode_record,
    finish_batch,
    varint,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-64, "7f"),
        (-65, "8101"),
        (8191, "fe7f"),  # the last of two bytes
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (MAX_INT64, "feffffffffffffffff01"),
        (MIN_INT64, "ffffffffffffffffff01"),
    ],
)
def test_varint_is_zigzag_in_groups_of_seven_bits(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@pytest.mark.parametrize(
    ("time_ms", "wrapped"),
    [
        (0, 0),
        (-1, -1),
        (MAX_INT64, MAX_INT64),
        (MAX_INT64 + 1, MIN_INT64),
        (MIN_INT64 - 1, MAX_INT64),
        (2**64 + 5, 5),
    ],
)
def test_times_wrap_to_64_bits(time_ms: int, wrapped: int) -> None:
    assert as_int64(time_ms) == wrapped


@pytest.mark.parametrize(
    ("delta_ms", "key", "value", "headers", "encoded"),
    [
        # length, attributes, timestamp delta, offset delta (2), key, value, headers
        (0, None, b"v", (), "0e 00 00 04 01 02 76 00"),
        (0, None, b"", (), "0c 00 00 04 01 00 00"),
        (3, None, b"v", (), "0e 00 06 04 01 02 76 00"),
        (0, b"k", None, (), "0e 00 00 04 02 6b 01 00"),
        (0, b"", b"v", (), "0e 00 00 04 00 02 76 00"),
        (-1, None, None, (), "0c 00 01 04 01 01 00"),
        (0, None, b"v", [("\u00e9", None)], "16 00 00 04 01 02 76 02 04 c3 a9 01"),
        (0, None, b"v", [("h", b"")], "14 00 00 04 01 02 76 02 02 68 00"),
    ],
)
def test_record_has_kafkas_bytes(
    delta_ms: int, key: bytes | None, value: bytes | None, headers: Headers, encoded: str
) -> None:
    assert encode_record(2, delta_ms, key, value, headers).hex(" ") == encoded


def test_lengths_of_two_bytes_are_counted_in_the_record() -> None:
    encoded = encode_record(0, 0, None, b"x" * 64, ())
    assert encoded[:7].hex(" ") == "8e 01 00 00 00 01 80"  # 71 bytes follow
    assert len(encoded) == 2 + 71


def a_batch(*values: bytes, max_timestamp_ms: int | None = None) -> bytes:
    body = bytearray(HEADER_BYTES)
    for number, value in enumerate(values):
        body += encode_record(number, number, None, value, ())
    return finish_batch(
        body, len(values), 1000, 2**40, 3, 70_000, max_timestamp_ms=max_timestamp_ms
    )


def test_header_has_the_place_of_each_field() -> None:
    batch = a_batch(b"a", b"b")
    assert batch[:17].hex(" ") == (
        "00 00 00 00 00 00 00 00"  # base offset
        " 00 00 00 41"  # length: 49 of the header after it, and two records of 8
        " ff ff ff ff 02"  # leader epoch, magic
    )
    assert batch[21:61].hex(" ") == (
        "00 00 00 00 00 01"  # attributes, last offset delta
        " 00 00 00 00 00 00 03 e8 00 00 00 00 00 00 03 e8"  # base and largest time
        " 00 00 01 00 00 00 00 00 00 03 00 01 11 70 00 00 00 02"  # producer, sequence, count
    )


def test_broker_reads_the_batch() -> None:
    batch = a_batch(b"a", b"", b"c" * 9000, max_timestamp_ms=1002)
    header = read_header(batch)
    check_crc(header, memoryview(batch))
    assert (header.size_bytes, header.max_timestamp_ms) == (len(batch), 1002)
    assert [
        (each.offset, each.timestamp_ms, each.value) for each in read_records(memoryview(batch))
    ] == [
        (0, 1000, b"a"),
        (1, 1001, b""),
        (2, 1002, b"c" * 9000),
    ]
