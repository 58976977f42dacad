"""Records in every codec: as Kafka's clients pack them, within limits, and never a wrong byte."""

import random

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from tidemark_broker.kafka_wire.records.compression import decompressed, has_linked_blocks, packed
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.kafka_wire.records.record_batch import read_records

CODECS = range(5)
COMPRESSED = range(1, 5)
BODY = bytes(range(256)) * 400


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(3_000_000)])
def test_what_is_packed_is_inflated_again(codec: int, body: bytes) -> None:
    assert decompressed(codec, memoryview(packed(codec, body))) == body


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_implementation_packs_is_opened(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**20)
    values = [b"%d" % number * 50 for number in range(2000)]
    for offset, value in enumerate(values):
        builder.append(offset, 1000, None, value, [])
    batch = memoryview(bytes(builder.build()))
    assert batch[22] & 7 == codec
    assert [record.value for record in read_records(batch)] == values


# What Kafka 4.1's own classes (Compression.of(...).wrapForOutput) begin with, and end with.
STARTS = {
    1: "1f8b0800 00000000",
    2: "82534e4150505900 00000001 00000001",
    3: "04224d18 60 40 82",  # independent blocks of 64 KiB; no size, no checksums
    4: "28b52ffd",
}


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("body", [b"", b"abc" * 100, random.Random(5).randbytes(200_000)])
def test_frames_begin_as_kafkas_own_do(codec: int, body: bytes) -> None:
    assert packed(codec, body).hex().startswith(STARTS[codec].replace(" ", ""))


def test_an_lz4_frame_has_blocks_as_kafkas_own() -> None:
    """One that does not shrink is plain; the end mark is the last."""
    noise = random.Random(5).randbytes(65_536)
    frame = packed(3, noise + b"a" * 70_000)
    assert frame[7:11] == (65_536 | 1 << 31).to_bytes(4, "little")
    assert frame[11 : 11 + 65_536] == noise
    assert frame.endswith(bytes(4))
    assert lz4.frame.decompress(frame) == noise + b"a" * 70_000
    assert not has_linked_blocks(frame)


def test_an_lz4_frame_with_linked_blocks_is_told() -> None:
    assert has_linked_blocks(bytes(cramjam.lz4.compress(BODY)))
    assert has_linked_blocks(lz4.frame.compress(BODY, block_linked=True)[:5])
    assert not has_linked_blocks(lz4.frame.compress(BODY, block_linked=False))
    assert not has_linked_blocks(b"")
    assert not has_linked_blocks(packed(4, BODY))


def test_a_raw_block_of_snappy_is_opened_as_librdkafka_sends_it() -> None:
    block = bytes(cramjam.snappy.compress_raw(BODY))
    assert decompressed(2, memoryview(block)) == BODY


@pytest.mark.parametrize("codec", COMPRESSED)
def test_more_than_the_caller_wants_is_not_opened(codec: int) -> None:
    body = memoryview(packed(codec, BODY))
    assert decompressed(codec, body, len(BODY)) == BODY
    with pytest.raises(UnsupportedCompression, match=f"more than {len(BODY) - 1} bytes"):
        decompressed(codec, body, len(BODY) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("kept", [0, 1, 9, 17, -5, -1])
def test_a_stream_that_is_cut_is_corrupt(codec: int, kept: int) -> None:
    body = packed(codec, BODY)
    with pytest.raises(CorruptBatch):
        decompressed(codec, memoryview(body[:kept]))


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_opened_or_refused_and_nothing_else(codec: int, data: bytes) -> None:
    for body in (data, packed(codec, b"abc" * 50)[: len(data)] + data):
        try:
            assert len(decompressed(codec, memoryview(body), 10_000)) <= 10_000
        except (CorruptBatch, UnsupportedCompression):
            continue
