"""RecordBatch v2 against Kafka's layout, and what is refused as corrupt."""

import gzip
import struct

import pytest
from crc32c import crc32c
from tidemark_broker.kafka_wire.records.record_batch import (
    CorruptBatch,
    NewRecord,
    Record,
    TruncatedBatch,
    build_batch,
    read_header,
    read_records,
    split_batches,
)
from tidemark_protocol.record_batch_writer import HEADER_BYTES

# One record (key k, value v, header h=x) at timestamp 1000, field by field as Kafka lays it out.
RECORD = bytes.fromhex("00 00 00 02 6b 02 76 02 02 68 02 78".replace(" ", ""))
BODY = bytes([len(RECORD) * 2]) + RECORD
AFTER_CRC = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1) + BODY
EXPECTED = struct.pack(">qiibI", 0, 9 + len(AFTER_CRC), -1, 2, crc32c(AFTER_CRC)) + AFTER_CRC


def test_a_batch_has_the_bytes_that_kafka_gives_it():
    assert build_batch([(b"k", b"v", [("h", b"x")])], timestamp_ms=1000) == EXPECTED


def test_the_records_of_a_batch_are_read_back():
    assert list(read_records(memoryview(EXPECTED))) == [
        Record(0, 1000, b"k", b"v", (("h", b"x"),)),
    ]


def test_null_and_empty_are_told_apart():
    records = [NewRecord(None, b""), NewRecord(b"", None, [("h", None), ("", b"")])]
    batch = memoryview(build_batch(records, timestamp_ms=5))
    assert [(r.key, r.value, r.headers) for r in read_records(batch)] == [
        (None, b"", ()),
        (b"", None, (("h", None), ("", b""))),
    ]


def with_codec(codec: int, body: bytes) -> memoryview:
    after_crc = struct.pack(">hiqqqhii", codec, 0, 1000, 1000, -1, -1, -1, 1) + body
    prefix = struct.pack(">qiibI", 7, 9 + len(after_crc), 3, 2, crc32c(after_crc))
    return memoryview(prefix + after_crc)


def test_gzip_records_are_opened():
    (record,) = read_records(with_codec(1, gzip.compress(BODY)))
    assert (record.offset, record.value) == (7, b"v")


def test_a_gzip_stream_that_is_cut_is_corrupt():
    with pytest.raises(CorruptBatch, match="complete gzip stream"):
        list(read_records(with_codec(1, gzip.compress(BODY)[:-4])))


def test_a_flipped_bit_under_the_crc_is_told_with_position_and_both_checksums():
    data = bytearray(EXPECTED * 2)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match=r"byte 74.*expected CRC32C") as error:
        split_batches(memoryview(bytes(data)), max_batch_bytes=1000)
    assert error.value.position == len(EXPECTED) == 74


@pytest.mark.parametrize("size", range(1, len(EXPECTED)))
def test_a_cut_batch_is_corrupt_wherever_it_is_cut(size):
    with pytest.raises(TruncatedBatch):
        split_batches(memoryview(EXPECTED[:size]), max_batch_bytes=1000)


def test_a_batch_above_the_limit_is_refused_before_its_bytes_are_looked_at():
    with pytest.raises(CorruptBatch, match="at most 73 bytes, found 74"):
        split_batches(memoryview(EXPECTED), max_batch_bytes=73)


@pytest.mark.parametrize(
    ("offset", "replacement", "message"),
    [
        (16, b"\x01", "magic 2, found magic 1"),
        (8, struct.pack(">i", 48), "length of at least 49"),
        (8, struct.pack(">i", -1), "length of at least 49"),
        (0, struct.pack(">q", -1), "offsets from 0 on"),
        (0, struct.pack(">q", 2**63 - 1), "offsets from 0 on"),
        (23, struct.pack(">i", -1), "offsets from 0 on"),
        (57, struct.pack(">i", 2), "0 to 1 records, found 2"),
        (57, struct.pack(">i", -1), "0 to 1 records"),
        (21, struct.pack(">h", 5), "compression 0 to 4"),
    ],
)
def test_a_header_that_contradicts_itself_is_corrupt(offset, replacement, message):
    data = EXPECTED[:offset] + replacement + EXPECTED[offset + len(replacement) :]
    with pytest.raises(CorruptBatch, match=message):
        read_header(data)


def test_header_properties():
    header = read_header(with_codec(4, b"x" * 10))
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 7, 8)
    assert (header.compression, header.is_control, header.size_bytes) == (4, False, 71)
    assert HEADER_BYTES == 61
