"""Logs that come, go and are written down by the thousand: few syncs, and nothing done in vain."""

import errno
import gc
import time

import pytest
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.errors import StorageFailed
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import TOPIC_ID, append


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


def opened(path, disk=None):
    return LogManager.open(path, disk or FaultyDisk(), broker_id=3, settings=LogSettings())


def many(count):
    return [("many", TOPIC_ID, number) for number in range(count)]


def test_many_logs_are_made_with_one_sync_of_their_directory(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    disk.done.clear()
    directory.create_logs(many(5))
    renames = [at for at, done in enumerate(disk.done) if done[0] == "rename"]
    contents = [at for at, (kind, name) in enumerate(disk.done) if kind == "sync"]
    assert len(renames) == len(contents) == 5
    assert max(contents) < min(renames)
    assert [name for kind, name in disk.done[max(renames) :] if kind.startswith("sync")] == ["data"]
    directory.close()
    assert sorted(opened(path).logs) == [(TOPIC_ID, number) for number in range(5)]


def test_a_log_that_was_just_made_owes_no_sync_before_it_is_written_to(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    log = directory.create_log("orders", TOPIC_ID, 0)
    before = disk.sync_count.total
    log.flush()
    assert (disk.sync_count.total, log.owes_truncation) == (before, False)
    append(log, b"a")
    log.flush()
    assert disk.sync_count.total > before
    assert log.recovery_point == 1


def test_logs_that_fail_to_be_made_leave_those_that_were_there(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    directory.create_logs(many(2))
    disk.io_failure["sync_directory"] = errno.EIO
    with pytest.raises(StorageFailed, match=r"create many-2 \(2 logs\)"):
        directory.create_logs(many(4))
    assert sorted(directory.logs) == [(TOPIC_ID, 0), (TOPIC_ID, 1)]


def test_a_log_that_is_made_in_a_garbage_collection_breaks_no_checkpoint(path):
    """A collection runs finalizers, and between those other threads: workers that make logs."""
    directory = opened(path)
    another = directory.create_log("many", TOPIC_ID, 0)
    # Python keeps up to 2,000 tuples to use again, and those start no collection.
    directory.logs.update({(TOPIC_ID, number): another for number in range(3000)})

    def make_one(phase, info):
        directory.logs[TOPIC_ID, len(directory.logs)] = another

    thresholds = gc.get_threshold()
    gc.callbacks.append(make_one)
    try:
        gc.set_threshold(1)
        assert directory.checkpoint_high_watermarks({(TOPIC_ID, 0): 0})
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(make_one)
    assert len(directory.logs) > 3000


def test_many_logs_are_removed_with_one_sync(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    directory.create_logs(many(5))
    disk.done.clear()
    directory.remove_logs([(TOPIC_ID, number) for number in range(5)])
    assert [kind for kind, _ in disk.done] == ["rename"] * 5 + ["sync_directory"]


def test_only_logs_with_segments_that_went_are_looked_into_for_files_to_delete(path):
    class Listing(FaultyDisk):
        def list_names(self, path):
            listed.append(path.name)
            return super().list_names(path)

    listed = []
    directory = opened(path, Listing())
    directory.create_logs(many(5))
    directory.logs[TOPIC_ID, 3].truncate_fully_and_start_at(5)
    for after_s, deleted in ((0, 0), (61, 1), (61, 0)):
        listed.clear()
        assert directory.delete_removed(now_s=time.time() + after_s, grace_s=60) == deleted
        assert [name for name in listed if name != "data"] == (
            ["many-3"] if (after_s, deleted) != (61, 0) else []
        )


def test_a_checkpoint_that_says_what_its_file_says_is_not_written_again(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    directory.create_logs(many(2))
    directory.checkpoint_recovery_points()
    disk.done.clear()
    directory.checkpoint_recovery_points()
    assert disk.done == []
    append(directory.logs[TOPIC_ID, 1], b"a")
    directory.checkpoint_recovery_points()
    written = [
        name for kind, name in disk.done if kind == "write" and name in checkpoint_formats.OFFSETS
    ]
    assert written == [checkpoint_formats.RECOVERY_POINTS]


def test_a_clean_stop_while_logs_wait_for_their_removal_is_proved(path):
    directory = opened(path)
    directory.create_logs(many(3))
    directory.let_go((TOPIC_ID, 1))
    directory.write_clean_stop(7)
    directory.close()
    again = opened(path)
    assert again.clean_stop_epoch == 7
    assert len(again.logs) == 3  # whoever let go of it is told to again
