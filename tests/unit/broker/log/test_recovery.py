"""Reopening after a kill: what is verified, what is cut, and how it is reported."""

import subprocess
import sys
import textwrap

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk import OsDisk, OsFile
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.log.recovery import RecoveryReport
from tidemark_broker.log.segment import SCAN_BYTES

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import FIRST, append, batch_of, open_log, read_all, values_of

BATCH_BYTES = len(batch_of(b"a").data)
TWO_A_SEGMENT = LogSettings(segment_bytes=BATCH_BYTES * 2)


@pytest.fixture
def log(tmp_path):
    """Batches 0 to 6 in segments 0, 2, 4, 6; a new epoch with every second one."""
    log = open_log(tmp_path / "log", settings=TWO_A_SEGMENT)
    for number in range(7):
        append(log, b"%d" % number, epoch=number // 2)
    return log


def segment(log, base_offset):
    return log.directory / f"{base_offset:020d}.log"


def flip(path, position, mask=1):
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def reopen(log, recovery_point=0):
    return open_log(log.directory, recovery_point=recovery_point, settings=TWO_A_SEGMENT)


def test_a_whole_log_is_verified_and_kept(log):
    reopened = reopen(log)
    assert read_all(reopened) == read_all(log)
    assert reopened.recovery == RecoveryReport(verified_segments=4)
    assert (reopened.recovery_point, reopened.epoch_entries) == (0, log.epoch_entries)


def test_only_segments_from_the_recovery_point_on_are_verified(log):
    flip(segment(log, 2), BATCH_BYTES - 1)
    reopened = reopen(log, recovery_point=5)
    assert (reopened.log_end_offset, reopened.recovery.verified_segments) == (7, 2)


def test_a_torn_tail_is_cut_and_told_from_damage(log):
    append(log, b"7", epoch=3)
    path = segment(log, 6)
    path.write_bytes(path.read_bytes()[:-1])
    reopened = reopen(log)
    assert values_of(reopened) == [(n, b"%d" % n) for n in range(7)]
    report = reopened.recovery
    assert (report.truncated_bytes, report.removed_segments) == (BATCH_BYTES - 1, 0)
    assert report.only_a_torn_tail
    assert f"{BATCH_BYTES} bytes, found only {BATCH_BYTES - 1}" in report.reason
    append(reopened, b"new", epoch=4)
    assert values_of(reopen(reopened))[-1] == (7, b"new")


@pytest.mark.parametrize("bit", range(8, 31))  # of the length: those that point past the file
@pytest.mark.parametrize("batches_behind", [0, 1, 3])
def test_a_flipped_bit_in_a_length_is_damage_although_it_looks_like_a_torn_tail(
    tmp_path, bit, batches_behind
):
    """A broker that took it for a torn tail would lead without what was acknowledged (I6)."""
    log = open_log(tmp_path / "log")
    for number in range(1 + batches_behind):
        append(log, b"%d" % number, epoch=0)
    flip(segment(log, 0), 8 + 3 - bit // 8, 1 << bit % 8)
    reopened = open_log(log.directory)
    assert reopened.log_end_offset == 0
    assert not reopened.recovery.only_a_torn_tail


@pytest.mark.parametrize("torn_bytes", [*range(1, 10), 60, 61, 65])
def test_a_damaged_length_before_a_torn_tail_is_damage(tmp_path, torn_bytes):
    """A write under way at the kill does not hide it, however short it was cut."""
    log = open_log(tmp_path / "log")
    append(log, b"damaged", epoch=0)
    retained_bytes = log.size_bytes
    append(log, b"torn", epoch=0)
    path = segment(log, 0)
    path.write_bytes(path.read_bytes()[: retained_bytes + torn_bytes])
    flip(path, 8, 0x40)
    reopened = open_log(log.directory)
    assert reopened.log_end_offset == 0
    assert not reopened.recovery.only_a_torn_tail


def test_a_reader_of_a_damaged_length_does_not_read_what_lies_behind(tmp_path):
    """It runs on the loop; whether a tail was torn only recovery asks."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    append(log, b"damaged", epoch=0)
    for _ in range(8):
        append(log, bytes(SCAN_BYTES), epoch=0)
    flip(segment(log, 0), 8, 0x40)
    disk.done.clear()
    with pytest.raises(CorruptBatch):
        log.read(FIRST, max_bytes=1000, end_offset=log.log_end_offset)
    assert len(disk.done) <= 3


def test_a_large_torn_batch_that_holds_what_looks_like_batches_is_torn(tmp_path):
    log = open_log(tmp_path / "log")
    append(log, b"kept", epoch=0)
    successor = (2).to_bytes(8, "big")
    append(log, successor * (3 * SCAN_BYTES // len(successor) + 1), epoch=0)
    path = segment(log, 0)
    path.write_bytes(path.read_bytes()[:-5])
    reopened = open_log(log.directory)
    assert (reopened.log_end_offset, reopened.recovery.only_a_torn_tail) == (1, True)


def test_a_damaged_length_is_seen_over_the_border_of_two_pieces(tmp_path):
    for size in range(SCAN_BYTES - 64, SCAN_BYTES + 16):
        path = tmp_path / f"log-{size}"
        log = open_log(path)
        append(log, bytes(size), epoch=0)
        append(log, b"behind", epoch=0)
        flip(segment(log, 0), 8, 0x40)
        assert not open_log(path).recovery.only_a_torn_tail


def test_a_flipped_bit_cuts_there_and_removes_all_later_segments(log):
    flip(segment(log, 2), 2 * BATCH_BYTES - 1)
    reopened = reopen(log)
    assert values_of(reopened) == [(n, b"%d" % n) for n in range(3)]
    assert sorted(p.name for p in log.directory.glob("*.log")) == [
        segment(log, 0).name,
        segment(log, 2).name,
    ]
    report = reopened.recovery
    assert (report.truncated_bytes, report.removed_segments) == (4 * BATCH_BYTES, 2)
    assert not report.only_a_torn_tail
    assert "CRC32C" in report.reason
    assert reopened.epoch_entries == ((0, 0), (1, 2))


def test_a_bit_flipped_in_the_epoch_of_the_last_batch_is_cut(log):
    flip(segment(log, 6), 15, mask=8)  # outside the CRC
    assert reopen(log).log_end_offset == 6


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\x00" * 30])
def test_epochs_are_derived_from_batches_where_the_checkpoint_is_lost(log, content):
    path = log.directory / "leader-epoch-checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    reopened = reopen(log, recovery_point=7)
    assert reopened.epoch_entries == ((0, 0), (1, 2), (2, 4), (3, 6))
    assert reopened.recovery.verified_segments == 4
    assert checkpoint_formats.decode_epochs(path.read_bytes()) == [(0, 0), (1, 2), (2, 4), (3, 6)]


@pytest.mark.parametrize("recovery_point", [None, 7])
def test_epochs_of_a_flipped_checkpoint_are_not_believed(log, recovery_point):
    """Also after a clean stop. A start told the controller of epochs that nobody had granted."""
    if recovery_point is None:
        log.close()
    path = log.directory / "leader-epoch-checkpoint"
    path.write_bytes(path.read_bytes().replace(b"3 6", b"7 6"))
    reopened = reopen(log, recovery_point=recovery_point)
    assert reopened.epoch_entries == ((0, 0), (1, 2), (2, 4), (3, 6))
    assert reopened.log_end_offset == 7


def test_a_missing_segment_ends_the_log_before_it(log):
    segment(log, 2).unlink()
    reopened = reopen(log, recovery_point=7)
    assert (reopened.log_end_offset, reopened.recovery.removed_segments) == (2, 2)
    assert "expected a segment at offset 2, found one at 4" in reopened.recovery.reason


def test_damage_in_the_shape_of_a_trusted_segment_is_found_at_start(log):
    path = segment(log, 2)
    path.write_bytes(path.read_bytes()[:-3])
    reopened = reopen(log, recovery_point=7)
    assert reopened.log_end_offset == 3
    assert not reopened.recovery.only_a_torn_tail


def test_after_a_clean_stop_nothing_is_verified_and_indexes_are_read(log):
    log.close()
    reopened = reopen(log, recovery_point=None)
    assert read_all(reopened) == read_all(log)
    assert reopened.recovery == RecoveryReport()
    assert reopened.recovery_point == 7
    append(reopened, b"7", epoch=9)
    assert values_of(reopened)[-1] == (7, b"7")


@pytest.mark.parametrize("recovery_point", [None, 7])
@pytest.mark.parametrize(("base_offset", "kept"), [(2, 3), (6, 6)])
def test_a_flipped_count_of_offsets_neither_drops_segments_nor_moves_the_end(
    log, base_offset, kept, recovery_point
):
    """In a segment that is not verified, its last batch seemed to cover the segments behind it,
    which were removed as compaction's leftovers, and nothing was said of it."""
    log.close()
    path = segment(log, base_offset)
    flip(path, path.stat().st_size - BATCH_BYTES + 23)
    reopened = reopen(log, recovery_point=recovery_point)
    assert reopened.log_end_offset == kept
    assert "CRC32C" in reopened.recovery.reason


@pytest.mark.parametrize("corruption", ["missing", "short", "wild"])
def test_a_damaged_index_is_made_anew(log, corruption):
    log.close()
    for index in log.directory.glob("*index"):
        if corruption == "missing":
            index.unlink()
        else:
            index.write_bytes(b"\x7f" * (7 if corruption == "short" else 24))
    assert read_all(reopen(log, recovery_point=None)) == read_all(log)


def test_leftovers_are_removed(log):
    for name in ("a.tmp", "00000000000000000000.log.deleted", "x.swap", f"{99:020d}.index"):
        (log.directory / name).write_bytes(b"x")
    reopen(log)
    names = {path.name for path in log.directory.iterdir()}
    assert not {name for name in names if name.endswith((".tmp", ".deleted", ".swap"))}
    assert f"{99:020d}.index" not in names


class CountingDisk(OsDisk):
    """Remembers the largest read of a segment."""

    largest_read = 0

    def open(self, path, *, create=False):
        disk = self

        class CountingFile(OsFile):
            def read_at(self, position, size_bytes):
                disk.largest_read = max(disk.largest_read, size_bytes)
                return super().read_at(position, size_bytes)

        return CountingFile(path, create=create, sync_count=self.sync_count)


def test_recovery_reads_in_pieces_of_a_mebibyte(tmp_path):
    log = open_log(tmp_path / "log")
    append(log, b"x" * (3 * SCAN_BYTES))
    append(log, b"y" * (SCAN_BYTES - 100))
    append(log, b"z")
    disk = CountingDisk()
    reopened = open_log(log.directory, disk)
    assert reopened.log_end_offset == 3
    assert disk.largest_read == SCAN_BYTES


APPENDER = """
    import sys
    from pathlib import Path
    from tests.support.log_fixtures import append, open_log
    from tidemark_broker.log.partition_log import LogSettings
    log = open_log(Path(sys.argv[1]), settings=LogSettings(segment_bytes=200_000))
    while True:
        append(log, b"x" * 5000, b"y" * 5000, epoch=log.log_end_offset // 40)
        print(log.log_end_offset, flush=True)
"""


def test_what_was_appended_before_a_kill_is_there_after_it(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(APPENDER), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 200:
            break
    process.kill()
    reported = [int(line) for line in process.stdout if line.endswith("\n")]
    process.wait()
    log = open_log(tmp_path / "log")
    assert log.log_end_offset >= max([200, *reported])
    assert log.recovery.only_a_torn_tail
    assert [offset for offset, _ in values_of(log)] == list(range(log.log_end_offset))
