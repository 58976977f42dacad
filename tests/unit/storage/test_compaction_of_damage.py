"""Compaction meets a flipped bit: it ends, or it leaves what it would have left."""

from dataclasses import replace
from pathlib import Path

from tidemark_broker.storage.compaction import Compaction, Rewritten
from tidemark_broker.storage.errors import CorruptBatch
from tidemark_broker.storage.partition_log import PartitionLog
from tidemark_broker.storage.record_batch import Record, read_records, split_batches

from tests.unit.storage.compacted_logs import COMPACTED, NOW_MS, compact, plan_of, put, seal
from tests.unit.storage.small_logs import NoSyncDisk, open_log

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


def records_left(log: PartitionLog) -> list[Record]:
    """By one pass, whose segment is not taken in. Raises CorruptBatch."""
    plan = plan_of(log, log.log_end_offset, NOW_MS)
    assert plan is not None
    compaction = Compaction(
        DISK, log.directory, plan, log.settings, now_ms=NOW_MS, producer_ids=(), max_keys=9
    )
    (rewritten,) = (step for step in compaction.steps() if isinstance(step, Rewritten))
    data = rewritten.path.read_bytes()
    rewritten.path.unlink()
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
            flipped = bytearray(intact)
            flipped[bit // 8] ^= 1 << bit % 8
            with segment.path.open("r+b") as file:
                file.write(flipped)
            try:
                assert records_left(log) == expected, f"bit {bit} of {segment.path.name}"
                not_noticed.add(bit // 8)
            except CorruptBatch:
                continue
        assert not_noticed <= without_checksum(intact)
        with segment.path.open("r+b") as file:
            file.write(intact)
