"""One log on a bad disk: full, failing, and what is left afterwards."""

import errno
import threading
from pathlib import Path

import pytest
from tidemark_broker.log.errors import DiskFull, StorageFailed
from tidemark_broker.log.partition_log import LogSettings

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import ALL, append, batch_of, open_log, read_all, values_of

BATCH_BYTES = len(batch_of(b"a").data)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.mark.parametrize("space_bytes", [0, 1, 16, 17, BATCH_BYTES, 2 * BATCH_BYTES - 1])
def test_an_append_that_does_not_fit_leaves_no_trace(tmp_path, disk, space_bytes):  # S10
    log = open_log(tmp_path / "log", disk)
    append(log, b"a")
    before = read_all(log)
    disk.space_bytes = space_bytes
    with pytest.raises(DiskFull, match="nothing was written"):
        log.append_as_leader([batch_of(b"b"), batch_of(b"c")], leader_epoch=0)
    assert (log.log_end_offset, read_all(log)) == (1, before)
    assert (log.directory / f"{0:020d}.log").read_bytes() == before
    disk.space_bytes = None
    append(log, b"d")
    assert values_of(log) == [(0, b"a"), (1, b"d")]
    assert values_of(open_log(log.directory)) == [(0, b"a"), (1, b"d")]


def test_a_followers_epoch_is_taken_back_with_its_batches(tmp_path, disk):
    leader, log = open_log(tmp_path / "leader"), open_log(tmp_path / "log", disk)
    append(leader, b"a", epoch=1)
    append(leader, b"b", epoch=6)
    first = leader.read(0, max_bytes=1, end_offset=1)
    log.append_as_follower(memoryview(first))
    disk.space_bytes = 40  # the epochs fit, the batch does not
    with pytest.raises(DiskFull):
        log.append_as_follower(memoryview(leader.read(1, max_bytes=1, end_offset=ALL)))
    assert log.epoch_entries == ((1, 0),)
    disk.space_bytes = None
    append(log, b"c", epoch=2)
    assert open_log(log.directory).epoch_entries == ((1, 0), (2, 1))


def test_an_epoch_that_cannot_be_written_is_not_taken(tmp_path, disk):
    log = open_log(tmp_path / "log", disk)
    append(log, b"a", epoch=1)
    disk.space_bytes = 3
    with pytest.raises(DiskFull):
        append(log, b"b", epoch=2)
    assert (log.latest_epoch, log.log_end_offset) == (1, 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENFILE])
def test_a_segment_that_cannot_be_rolled_leaves_the_log_as_it_was(tmp_path, disk, number):
    log = open_log(tmp_path / "log", disk, settings=LogSettings(segment_bytes=BATCH_BYTES))
    append(log, b"a")
    disk.io_failure["open"] = number
    with pytest.raises(DiskFull):
        append(log, b"b")
    disk.io_failure.clear()
    append(log, b"b")
    assert values_of(log) == [(0, b"a"), (1, b"b")]


def test_a_log_reopens_and_truncates_on_a_full_disk(tmp_path, disk):
    log = open_log(tmp_path / "log", disk)
    for epoch, value in enumerate((b"a", b"b", b"c")):
        append(log, value, epoch=epoch)
    (log.directory / "leader-epoch-checkpoint").write_bytes(b"")
    disk.space_bytes = 0
    log = open_log(log.directory, disk)
    assert log.truncate_to(2) == 1
    assert values_of(log) == [(0, b"a"), (1, b"b")]
    with pytest.raises(DiskFull):
        append(log, b"d", epoch=4)
    disk.space_bytes = None
    append(log, b"d", epoch=4)
    assert open_log(log.directory).epoch_entries == ((0, 0), (1, 1), (4, 2))


def test_an_io_error_on_append_ends_all_writing_but_not_reading(tmp_path, disk):
    log = open_log(tmp_path / "log", disk)
    append(log, b"a")
    disk.io_failure["write_at"] = errno.EIO
    with pytest.raises(StorageFailed, match="Input/output error"):
        append(log, b"b")
    disk.io_failure.clear()
    assert values_of(log) == [(0, b"a")]
    for write in (
        lambda: append(log, b"b"),
        lambda: log.truncate_to(0),
        lambda: log.assign_epoch(9, 1),
        log.flush,
        log.close,
    ):
        with pytest.raises(StorageFailed, match="accepts no more writes: could not append"):
            write()


def test_a_failed_append_that_cannot_be_cut_off_ends_all_writing(tmp_path, disk):
    log = open_log(tmp_path / "log", disk)
    append(log, b"a")
    disk.space_bytes = 20
    disk.io_failure["truncate"] = errno.EIO
    with pytest.raises(StorageFailed):
        append(log, b"b")
    disk.io_failure.clear()
    disk.space_bytes = None
    with pytest.raises(StorageFailed, match="could not truncate a failed append"):
        append(log, b"b")
    assert values_of(open_log(log.directory)) == [(0, b"a")]


def test_a_failed_sync_ends_all_writing(tmp_path, disk):  # S8
    log = open_log(tmp_path / "log", disk)
    append(log, b"a")
    disk.io_failure["sync"] = errno.EIO
    with pytest.raises(StorageFailed, match="cannot flush"):
        log.flush()
    disk.io_failure.clear()
    with pytest.raises(StorageFailed):
        append(log, b"b")
    assert log.recovery_point == 0


@pytest.mark.parametrize("operation", ["open", "read_at", "remove"])
def test_an_io_error_while_reopening_says_where(tmp_path, disk, operation):
    log = open_log(tmp_path / "log")
    append(log, b"a")
    (log.directory / "x.deleted").touch()
    disk.io_failure[operation] = errno.EIO
    with pytest.raises(StorageFailed, match=r"cannot open in .*/log: .*Input/output error"):
        open_log(log.directory, disk)


def test_a_second_flush_waits_for_what_the_first_one_syncs(tmp_path):  # S11
    """Its own files are synced sooner; but the segment's directory entry is not there yet."""
    entered, may_go_on = threading.Event(), threading.Event()

    class SlowDirectory(FaultyDisk):
        def sync_directory(self, path: Path) -> None:
            entered.set()
            assert may_go_on.wait(10)
            super().sync_directory(path)

    log = open_log(tmp_path, SlowDirectory())
    append(log, b"a")
    first = threading.Thread(target=log.flush)
    first.start()
    assert entered.wait(10)
    append(log, b"b")
    second = threading.Thread(target=log.flush)
    second.start()
    second.join(0.2)
    assert log.recovery_point == 0
    may_go_on.set()
    for thread in (first, second):
        thread.join(10)
    assert log.recovery_point == 2


def test_the_name_of_a_new_segment_is_synced_before_its_records_count(tmp_path):  # S11
    synced: list[list[str]] = []

    class Remembering(FaultyDisk):
        def sync_directory(self, path: Path) -> None:
            synced.append(sorted(self.list_names(path)))
            super().sync_directory(path)

    log = open_log(tmp_path / "log", Remembering(), settings=LogSettings(segment_bytes=BATCH_BYTES))
    append(log, b"a")
    log.flush()
    append(log, b"b")
    synced.clear()
    log.flush()
    assert log.recovery_point == 2
    assert any(f"{1:020}.log" in names for names in synced)


def test_a_flush_that_waited_for_one_that_failed_fails_too(tmp_path):  # S8
    """The kernel tells a lost write once: the second sync of the file says that all is well."""
    entered, may_go_on = threading.Event(), threading.Event()

    class FailsOnce(FaultyDisk):
        def check(self, operation: str, path: Path) -> None:
            if operation == "sync" and path.suffix == ".log" and not entered.is_set():
                entered.set()
                assert may_go_on.wait(10)
                raise OSError(errno.EIO, "Input/output error")
            super().check(operation, path)

    log = open_log(tmp_path, FailsOnce())
    append(log, b"a")
    failures: list[Exception] = []

    def flush() -> None:
        try:
            log.flush()
        except StorageFailed as error:
            failures.append(error)

    threads = [threading.Thread(target=flush) for _ in range(2)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    may_go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(failures) == 2
    assert log.recovery_point == 0
    with pytest.raises(StorageFailed):
        log.close()
