"""Records in every codec: as Kafka's clients pack them, within limits, and never a wrong byte."""

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from tidemark_broker.storage.codecs import inflated, packed
from tidemark_broker.storage.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.storage.record_batch import read_records

CODECS = range(5)
COMPRESSED = range(1, 5)
BODY = bytes(range(256)) * 400


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(3_000_000)])
def test_what_is_packed_is_inflated_again(codec: int, body: bytes) -> None:
    assert inflated(codec, memoryview(packed(codec, body))) == body


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_implementation_packs_is_opened(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**20)
    values = [b"%d" % number * 50 for number in range(2000)]
    for offset, value in enumerate(values):
        builder.append(offset, 1000, None, value, [])
    batch = memoryview(bytes(builder.build()))
    assert batch[22] & 7 == codec
    assert [record.value for record in read_records(batch)] == values


def test_a_raw_block_of_snappy_is_opened_as_librdkafka_sends_it() -> None:
    block = bytes(cramjam.snappy.compress_raw(BODY))
    assert inflated(2, memoryview(block)) == BODY


@pytest.mark.parametrize("codec", COMPRESSED)
def test_more_than_the_caller_wants_is_not_opened(codec: int) -> None:
    body = memoryview(packed(codec, BODY))
    assert inflated(codec, body, len(BODY)) == BODY
    with pytest.raises(UnsupportedCompression, match=f"more than {len(BODY) - 1} bytes"):
        inflated(codec, body, len(BODY) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("kept", [0, 1, 9, 17, -5, -1])
def test_a_stream_that_is_cut_is_corrupt(codec: int, kept: int) -> None:
    body = packed(codec, BODY)
    with pytest.raises(CorruptBatch):
        inflated(codec, memoryview(body[:kept]))


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_opened_or_refused_and_nothing_else(codec: int, data: bytes) -> None:
    for body in (data, packed(codec, b"abc" * 50)[: len(data)] + data):
        try:
            assert len(inflated(codec, memoryview(body), 10_000)) <= 10_000
        except (CorruptBatch, UnsupportedCompression):
            continue
