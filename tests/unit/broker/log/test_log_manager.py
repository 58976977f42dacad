"""A broker's volume: identity, lock, stop proof, checkpoints, and logs that come and go."""

import errno
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.errors import (
    DirectoryLocked,
    DiskFull,
    StorageFailed,
    UnsafeFilesystem,
    WrongVolume,
)
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import OTHER_TOPIC_ID, TOPIC_ID, append, values_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


def opened(path, disk=None, *, broker_id=3, settings=None):
    return LogManager.open(
        path, disk or OsDisk(), broker_id=broker_id, settings=settings or LogSettings()
    )


def restarted(directory, disk=None):
    """As after a kill: the lock goes with the process, nothing else happens."""
    directory.close()
    return opened(directory.path, disk)


def offsets_in(path):
    return checkpoint_formats.decode_offsets(path.read_bytes())


def stopped_cleanly(path, *values):
    directory = opened(path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    for value in values:
        append(log, value)
    directory.write_clean_stop(7)
    directory.close()


# Whose it is


def test_an_empty_volume_gets_an_identity_of_its_own(path):
    directory = opened(path)
    assert (directory.was_empty, directory.cluster_id, directory.clean_stop_epoch) == (True, "", -1)
    again = restarted(directory)
    assert (again.was_empty, again.directory_id) == (False, directory.directory_id)
    assert len(directory.directory_id) == 22
    assert (path / "meta.properties").read_text() == (
        f"directory.id={directory.directory_id}\nnode.id=3\nversion=1\n"
    )


def test_a_volume_emptied_under_a_known_id_says_so(path, tmp_path):
    first = opened(path)
    first.close()
    path.rename(tmp_path / "lost")
    second = opened(path)
    assert second.was_empty
    assert second.directory_id != first.directory_id


def test_a_volume_of_another_broker_is_refused_and_left_alone(path):
    stopped_cleanly(path, b"a")
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != ".lock"}
    with pytest.raises(WrongVolume, match=r"expected .*node.id 4, found .*node.id 3"):
        opened(path, broker_id=4)
    assert {p: p.read_bytes() for p in before} == before
    assert opened(path).clean_stop_epoch == 7


def test_a_volume_of_another_cluster_is_refused(path):
    directory = opened(path)
    directory.set_cluster_id("red")
    again = restarted(directory)
    again.set_cluster_id("red")
    with pytest.raises(WrongVolume, match="expected cluster blue, found cluster red"):
        again.set_cluster_id("blue")
    assert again.cluster_id == "red"


@pytest.mark.parametrize("content", [None, b"\x00\xff", b"version=0\nbroker.id=3\n"])
def test_logs_without_a_readable_identity_are_refused(path, content):
    stopped_cleanly(path, b"a")
    (path / "meta.properties").unlink()
    if content is not None:
        (path / "meta.properties").write_bytes(content)
    with pytest.raises(WrongVolume, match="empty this one"):
        opened(path)


def test_a_fresh_filesystem_with_lost_and_found_is_empty(path):
    (path / "lost+found").mkdir(parents=True)
    assert opened(path).was_empty


def test_network_filesystems_are_refused_unless_allowed(path):  # S13
    disk = FaultyDisk()
    disk.network = "NFS"
    with pytest.raises(UnsafeFilesystem, match="is on NFS: expected a local filesystem"):
        opened(path, disk)
    opened(path, disk, settings=LogSettings(allow_network_filesystem=True)).close()


def test_this_machines_own_filesystem_is_none_of_them(path):
    path.mkdir()
    assert OsDisk().network_filesystem(path) is None
    with pytest.raises(FileNotFoundError):
        OsDisk().network_filesystem(path / "missing")


# The lock


def test_a_second_process_is_told_who_holds_the_directory(path):  # I17
    script = """
        import sys
        from pathlib import Path
        from tidemark_broker.log.disk import OsDisk
        from tidemark_broker.log.log_manager import LogManager
        from tidemark_broker.log.partition_log import LogSettings
        LogManager.open(Path(sys.argv[1]), OsDisk(), broker_id=3, settings=LogSettings())
        print("held", flush=True)
        sys.stdin.read()
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(DirectoryLocked, match=f"{path} is in use by process {holder.pid}"):
        opened(path)
    holder.kill()
    holder.communicate()
    opened(path).close()


def test_the_lock_is_let_go_when_opening_fails(path):
    stopped_cleanly(path)
    with pytest.raises(WrongVolume):
        opened(path, broker_id=4)
    opened(path).close()


# The stop proof


def test_a_clean_stop_is_believed_once(path):  # S1
    stopped_cleanly(path, b"a", b"b")
    directory = opened(path)
    assert directory.clean_stop_epoch == 7
    log = directory.logs[TOPIC_ID, 0]
    assert (log.recovery.verified_segments, log.recovery_point) == (0, 2)
    again = restarted(directory)
    assert again.clean_stop_epoch == -1
    assert again.logs[TOPIC_ID, 0].recovery.verified_segments == 1
    assert values_of(again.logs[TOPIC_ID, 0]) == [(0, b"a"), (1, b"b")]


def test_the_stop_proof_is_gone_for_good_before_a_log_is_read(path):  # S1
    stopped_cleanly(path, b"a")
    disk = FaultyDisk()
    opened(path, disk).close()
    removed = disk.done.index(("remove", ".kafka_cleanshutdown"))
    synced = disk.done.index(("sync_directory", "data"), removed)
    assert synced < disk.done.index(("open", f"{0:020d}.log"))


def test_an_unreadable_stop_proof_proves_nothing(path):
    stopped_cleanly(path, b"a")
    (path / ".kafka_cleanshutdown").write_bytes(b"")
    assert opened(path).clean_stop_epoch == -1


def test_no_stop_proof_is_written_over_a_failed_log(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    log = directory.create_log("orders", TOPIC_ID, 0)
    append(log, b"a")
    disk.io_failure["sync"] = errno.EIO
    with pytest.raises(StorageFailed):
        directory.checkpoint_recovery_points()
    disk.io_failure.clear()
    with pytest.raises(StorageFailed):
        directory.write_clean_stop(7)
    assert restarted(directory).clean_stop_epoch == -1


def test_after_the_stop_proof_nothing_more_is_written(path):
    directory = opened(path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    directory.write_clean_stop(7)
    with pytest.raises(StorageFailed, match="it is closed"):
        append(log, b"a")


# Checkpoints


def test_checkpoints_come_back(path):
    directory = opened(path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    directory.checkpoint_high_watermarks({(TOPIC_ID, 0): 2, (OTHER_TOPIC_ID, 0): 9})
    directory.checkpoint_recovery_points()
    directory.record_epochs(4, 11)
    directory.record_epochs(3, 12)
    assert offsets_in(path / "replication-offset-checkpoint") == {("orders", 0): 2}
    assert offsets_in(path / "recovery-point-offset-checkpoint") == {("orders", 0): 3}
    assert offsets_in(path / "log-start-offset-checkpoint") == {("orders", 0): 0}
    again = restarted(directory)
    assert again.high_watermarks == {(TOPIC_ID, 0): 2}
    assert again.logs[TOPIC_ID, 0].recovery_point == 3
    assert (again.highest_broker_epoch, again.highest_controller_epoch) == (4, 12)


@pytest.mark.parametrize(
    ("name", "recovery_point", "high_watermark"),
    [("recovery-point-offset-checkpoint", 0, 1), ("replication-offset-checkpoint", 1, 0)],
)
def test_an_unreadable_checkpoint_counts_from_the_start(path, name, recovery_point, high_watermark):
    directory = opened(path)
    append(directory.create_log("orders", TOPIC_ID, 0), b"a")
    directory.checkpoint_high_watermarks({(TOPIC_ID, 0): 1})
    directory.checkpoint_recovery_points()
    (path / name).write_bytes(b"\x00" * 12)
    again = restarted(directory)
    assert again.logs[TOPIC_ID, 0].recovery_point == recovery_point
    assert again.high_watermarks[TOPIC_ID, 0] == high_watermark
    assert again.logs[TOPIC_ID, 0].log_end_offset == 1


def test_a_log_start_with_another_digit_takes_no_record(path):  # 0067
    directory = opened(path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    directory.checkpoint_recovery_points()
    file = path / "log-start-offset-checkpoint"
    file.write_bytes(file.read_bytes().replace(b"orders 0 0", b"orders 0 2"))
    assert restarted(directory).logs[TOPIC_ID, 0].log_start_offset == 0


# Logs come and go


def test_a_new_log_is_durable_with_its_topic_id_before_it_can_be_seen(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    disk.done.clear()
    directory.create_log("orders", TOPIC_ID, 0)
    operations = [done for done in disk.done if done[0] in ("write", "rename", "sync_directory")]
    assert operations[0] == ("write", "partition.metadata")
    assert operations[-2:] == [("rename", "orders-0"), ("sync_directory", "data")]
    assert set(restarted(directory).logs) == {(TOPIC_ID, 0)}


def test_creating_a_log_that_exists_gives_that_log(path):
    directory = opened(path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    assert directory.create_log("orders", TOPIC_ID, 0) is log


def test_a_recreated_topic_starts_without_the_old_ones_checkpoints(path):  # S23
    directory = opened(path)
    old = directory.create_log("orders", TOPIC_ID, 0)
    append(old, b"old")
    directory.checkpoint_high_watermarks({(TOPIC_ID, 0): 1})
    directory.checkpoint_recovery_points()
    directory = restarted(directory)
    old = directory.logs[TOPIC_ID, 0]
    new = directory.create_log("orders", OTHER_TOPIC_ID, 0)
    for name in ("replication", "recovery-point", "log-start"):
        assert offsets_in(path / f"{name}-offset-checkpoint") == {}
    assert (new.log_end_offset, directory.high_watermarks) == (0, {(OTHER_TOPIC_ID, 0): 0})
    assert set(directory.logs) == {(OTHER_TOPIC_ID, 0)}
    (stray,) = directory.strays
    assert stray.name.startswith("orders-0.") and stray.name.endswith("-stray")
    assert values_of(old) == [(0, b"old")]
    with pytest.raises(StorageFailed, match="it was removed"):
        append(old, b"more")
    assert set(restarted(directory).logs) == {(OTHER_TOPIC_ID, 0)}


def test_a_removed_log_is_renamed_at_once_and_deleted_after_the_grace_time(path):  # S12
    directory = opened(path)
    append(directory.create_log("orders", TOPIC_ID, 0), b"a")
    directory.remove_logs([(TOPIC_ID, 0)])
    directory.remove_logs([(TOPIC_ID, 0)])
    (kept,) = path.glob("orders-0.*-delete")
    now_s = time.time()
    assert directory.delete_removed(now_s=now_s, grace_s=60) == 0
    directory = restarted(directory)
    assert directory.logs == {}
    assert kept.is_dir()
    assert directory.delete_removed(now_s=now_s + 61, grace_s=60) == 1
    assert not kept.exists()


def test_the_longest_topic_name_that_there_may_be(path):
    """Every name on the way, too, is one that a filesystem takes."""
    topic = "x" * 249
    directory = opened(path)
    append(directory.create_log(topic, TOPIC_ID, 99_999), b"a")
    directory = restarted(directory)
    assert set(directory.logs) == {(TOPIC_ID, 99_999)}
    (path / f"{topic}-99999" / checkpoint_formats.PARTITION_METADATA).unlink()
    directory = restarted(directory)
    assert [stray.name[-6:] for stray in directory.strays] == ["-stray"]
    directory.create_log(topic, TOPIC_ID, 99_999)
    directory.remove_logs([(TOPIC_ID, 99_999)])
    assert restarted(directory).logs == {}
    assert directory.delete_removed(now_s=time.time() + 61, grace_s=60) == 1


def test_segments_truncated_away_are_deleted_later(path):
    directory = opened(path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    append(log, b"a")
    log.truncate_fully_and_start_at(5)
    assert directory.delete_removed(now_s=time.time(), grace_s=60) == 0
    assert directory.delete_removed(now_s=time.time() + 61, grace_s=60) == 1
    assert log.log_end_offset == 5


def test_a_log_removed_during_a_checkpoint_does_not_fail_it(path):
    class RemovesWhileSyncing(FaultyDisk):
        def sync_file(self, path):
            directory.remove_logs([(TOPIC_ID, 0)])
            super().sync_file(path)

    directory = opened(path, RemovesWhileSyncing())
    append(directory.create_log("orders", TOPIC_ID, 0), b"a")
    directory.checkpoint_recovery_points()
    assert directory.logs == {}


@pytest.mark.parametrize("metadata", [None, b"", b"version: 0\ntopic_id: nonsense"])
def test_a_directory_that_names_no_topic_is_set_aside_with_its_records(path, metadata):
    stopped_cleanly(path, b"a")
    file = path / "orders-0" / "partition.metadata"
    file.unlink()
    if metadata is not None:
        file.write_bytes(metadata)
    directory = opened(path)
    assert directory.logs == {}
    (stray,) = directory.strays
    assert (stray / f"{0:020d}.log").stat().st_size > 0


def test_a_second_copy_of_a_log_is_set_aside(path):
    stopped_cleanly(path, b"a")
    subprocess.run(["cp", "-r", path / "orders-0", path / "payments-0"], check=True)
    directory = opened(path)
    assert [log.topic for log in directory.logs.values()] == ["orders"]
    assert [stray.name[:11] for stray in directory.strays] == ["payments-0."]


def test_a_creation_cut_short_leaves_nothing_that_is_loaded(path):
    disk = FaultyDisk()
    directory = opened(path, disk)
    disk.io_failure["rename"] = errno.ENOSPC
    with pytest.raises(DiskFull, match="cannot create orders-0"):
        directory.create_log("orders", TOPIC_ID, 0)
    disk.io_failure.clear()
    again = restarted(directory, disk)
    assert (again.logs, again.strays) == ({}, [])
    assert not list(path.glob("*-future"))


def test_an_io_error_while_opening_names_the_directory(path):
    stopped_cleanly(path, b"a")
    disk = FaultyDisk()
    disk.io_failure["read_at"] = errno.EIO
    with pytest.raises(StorageFailed, match=r"data/orders-0: .*Input/output error"):
        opened(path, disk)
    disk.io_failure = {"sync_directory": errno.EROFS}
    with pytest.raises(StorageFailed, match=r"cannot open log directory .*Read-only"):
        opened(path, disk)
    opened(path).close()


def test_two_answers_of_a_new_controller_store_its_epoch_together(path):
    directory = opened(path)
    failures: list[Exception] = []

    def note(epoch: int) -> None:
        try:
            directory.record_epochs(4, epoch)
        except StorageError as error:
            failures.append(error)

    for epoch in range(1, 31):
        threads = [threading.Thread(target=note, args=(epoch,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert failures == []
    assert restarted(directory).highest_controller_epoch == 30


def test_a_log_that_a_worker_makes_while_all_are_looked_at_ends_nothing(path):
    """In CI: a dictionary that changed size during iteration ended the broker."""
    directory = opened(path)

    class Watched:
        """Between two steps of whoever goes over the logs."""

        @property
        def appended_bytes(self) -> int:
            directory.create_log("others", OTHER_TOPIC_ID, len(directory.logs))
            return 5

    for partition in range(2):
        directory.logs[TOPIC_ID, partition] = Watched()
    assert directory.appended_bytes == 10
    for partition in range(2):
        del directory.logs[TOPIC_ID, partition]
    directory.close()
