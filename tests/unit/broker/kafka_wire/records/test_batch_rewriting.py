"""A rewritten batch covers the same offsets and sequences, with some of its records or none."""

import pytest
from tidemark_broker.kafka_wire.records.batch_rewriting import (
    DELETE_HORIZON,
    MAX_OFFSET_DELTA,
    NO_TIMESTAMP,
    batch_of_rest,
    batch_without_records,
    delete_horizon_ms,
    empty_run,
    is_empty_run,
    run_from,
)
from tidemark_broker.kafka_wire.records.record_batch import (
    CONTROL,
    LOG_APPEND_TIME,
    BatchHeader,
    Record,
    check_crc,
    read_header,
    read_records,
    split_batches,
)
from tidemark_protocol.ids import LeaderEpoch, Offset

from tests.support.crafted_batches import crafted_batch, crafted_record

PRODUCER = (2**40, 3, 70_000)
GZIP = 1


def a_batch(codec: int = 0, attributes: int = 0) -> tuple[BatchHeader, list[Record]]:
    """Three records at offsets 10 to 12, a second apart."""
    records = [
        crafted_record(b"k", value, offset_delta=delta, timestamp_delta_ms=1000 * delta)
        for delta, value in enumerate((b"a", b"b", None))
    ]
    crafted = crafted_batch(
        records, base_ms=5000, max_ms=7000, attributes=attributes, codec=codec, producer=PRODUCER
    )
    data = (10).to_bytes(8, "big") + bytes(crafted.data[8:12]) + b"\0\0\0\x04" + crafted.data[16:]
    return read_header(data), list(read_records(memoryview(data)))


def valid_header(batch: bytes) -> BatchHeader:
    ((header, _),) = split_batches(memoryview(batch), max_batch_bytes=len(batch))
    return header


def numbers_of(header: BatchHeader) -> tuple[int, ...]:
    """What stays of a batch, whatever records it loses."""
    producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    return (header.base_offset, header.last_offset, header.partition_leader_epoch, *producer)


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("chosen", [[0], [1], [0, 2], [0, 1, 2]])
def test_rest_keeps_offsets_times_and_compression(codec: int, chosen: list[int]) -> None:
    header, records = a_batch(codec)
    rest = [records[index] for index in chosen]
    batch = batch_of_rest(header, rest, horizon_ms=None)
    found = valid_header(batch)
    assert list(read_records(memoryview(batch))) == rest
    assert numbers_of(found) == numbers_of(header) == (10, 12, 4, *PRODUCER)
    assert (found.compression, found.record_count) == (codec, len(rest))
    assert found.max_timestamp_ms == rest[-1].timestamp_ms
    assert delete_horizon_ms(found) is None


def test_rest_is_never_later_than_the_header_said() -> None:
    header, records = a_batch()
    admitted = header._replace(max_timestamp_ms=5500)
    assert valid_header(batch_of_rest(admitted, records, horizon_ms=None)).max_timestamp_ms == 5500


def test_delete_horizon_is_set_once_and_stays_and_times_do_not_change() -> None:
    header, records = a_batch()
    batch = batch_of_rest(header, records[2:], horizon_ms=9000)
    marked = valid_header(batch)
    assert delete_horizon_ms(marked) == marked.base_timestamp_ms == 9000
    assert marked.attributes == DELETE_HORIZON
    assert list(read_records(memoryview(batch))) == records[2:]
    again = valid_header(batch_of_rest(marked, records[2:], horizon_ms=None))
    assert delete_horizon_ms(again) == 9000


def test_batch_without_records_keeps_the_producers_state_and_its_newest_time() -> None:
    header, _ = a_batch(GZIP, attributes=LOG_APPEND_TIME | DELETE_HORIZON)
    batch = batch_without_records(header)
    found = valid_header(batch)
    assert len(batch) == 61
    assert numbers_of(found) == numbers_of(header)
    assert (found.record_count, found.attributes) == (0, LOG_APPEND_TIME)
    assert (found.base_timestamp_ms, found.max_timestamp_ms) == (NO_TIMESTAMP, 7000)
    assert not is_empty_run(found)  # it has a producer


def test_empty_run_has_the_bytes_of_a_batch_of_nobody() -> None:
    run = empty_run(Offset(7), Offset(9), LeaderEpoch(2))
    assert run[:17].hex(" ") == "00 00 00 00 00 00 00 07 00 00 00 31 00 00 00 02 02"
    assert run[21:].hex(" ") == " ".join(
        ["00 00 00 00 00 02"]  # no attributes, last offset delta
        + ["ff"] * 16  # no times
        + ["ff"] * 14  # no producer, no epoch, no sequence
        + ["00 00 00 00"]
    )
    check_crc(read_header(run), memoryview(run))


@pytest.mark.parametrize("last_offset", [7, 7 + MAX_OFFSET_DELTA])
def test_empty_run_covers_one_offset_or_as_many_as_a_batch_can(last_offset: int) -> None:
    header = valid_header(empty_run(Offset(7), Offset(last_offset), LeaderEpoch(2)))
    assert (header.base_offset, header.last_offset) == (7, last_offset)
    assert is_empty_run(header)


def test_end_of_a_run_is_a_run() -> None:
    header = valid_header(empty_run(Offset(7), Offset(9), LeaderEpoch(2)))
    assert run_from(header, Offset(7)) == empty_run(Offset(7), Offset(9), LeaderEpoch(2))
    assert run_from(header, Offset(9)) == empty_run(Offset(9), Offset(9), LeaderEpoch(2))


def test_batches_with_records_or_of_control_are_no_runs() -> None:
    header = valid_header(empty_run(Offset(7), Offset(9), LeaderEpoch(2)))
    assert not is_empty_run(header._replace(record_count=1))
    assert not is_empty_run(header._replace(producer_id=0))
    assert not is_empty_run(header._replace(attributes=CONTROL))
