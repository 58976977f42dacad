"""EIO of a read: a batch is damaged, as by a flipped bit, and the log goes on (0089)."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, UnreadableBatch
from tidemark_broker.kafka_wire.records.record_batch import read_records, split_batches
from tidemark_broker.log.cleaner import Compaction
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.errors import LocalLogCorrupt, StorageFailed
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import LeaderEpoch, Offset

from tests.support.compacted_log_fixtures import COMPACTED, plan_of, put, seal
from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import ALL, append, batch_of, open_log, produced_batch, values_of

BATCH_BYTES = len(batch_of(b"a").data)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyDisk) -> PartitionLog:
    """Five batches of a record each; a byte of the third cannot be read."""
    log = open_log(tmp_path / "log", disk)
    for value in (b"a", b"b", b"c", b"d", b"e"):
        append(log, value, timestamp_ms=1_000 + log.log_end_offset)
    bad_byte = 3 * BATCH_BYTES - 1
    disk.bad_sectors[log.segments[0].path] = range(bad_byte, bad_byte + 1)
    return log


def test_what_cannot_be_read_is_told_and_the_log_goes_on(log: PartitionLog) -> None:
    with pytest.raises(UnreadableBatch, match=r"unreadable record batch: .*Input/output error"):
        log.read(2, max_bytes=10, end_offset=ALL)
    append(log, b"f")
    log.flush()
    assert (log.failure, log.log_end_offset, log.recovery_point) == ("", 6, 6)


def values_in(data: bytes) -> list[bytes | None]:
    batches = split_batches(memoryview(data), max_batch_bytes=len(data))
    return [record.value for batch in batches for record in read_records(batch.data)]


def test_those_before_it_are_served_though_a_reader_takes_many(log: PartitionLog) -> None:
    assert values_in(log.read(0, max_bytes=10**6, end_offset=ALL)) == [b"a"]
    assert values_in(log.read(3, max_bytes=10**6, end_offset=ALL)) == [b"d"]


def test_a_kernel_that_stops_short_before_it_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does at the end of the file, where there is nothing more: they must not be mixed up."""
    (tmp_path / "file").write_bytes(b"readable, unreadable")
    file = OsDisk().open(tmp_path / "file")
    assert file.read_at(10, 100) == b"unreadable"
    whole_read = os.pread

    def pread(descriptor: int, size_bytes: int, position: int) -> bytes:
        if position >= 8:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole_read(descriptor, min(size_bytes, 8 - position), position)

    monkeypatch.setattr(os, "pread", pread)
    assert file.read_at(0, 8) == b"readable"
    with pytest.raises(OSError, match="Input/output error"):
        file.read_at(0, 20)


def test_any_other_error_of_a_read_ends_all_writing(log: PartitionLog, disk: FaultyDisk) -> None:
    disk.io_failure["read_at"] = errno.ENXIO
    with pytest.raises(StorageFailed, match="cannot read"):
        log.read(0, max_bytes=10, end_offset=ALL)
    disk.io_failure.clear()
    with pytest.raises(StorageFailed):
        append(log, b"f")


def test_the_log_is_cut_before_it(log: PartitionLog, disk: FaultyDisk) -> None:
    assert log.truncate_before_corruption(4) == 3
    assert log.log_end_offset == 2
    disk.bad_sectors.clear()  # what is written there anew, a drive puts elsewhere
    append(log, b"C")
    assert values_of(log) == [(0, b"a"), (1, b"b"), (2, b"C")]


def test_a_scan_asks_a_failing_drive_no_more_often_than_it_must(
    log: PartitionLog, disk: FaultyDisk
) -> None:
    """Each time it may take seconds, on the broker's loop."""
    log.truncate_before_corruption(4)
    assert disk.unreadable_reads <= 2, "for what lies ahead, and for the batch itself"


def test_readers_ask_a_failing_drive_no_more_often_than_they_must(
    log: PartitionLog, disk: FaultyDisk
) -> None:
    for _ in range(30):
        for offset in (0, 1):
            assert log.read(offset, max_bytes=10**6, end_offset=ALL)
        with pytest.raises(CorruptBatch):
            log.read(2, max_bytes=10**6, end_offset=ALL)
    assert disk.unreadable_reads <= 2 + 60 / 16 + 1
    disk.bad_sectors.clear()  # it passed
    for _ in range(64):
        with contextlib.suppress(CorruptBatch):
            log.read(2, max_bytes=10**6, end_offset=ALL)
    assert values_of(log)[2] == (2, b"c")


def test_damage_in_what_retention_deleted_since_is_looked_for_in_all_that_is_left(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "log", settings=LogSettings(segment_bytes=BATCH_BYTES))
    for value in (b"a", b"b", b"c"):
        append(log, value)
    log.advance_log_start(Offset(1))
    log.delete_segments_below(Offset(1))
    assert log.truncate_before_corruption(Offset(0)) == 2
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_a_snapshot_of_producers_that_cannot_be_read_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log tells the same."""
    log = open_log(tmp_path / "log")
    for sequence in range(3):
        log.append_as_leader([produced_batch(sequence)], leader_epoch=LeaderEpoch(0))
    log.close()
    whole_read = OsDisk.read

    def read(disk: OsDisk, path: Path) -> bytes:
        if path.name.startswith("0") and path.suffix not in (".index", ".timeindex"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole_read(disk, path)

    monkeypatch.setattr(OsDisk, "read", read)
    again = open_log(log.directory, recovery_point=None)
    assert again.producers.ids == {7}


def test_a_cut_that_meets_it_changes_nothing(log: PartitionLog) -> None:
    with pytest.raises(CorruptBatch):
        log.truncate_to(2)
    assert (log.failure, log.log_end_offset) == ("", 5)


def test_a_look_up_by_time_says_where(log: PartitionLog) -> None:
    assert log.offset_for_timestamp(1_001) == (1, 1_001)
    with pytest.raises(LocalLogCorrupt) as met:
        log.offset_for_timestamp(1_002)
    assert met.value.offset == 4, "the last of the segment: it is in there"
    assert log.failure == ""


def test_compaction_says_where(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "log", disk, settings=COMPACTED)
    for number in range(4):
        put(log, ("key", f"{number}"))
    seal(log)
    size_bytes = log.segments[0].size_bytes
    disk.bad_sectors[log.segments[0].path] = range(size_bytes - 1, size_bytes)
    plan = plan_of(log, ALL, 10**9)
    assert plan is not None
    compaction = Compaction(OsDisk(), log.directory, plan, COMPACTED, now_ms=10**9, producer_ids=())
    with pytest.raises(UnreadableBatch):
        list(compaction.steps())
    assert compaction.reached_offset <= 3
    assert log.failure == ""


def test_compaction_says_where_also_when_it_reads_again(tmp_path: Path, disk: FaultyDisk) -> None:
    """It said the end of all that it had read the first time."""
    log = open_log(tmp_path / "log", disk, settings=COMPACTED)
    for number in range(8):
        put(log, (f"key-{number % 2}", f"{number}"))
        if number % 4 == 3:
            seal(log)
    plan = plan_of(log, ALL, 10**9)
    assert plan is not None
    compaction = Compaction(OsDisk(), log.directory, plan, COMPACTED, now_ms=10**9, producer_ids=())
    list(compaction._record_keys())
    disk.bad_sectors[log.segments[0].path] = range(1)
    with pytest.raises(UnreadableBatch):
        list(compaction._rewrite())
    assert compaction.reached_offset == 0


def test_a_start_that_meets_it_does_not_take_it_for_the_end_of_the_log(
    log: PartitionLog, disk: FaultyDisk
) -> None:
    """It may pass, and records that no other has would be gone: nothing is opened."""
    with pytest.raises(StorageFailed, match=r"cannot open in .*Input/output error"):
        open_log(log.directory, disk)
    disk.bad_sectors.clear()
    assert open_log(log.directory).log_end_offset == 5
