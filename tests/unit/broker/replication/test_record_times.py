"""Records dated too far from the broker's clock are refused; the limits are the topic's."""

import dataclasses
import re

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tidemark_broker.kafka_wire.records.record_batch import LOG_APPEND_TIME, Batch, split_batches
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.replication.record_times import timestamp_error
from tidemark_protocol.error_codes import ErrorCode

from tests.support.crafted_batches import crafted_batch, crafted_record

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
STRICT = LogSettings(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)


def batch(*timestamps_ms: int, gzip: bool = False) -> Batch:
    builder = DefaultRecordBatchBuilder(2, 1 if gzip else 0, 0, -1, -1, -1, 2**30)
    for offset, timestamp_ms in enumerate(timestamps_ms):
        builder.append(offset, timestamp_ms, b"k" * 100, b"v" * 100, [])
    data = bytes(builder.build())
    return split_batches(memoryview(data), max_batch_bytes=len(data))[0]


@pytest.mark.parametrize(
    "settings, timestamps_ms, words",
    [
        (LogSettings(), (NOW_MS + HOUR_MS,), ""),
        (LogSettings(), (NOW_MS + HOUR_MS + 1,), "after"),
        (LogSettings(), (0, NOW_MS + HOUR_MS + 1), "after"),
        (LogSettings(), (0,), ""),
        (STRICT, (NOW_MS - 1000, NOW_MS + 1000), ""),
        (STRICT, (NOW_MS - 1001,), "before"),
        (STRICT, (NOW_MS, NOW_MS - 1001), "before"),
        (STRICT, (NOW_MS, NOW_MS + 1001), "after"),
    ],
)
@pytest.mark.parametrize("gzip", [False, True])
def test_the_oldest_and_the_newest_record_decide(
    settings: LogSettings, timestamps_ms: tuple[int, ...], words: str, gzip: bool
) -> None:
    refused = timestamp_error([batch(*timestamps_ms, gzip=gzip)], settings, NOW_MS)
    if not words:
        assert refused is None
        return
    assert refused is not None and refused.error is ErrorCode.INVALID_TIMESTAMP
    assert f"message.timestamp.{words}.max.ms" in refused.message


def test_a_batch_too_large_to_be_opened_is_judged_by_its_first_record() -> None:
    many = batch(*(NOW_MS - 1000 * (number == 50_000) for number in range(50_001)))
    lenient = dataclasses.replace(STRICT, timestamp_before_max_ms=500)
    assert timestamp_error([many], lenient, NOW_MS) is None


def test_of_batches_that_cannot_be_opened_here_the_first_record_decides() -> None:
    plain = batch(NOW_MS - 5000)
    zstd = 4
    sealed = plain._replace(
        header=plain.header._replace(attributes=plain.header.attributes | zstd),
        data=memoryview(bytes(plain.data[:22]) + bytes([zstd]) + bytes(plain.data[23:])),
    )
    assert timestamp_error([sealed], STRICT, NOW_MS) is not None
    lenient = dataclasses.replace(STRICT, timestamp_before_max_ms=5000)
    assert timestamp_error([sealed], lenient, NOW_MS) is None


@pytest.mark.parametrize("gzip", [False, True])
def test_each_record_out_of_range_is_named(gzip: bool) -> None:
    far = batch(NOW_MS, NOW_MS + 1001, NOW_MS - 1001, gzip=gzip)
    refused = timestamp_error([batch(NOW_MS), far, batch(NOW_MS + 5000)], STRICT, NOW_MS)
    assert refused is not None
    assert [found.position for found in refused.record_errors] == [2, 3, 4]
    sides = [re.search("before|after", found.message) for found in refused.record_errors]
    assert [found and found[0] for found in sides] == ["after", "before", "after"]


def test_records_without_a_timestamp_are_in_range() -> None:
    """Kafka's NO_TIMESTAMP, -1."""
    assert timestamp_error([batch(-1), batch(NOW_MS, -1)], STRICT, NOW_MS) is None


def test_a_batch_whose_header_alone_is_ahead_is_refused_as_a_whole() -> None:
    plain = batch(NOW_MS)
    lying = plain._replace(header=plain.header._replace(max_timestamp_ms=NOW_MS + 2 * HOUR_MS))
    refused = timestamp_error([lying], LogSettings(), NOW_MS)
    assert refused is not None and refused.record_errors == ()


STAMPS = LogSettings(stamps_append_time=True)


def stamped_batch(max_ms: int, *, codec: int = 0) -> Batch:
    """As a producer would send it that sets what only a log should."""
    records = [crafted_record(b"k", b"v", offset_delta=number) for number in range(2)]
    return crafted_batch(
        records, base_ms=1000, max_ms=max_ms, attributes=LOG_APPEND_TIME, codec=codec
    )


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(
    "settings, max_ms, is_rejected",
    [
        (STAMPS, NOW_MS, True),
        (STAMPS, -1, True),
        (STAMPS, NOW_MS + 2 * HOUR_MS, True),
        (LogSettings(), NOW_MS, False),
        (LogSettings(), -1, True),
        (LogSettings(), NOW_MS + 2 * HOUR_MS, True),
    ],
)
def test_a_batch_that_says_that_a_log_stamped_it_is_refused_as_kafka_refuses_it(
    settings: LogSettings, max_ms: int, is_rejected: bool, codec: int
) -> None:
    """What LogValidator of Kafka 4.4.0 answers to each (docs/decisions/0150)."""
    batches = [stamped_batch(max_ms, codec=codec)]
    if not settings.stamps_append_time:
        batches.insert(0, batch(NOW_MS))
    refused = timestamp_error(batches, settings, NOW_MS)
    if not is_rejected:
        assert refused is None
        return
    assert refused is not None and refused.error is ErrorCode.INVALID_TIMESTAMP
    first = len(batches) - 1
    assert [found.position for found in refused.record_errors] == [first, first + 1]


def test_a_log_that_stamps_does_not_ask_for_times_of_producers() -> None:
    strict = dataclasses.replace(STRICT, stamps_append_time=True)
    assert timestamp_error([batch(0), batch(NOW_MS + 2 * HOUR_MS)], strict, NOW_MS) is None
