"""Compaction meets a flipped bit: it ends, or it leaves what it would have left."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import (
    Record,
    read_header,
    read_records,
    split_batches,
)
from tidemark_broker.log.cleaner import CleanedSegments
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_protocol.ids import LeaderEpoch
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tests.support.compacted_log_fixtures import (
    COMPACTED,
    NOW_MS,
    compact,
    compaction_of,
    keyed_batch,
    plan_of,
    put,
    seal,
)
from tests.support.log_fixtures import NoSyncDisk, open_log

DISK = NoSyncDisk()
EPOCH = range(12, 16)  # of a batch: no checksum covers it
ONE_SEGMENT = replace(COMPACTED, segment_bytes=100_000)


def a_log(directory: Path) -> PartitionLog:
    """Compacted up to offset 2: a run and a batch that stayed. Then two batches and an active
    segment."""
    log = open_log(directory, DISK, settings=ONE_SEGMENT)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    seal(log)
    compact(log, DISK)
    assert log.cleaned_to == 2
    put(log, ("b", "1"))
    put(log, ("b", "2"))
    seal(log)
    return log


def rewritten_by(log: PartitionLog, max_keys: int) -> Iterator[bytes]:
    """What one pass puts in the place of old segments, in their order. Nothing is taken in. Raises
    CorruptBatch."""
    plan = plan_of(log, log.log_end_offset, NOW_MS)
    assert plan is not None
    compaction = compaction_of(log, DISK, plan, now_ms=NOW_MS, max_keys=max_keys)
    for step in compaction.steps():
        if isinstance(step, CleanedSegments):
            yield step.path.read_bytes()
            step.path.unlink()


def flipped(data: bytes, bit: int) -> bytearray:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return changed


def records_left(log: PartitionLog) -> list[Record]:
    """By one pass. Raises CorruptBatch."""
    (data,) = rewritten_by(log, max_keys=9)
    batches = split_batches(memoryview(data), max_batch_bytes=len(data))
    return [record for batch in batches for record in read_records(batch.data)]


def without_checksum(data: bytes) -> set[int]:
    """Positions of leader epochs."""
    found, begin = set(), 0
    for batch in split_batches(memoryview(data), max_batch_bytes=len(data)):
        found |= {begin + at for at in EPOCH}
        begin += len(batch.data)
    return found


def test_no_bit_that_flips_takes_a_record_along(tmp_path: Path) -> None:
    """I10. Seed 37001529: the count of a batch of one record became 0. That made it an empty run,
    and those were left out unread."""
    log = a_log(tmp_path)
    expected = records_left(log)
    assert [(record.offset, record.key) for record in expected] == [(1, b"a"), (3, b"b")]
    for segment in log.segments[:-1]:
        intact = segment.path.read_bytes()
        not_noticed = set()
        for bit in range(8 * len(intact)):
            segment.path.write_bytes(flipped(intact, bit))
            try:
                assert records_left(log) == expected, f"bit {bit} of {segment.path.name}"
                not_noticed.add(bit // 8)
            except CorruptBatch:
                continue
        assert not_noticed <= without_checksum(intact)
        segment.path.write_bytes(intact)


def put_by(log: PartitionLog, producer_id: int, *pairs: tuple[str, str | None]) -> None:
    batch = keyed_batch(*pairs, producer=(producer_id, 0))
    log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))


def rewritten_before_corruption(log: PartitionLog, max_keys: int) -> list[bytes]:
    found = []
    with suppress(CorruptBatch):
        for data in rewritten_by(log, max_keys):
            found.append(data)
    return found


def is_last_of(producer_id: int, segment: bytes) -> bool:
    header = read_header(segment)
    return (header.producer_id, header.record_count) == (producer_id, 0)


@pytest.mark.parametrize("max_keys", [9, 2])
def test_no_bit_that_flips_costs_a_producer_its_last_batch_elsewhere(
    tmp_path: Path, max_keys: int
) -> None:
    """I8. A bit flipped in the producer id of a batch that was clean, or past the keys that fit,
    made it the last one of a neighbour's: the neighbour's own, in a segment before, was left out
    and taken in before the pass came to the damage."""
    log = open_log(tmp_path, DISK, settings=COMPACTED)
    put_by(log, 4, ("a", "1"))
    seal(log)
    if max_keys == 9:
        put_by(log, 5, ("b", "1" * 300))
        seal(log)
        compact(log, DISK)
        assert log.cleaned_to == 2
    put(log, ("a", "2"), ("c", "1"))
    seal(log)
    if max_keys == 2:
        put_by(log, 5, ("b", "1" * 300))
        seal(log)
    expected = list(rewritten_by(log, max_keys))
    assert is_last_of(4, expected[0])
    (segment,) = (each for each in log.segments if b"1" * 300 in each.path.read_bytes())
    intact = segment.path.read_bytes()
    for bit in range(8 * HEADER_BYTES):
        segment.path.write_bytes(flipped(intact, bit))
        found = rewritten_before_corruption(log, max_keys)
        assert found == expected[: len(found)], f"bit {bit}"
    segment.path.write_bytes(intact)
    assert list(rewritten_by(log, max_keys)) == expected
