"""What a compacted topic asks of records, and how much of a produce is opened to see that."""

from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tidemark_broker.kafka_wire.messages.primitives import INT16, INT32, nullable_string
from tidemark_broker.kafka_wire.records.record_batch import (
    MOST_DECOMPRESSED_BYTES,
    MOST_RECORDS,
    Batch,
    NewRecord,
    build_batch,
    split_batches,
)
from tidemark_broker.replication.record_appender import compaction_error
from tidemark_protocol.error_codes import ErrorCode

from tests.support.crafted_batches import crafted_batch, crafted_record
from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import (
    PRODUCE,
    KafkaTestClient,
    request,
    responded_beside,
    with_kafka_client,
)

GZIP = 1
NOW_MS = 1_700_000_000_000


def batch(count: int, value: bytes = b"v", *, key: bytes | None = b"k", codec: int = 0) -> Batch:
    if codec == 0:
        data = build_batch([NewRecord(key, value)] * count, timestamp_ms=NOW_MS)
    else:
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**30)
        for offset in range(count):
            builder.append(offset, NOW_MS, key, value, [])
        data = bytes(builder.build())
    return split_batches(memoryview(data), max_batch_bytes=len(data))[0]


def gzipped(size_bytes: int) -> Batch:
    return batch(1, bytes(size_bytes), codec=GZIP)


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        ([batch(3)], None),
        ([batch(3, codec=GZIP)] * 100, None),
        ([batch(1, key=None)], ErrorCode.INVALID_RECORD),
        ([batch(MOST_RECORDS)], None),
        ([batch(MOST_RECORDS + 1)], ErrorCode.MESSAGE_TOO_LARGE),
        ([batch(MOST_RECORDS // 2)] * 3, ErrorCode.MESSAGE_TOO_LARGE),
        ([batch(1, bytes(MOST_DECOMPRESSED_BYTES))], None),
        ([gzipped(MOST_DECOMPRESSED_BYTES - 100)], None),
        ([gzipped(MOST_DECOMPRESSED_BYTES)], ErrorCode.MESSAGE_TOO_LARGE),
        ([gzipped(MOST_DECOMPRESSED_BYTES // 3)] * 4, ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        *("plain", "small gzip batches", "no key", "most records", "a record more"),
        *("records of batches", "not inflated", "most inflated", "more inflated", "of batches"),
    ],
)
def test_what_may_be_written_to_a_compacted_topic(
    batches: list[Batch], error: ErrorCode | None
) -> None:
    refused = compaction_error(batches)
    assert (None if refused is None else refused.error) is error
    assert refused is None or "cleanup.policy" in refused.message


@pytest.mark.parametrize("delta_ms", [2**69 - 1, 2**63 - NOW_MS, -(2**63) - NOW_MS - 1, -(2**69)])
def test_records_that_are_dated_outside_of_64_bits_are_refused(delta_ms: int) -> None:
    """Clients of Java and of Python would not agree on when that was."""
    record = crafted_record(b"k", b"v", timestamp_delta_ms=delta_ms)
    refused = compaction_error([crafted_batch([record], base_ms=NOW_MS, max_ms=NOW_MS)])
    assert refused is not None and refused.error is ErrorCode.INVALID_RECORD
    assert "64 bits" in refused.message


def test_a_record_that_is_dated_at_the_end_of_64_bits_is_in_order() -> None:
    record = crafted_record(b"k", b"v", timestamp_delta_ms=2**63 - 1 - NOW_MS)
    assert compaction_error([crafted_batch([record], base_ms=NOW_MS, max_ms=NOW_MS)]) is None


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (1, 1)])
def test_records_that_are_not_in_the_order_of_their_offsets_are_refused(
    deltas: tuple[int, int],
) -> None:
    """Which of one key is the last one?"""
    records = [crafted_record(b"k", b"v", offset_delta=delta) for delta in deltas]
    refused = compaction_error([crafted_batch(records, base_ms=NOW_MS, max_ms=NOW_MS)])
    assert refused is not None and refused.error is ErrorCode.INVALID_RECORD


def test_others_are_answered_while_batches_of_a_compacted_topic_are_opened(tmp_path: Path) -> None:
    """Each is a turn's work, also of those that would be one turn's in another topic."""
    count, data = 20, bytes(batch(2000).data)
    body = INT16.pack(-1) + INT16.pack(1) + INT32.pack(5000) + INT32.pack(1)
    body += nullable_string(TOPIC) + INT32.pack(count)
    body += (INT32.pack(0) + INT32.pack(len(data)) + data) * count

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(config={"cleanup.policy": "compact"})
        responded, _ = await responded_beside(kafka_client, request(PRODUCE, 3, body))
        assert kafka_client.partitions.replica(TOPIC, 0).log_end_offset == count * 2000
        assert responded >= count // 4  # a question and its answer are some turns

    with_kafka_client(tmp_path, scenario)
