"""Retention: whole segments from the front, by age and size, never past the high watermark."""

import dataclasses
import gc
import weakref
from pathlib import Path

import pytest
from tidemark_broker.log.errors import OffsetOutOfRange
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.log.recovery import PreviousRun
from tidemark_broker.log.segment_list import retained_start
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import ALL, TOPIC_ID, append, batch_of, open_log, values_of

SMALL = LogSettings(segment_bytes=150, retention_ms=1000)  # two batches of 70 bytes a segment
HOUR_MS = 3_600_000


def log_of_six(path, settings=SMALL, disk=None) -> PartitionLog:
    """Segments 0, 2 and 4 of two batches each; timestamps 1000, 2000 ... 6000."""
    log = open_log(path, disk, settings=settings)
    for number in range(6):
        append(log, b"%d" % number, timestamp_ms=1000 * (number + 1))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    return log


def retain(log: PartitionLog, *, now_ms: int, high_watermark: int | None = None) -> int:
    """As a broker does it: raise, (checkpoint,) delete. Segments deleted."""
    watermark = log.log_end_offset if high_watermark is None else high_watermark
    log.advance_log_start(
        retained_start(
            log.segments,
            log.settings,
            log_start_offset=log.log_start_offset,
            high_watermark=watermark,
            now_ms=now_ms,
        )
    )
    return log.delete_segments_below(log.log_start_offset)


def files_of(log: PartitionLog) -> list[str]:
    return sorted(path.name for path in log.directory.glob("*.log"))


def test_segments_older_than_the_limit_go_by_their_newest_record(tmp_path):
    log = log_of_six(tmp_path)
    assert retain(log, now_ms=3000) == 0  # the newest of segment 0 is from 2000: 1000 is not over
    assert retain(log, now_ms=3001) == 1
    assert values_of(log) == [(2, b"2"), (3, b"3"), (4, b"4"), (5, b"5")]
    assert files_of(log) == ["00000000000000000002.log", "00000000000000000004.log"]
    with pytest.raises(OffsetOutOfRange):
        log.read(1, max_bytes=100, end_offset=ALL)


def test_what_readers_remember_keeps_no_space_of_what_went(tmp_path):
    """An open file's blocks are the kernel's to give back, and it does not."""
    log = log_of_six(tmp_path)
    log.read(4, max_bytes=1000, end_offset=ALL)
    gone = [weakref.ref(segment.file) for segment in log.segments]
    assert retain(log, now_ms=HOUR_MS) == 3
    gc.collect()
    assert [file() for file in gone] == [None, None, None]


def test_the_active_segment_is_rolled_when_all_of_it_is_due(tmp_path):
    log = log_of_six(tmp_path)
    assert retain(log, now_ms=HOUR_MS) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (6, 6, 0)
    assert files_of(log) == ["00000000000000000006.log"]
    assert retain(log, now_ms=HOUR_MS) == 0
    append(log, b"next", timestamp_ms=HOUR_MS)
    assert values_of(log) == [(6, b"next")]


@pytest.mark.parametrize(("high_watermark", "start"), [(0, 0), (1, 0), (2, 2), (5, 4), (6, 6)])
def test_nothing_past_the_high_watermark_goes(tmp_path, high_watermark, start):  # I1
    log = log_of_six(tmp_path)
    retain(log, now_ms=HOUR_MS, high_watermark=high_watermark)
    assert log.log_start_offset == start


def test_by_size_segments_go_while_enough_is_left(tmp_path):
    settings = dataclasses.replace(SMALL, retention_ms=-1, retention_bytes=280)
    log = log_of_six(tmp_path, settings)
    size_bytes = log.size_bytes
    assert retain(log, now_ms=HOUR_MS) == (1 if size_bytes * 2 // 3 >= 280 else 0)
    log.settings = dataclasses.replace(settings, retention_bytes=log.size_bytes + 1)
    assert retain(log, now_ms=HOUR_MS) == 0
    log.settings = dataclasses.replace(settings, retention_bytes=0)
    retain(log, now_ms=HOUR_MS)
    assert log.size_bytes == 0


def test_without_delete_in_the_policy_or_limits_nothing_goes(tmp_path):
    log = log_of_six(tmp_path, dataclasses.replace(SMALL, deletes=False, compacts=True))
    assert retain(log, now_ms=HOUR_MS) == 0
    log.settings = dataclasses.replace(SMALL, retention_ms=-1)
    assert retain(log, now_ms=HOUR_MS) == 0


def test_records_without_timestamps_are_as_old_as_their_file(tmp_path):
    log = open_log(tmp_path, settings=SMALL)
    append(log, b"a", timestamp_ms=-1)
    written_ms = int(log.segments[0].path.stat().st_ctime * 1000)
    assert retain(log, now_ms=written_ms + 900) == 0
    assert retain(log, now_ms=written_ms + 2000) == 1


def test_epochs_of_what_went_are_forgotten_but_the_last_of_them(tmp_path):
    log = open_log(tmp_path, settings=SMALL)
    for number, epoch in enumerate((1, 1, 2, 2, 5, 5)):
        append(log, b"%d" % number, epoch=epoch, timestamp_ms=1000 * (number + 1))
    retain(log, now_ms=3001)
    assert log.epoch_entries == ((1, 1), (2, 2), (5, 4))
    retain(log, now_ms=HOUR_MS)
    assert log.epoch_entries == ((5, 5),)
    log.close()
    again = open_log(tmp_path, recovery_point=None, settings=SMALL)
    assert (again.log_start_offset, again.epoch_entries) == (6, ((5, 5),))


def reopened(log: PartitionLog, *, log_start_offset: int, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog(
        FaultyDisk(),
        log.directory,
        topic="orders",
        topic_id=TOPIC_ID,
        partition=0,
        settings=SMALL,
        previous=PreviousRun(recovery_point, log_start_offset),
    )


def test_a_missing_beginning_below_the_checkpointed_log_start_is_no_damage(tmp_path):
    """Deletions reached the disk out of order before the power went."""
    log = log_of_six(tmp_path)
    (tmp_path / "00000000000000000002.log").unlink()
    again = reopened(log, log_start_offset=4)
    assert values_of(again) == [(4, b"4"), (5, b"5")]
    assert again.recovery.only_a_torn_tail
    assert not (tmp_path / "00000000000000000000.log").exists()


def test_a_missing_segment_behind_the_log_start_is_damage(tmp_path):
    log = log_of_six(tmp_path)
    (tmp_path / "00000000000000000002.log").unlink()
    again = reopened(log, log_start_offset=1)
    assert values_of(again) == [(1, b"1")]
    assert not again.recovery.only_a_torn_tail


def test_a_damaged_segment_below_the_log_start_costs_nothing(tmp_path):
    log = log_of_six(tmp_path)
    path = tmp_path / "00000000000000000002.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    again = reopened(log, log_start_offset=4)
    assert values_of(again) == [(4, b"4"), (5, b"5")]


@pytest.mark.parametrize("base_offset", [0, 2])
def test_an_epoch_below_the_log_start_says_nothing_of_what_comes_behind(tmp_path, base_offset):
    """Seed 41236 of the simulator: a bit had flipped in it, and a power loss took the epochs' file,
    so that epochs came from the batches. A record behind it had an older epoch, and was cut off."""
    log = log_of_six(tmp_path)
    (tmp_path / "leader-epoch-checkpoint").unlink()
    path = tmp_path / f"{base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[12] ^= 1  # no checksum covers it
    path.write_bytes(data)
    again = reopened(log, log_start_offset=4)
    assert values_of(again) == [(4, b"4"), (5, b"5")]
    assert (again.recovery.reason, again.latest_epoch) == ("", log.latest_epoch)


def test_a_log_whose_segments_are_all_gone_begins_at_its_log_start(tmp_path):
    """I4: everything was deleted, and the new active segment's entry did not reach the disk."""
    log = log_of_six(tmp_path)
    for path in tmp_path.glob("*.log"):
        path.unlink()
    again = reopened(log, log_start_offset=6)
    assert (again.log_start_offset, again.log_end_offset) == (6, 6)


def test_a_full_disk_does_not_stop_deletion(tmp_path):
    disk = FaultyDisk()
    log = log_of_six(tmp_path, disk=disk)
    disk.space_bytes = 0
    assert retain(log, now_ms=HOUR_MS) == 3
    disk.space_bytes = None
    append(log, b"next", epoch=0)
    assert values_of(log) == [(6, b"next")]


def test_an_empty_active_segment_is_not_made_again_under_its_own_name(tmp_path: Path) -> None:
    """A truncation to a segment's start leaves it empty. Made anew and then deleted with the old
    ones, every later record would be written into a deleted file (found by hypothesis)."""
    size_bytes = batch_of(b"x").header.size_bytes
    settings = LogSettings(segment_bytes=2 * size_bytes)
    log = open_log(tmp_path / "log", settings=settings)
    for _ in range(3):
        append(log, b"x")
    log.truncate_to(Offset(2))
    log.advance_log_start(Offset(2))
    assert log.delete_segments_below(Offset(2)) == 1
    append(log, b"kept", epoch=1)
    again = open_log(
        tmp_path / "log",
        recovery_point=log.recovery_point,
        settings=settings,
        log_start_offset=Offset(2),
    )
    assert values_of(again) == [(2, b"kept")]
