"""What is kept of a segment's synced beginning: when it is written, when believed, when it goes."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.log.checkpoint_formats import MalformedFile
from tidemark_broker.log.clean_shutdown import UNKNOWN_MOUNT, Mount
from tidemark_broker.log.disk import DiskFile, OsDisk, OsFile
from tidemark_broker.log.errors import StorageFailed
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.log.recovery import write_again
from tidemark_broker.log.segment import WALK_BYTES
from tidemark_broker.log.synced_prefix import decode_synced_prefix
from tidemark_broker.log.synced_prefix_files import PendingPrefix, synced_prefix_of
from tidemark_protocol.controller_messages import BootRecord
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import (
    ALL,
    TOPIC_ID,
    append,
    killed_and_reopened,
    open_log,
    produced_batch,
    read_all,
    responses_of,
    values_of,
    verified_copy,
    write_synced_prefix,
)

SETTINGS = LogSettings(index_interval_bytes=200)
SYNCED, BATCHES = 40, 70


def a_log(path: Path, disk: OsDisk | None = None) -> PartitionLog:
    """Of batches of one record, those below SYNCED in a synced part; two leader epochs there."""
    log = open_log(path, disk, settings=SETTINGS)
    for number in range(BATCHES):
        if number == SYNCED:
            write_synced_prefix(log)
        timestamp_ms = 2_000 - number if number % 7 else 3_000 + number
        batch = produced_batch(number, producer_id=number % 3, timestamp_ms=timestamp_ms)
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(number // 30))
    return log


def pending_prefix(log: PartitionLog) -> PendingPrefix:
    due = log.pending_prefix(growth_bytes=1)
    assert due is not None
    return due


def parts_of(log: PartitionLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.synced"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


class ReadingDisk(OsDisk):
    """How much of segments was read."""

    read_bytes = 0

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        disk = self

        class File(OsFile):
            def read_at(self, position: int, size_bytes: int) -> bytes:
                data = super().read_at(position, size_bytes)
                disk.read_bytes += len(data)
                return data

        return File(path, create=create, sync_count=self.sync_count)


def test_a_start_reads_only_what_came_after_and_knows_the_same(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for number in range(1_000):
        append(log, b"x" * 1_000, timestamp_ms=number)
    write_synced_prefix(log)
    for number in range(3):
        append(log, b"x" * 1_000, timestamp_ms=number)
    disk = ReadingDisk()
    part = synced_prefix_of(disk, log.directory)
    write_again(disk, log.directory, Offset(1_001), part)
    reopened = open_log(log.directory, disk, recovery_point=Offset(1_001), synced_prefix=part)
    assert disk.read_bytes < 10 * WALK_BYTES
    assert reopened.recovery.verified_segments == 1
    assert (reopened.log_end_offset, reopened.recovery_point) == (1_003, 1_001)


def test_a_resumed_log_knows_what_a_verified_one_does(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    assert (
        responses_of(killed_and_reopened(log))
        == responses_of(verified_copy(log))
        == responses_of(log)
    )
    assert parts_of(log) == [0]


@pytest.mark.parametrize("kept", range(SYNCED, BATCHES + 1))
def test_it_grows_as_if_it_had_been_verified_whole(tmp_path: Path, kept: int) -> None:
    """Index entries fall on the same batches, wherever a start found the log's end."""
    log = a_log(tmp_path / "log")
    log.truncate_to(Offset(kept))
    logs = verified_copy(log), killed_and_reopened(log)
    for each in logs:
        for number in range(12):
            append(each, b"%d" % number, epoch=9, timestamp_ms=5_000)
        each.close()
    whole, resumed = (
        {p.name: p.read_bytes() for p in each.directory.glob("*index")} for each in logs
    )
    assert whole == resumed


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_damage_in_what_is_synced_is_met_by_readers_as_in_sealed_segments(
    tmp_path: Path, behind: int
) -> None:
    log = a_log(tmp_path / "log")
    position = log.segments[0].find(Offset(behind)).position
    flip(log.segments[0].path, position + 66)
    reopened = killed_and_reopened(log)
    assert (reopened.log_end_offset, reopened.recovery.reason) == (BATCHES, "")
    with pytest.raises(CorruptBatch):
        reopened.read(Offset(behind), max_bytes=1, end_offset=ALL)


def test_damage_behind_it_is_cut_and_the_part_goes(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    flip(log.segments[0].path, log.segments[0].find(Offset(SYNCED + 3)).position + 66)
    reopened = killed_and_reopened(log)
    assert reopened.log_end_offset == SYNCED + 3
    assert not reopened.recovery.only_a_torn_tail
    assert parts_of(reopened) == []


def test_a_torn_tail_leaves_it_for_the_next_start(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    log.segments[0].file.truncate(log.size_bytes - 1)
    reopened = killed_and_reopened(log)
    assert (reopened.log_end_offset, reopened.recovery.only_a_torn_tail) == (BATCHES - 1, True)
    assert parts_of(reopened) == [0]
    assert responses_of(reopened) == responses_of(verified_copy(log))


def test_a_file_with_a_flipped_bit_is_not_believed(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    (path,) = log.directory.glob("*.synced")
    data = path.read_bytes()
    assert decode_synced_prefix(data).encode() == data
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedFile):
            decode_synced_prefix(bytes(flipped))
    for size in range(len(data)):
        with pytest.raises(MalformedFile):
            decode_synced_prefix(data[:size])


def stale_end(log: PartitionLog) -> None:
    """Its last batches are not the ones that it tells of."""
    flip(log.segments[0].path, log.segments[0].find(Offset(SYNCED - 1)).position + 66)


def stale_epochs(log: PartitionLog) -> None:
    log.truncate_to(Offset(25))
    for number in range(25, BATCHES):
        append(log, b"%d" % (number % 10), epoch=7)


def another_size(log: PartitionLog) -> None:
    log.truncate_to(Offset(20))
    append(log, b"x" * 70, epoch=7)
    for _ in range(BATCHES):
        append(log, b"x", epoch=7)


def shorter(log: PartitionLog) -> None:
    log.truncate_to(Offset(SYNCED - 1))


@pytest.mark.parametrize("change", [stale_end, stale_epochs, another_size, shorter])
def test_one_of_another_history_is_not_believed(tmp_path: Path, change) -> None:
    """Should one ever lie there. All of the log is verified, and the file goes."""
    log = a_log(tmp_path / "log")
    (path,) = log.directory.glob("*.synced")
    data = path.read_bytes()
    change(log)
    path.write_bytes(data)
    reopened = killed_and_reopened(log)
    assert responses_of(reopened) == responses_of(verified_copy(log))
    assert parts_of(reopened) == []


def test_a_batch_with_another_epoch_where_an_epoch_begins_has_all_verified(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    flip(log.segments[0].path, log.segments[0].find(Offset(30)).position + 15)
    reopened = killed_and_reopened(log)
    assert (reopened.log_end_offset, parts_of(reopened)) == (30, [])


def test_one_whose_end_is_of_another_epoch_is_not_believed(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    (path,) = log.directory.glob("*.synced")
    part = replace(decode_synced_prefix(path.read_bytes()), epoch_before=LeaderEpoch(7))
    path.write_bytes(part.encode())
    reopened = killed_and_reopened(log)
    assert (reopened.log_end_offset, parts_of(reopened)) == (BATCHES, [])


def test_where_the_log_is_cut_before_its_segment_it_tells_of_no_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", settings=LogSettings(segment_bytes=400))
    for number in range(8):
        batch = produced_batch(0, producer_id=number)
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    write_synced_prefix(log)
    log.segments[0].file.truncate(200)
    reopened = killed_and_reopened(log)
    assert [producer_id for producer_id, _ in reopened.producers] == [0, 1]
    assert parts_of(reopened) == []


def test_without_known_epochs_all_is_verified(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    (log.directory / "leader-epoch-checkpoint").unlink()
    reopened = killed_and_reopened(log)
    assert reopened.epoch_entries == ((0, 0), (1, 30), (2, 60))
    assert parts_of(reopened) == []


def cut(log: PartitionLog) -> None:
    log.truncate_to(Offset(30))
    for _ in range(BATCHES):
        append(log, b"new", epoch=5)
    log.flush()


def restart_elsewhere(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(Offset(0))
    for _ in range(BATCHES):
        append(log, b"new", epoch=5)
    log.flush()


def truncated_before_corruption(log: PartitionLog) -> None:
    log.truncate_before_corruption(Offset(30))
    for _ in range(BATCHES):
        append(log, b"new", epoch=5)
    log.flush()


@pytest.mark.parametrize("change", [cut, restart_elsewhere, truncated_before_corruption])
def test_a_cut_takes_it_away_and_a_worker_does_not_bring_it_back(tmp_path: Path, change) -> None:
    log = a_log(tmp_path / "log")
    late = pending_prefix(log)
    change(log)
    assert parts_of(log) == []
    log.write_synced_prefix(late)
    assert parts_of(log) == []
    assert not list(log.directory.glob("*.tmp"))
    write_synced_prefix(log)
    assert parts_of(log) == [0]
    assert responses_of(killed_and_reopened(log)) == responses_of(verified_copy(log))


def test_a_worker_writes_nothing_into_the_directory_of_a_log_made_anew(tmp_path: Path) -> None:
    directory = LogManager.open(tmp_path, OsDisk(), broker_id=BrokerId(1), settings=SETTINGS)
    previous = directory.create_log("orders", TOPIC_ID, 0)
    append(previous, b"one")
    late = pending_prefix(previous)
    previous.flush()
    directory.remove_logs([(TOPIC_ID, 0)])
    previous.write_synced_prefix(late)
    anew = directory.create_log("orders", TOPIC_ID, 0)
    previous._synced_prefixes.write(late)
    assert {path.suffix for path in anew.directory.iterdir()} == {".log", ".metadata"}


def test_it_is_written_only_once_all_of_it_is_synced(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    append(log, b"one")
    due = pending_prefix(log)
    disk.io_failure["sync"] = errno.EIO
    with pytest.raises(StorageFailed):
        log.write_synced_prefix(due)
    assert parts_of(log) == []


def test_a_full_disk_only_costs_the_file(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    append(log, b"one")
    disk.space_bytes = 10
    write_synced_prefix(log)
    assert (parts_of(log), log.failure) == ([], "")
    disk.space_bytes = None
    write_synced_prefix(log)
    assert parts_of(log) == [0]


def test_an_error_while_it_is_written_ends_all_writing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    append(log, b"one")
    disk.io_failure["write"] = errno.EIO
    with pytest.raises(StorageFailed):
        write_synced_prefix(log)
    assert log.failure


def test_it_is_due_once_the_log_has_grown_by_enough_and_by_as_much_as_is_written(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "log")
    assert log.pending_prefix(growth_bytes=1) is None
    append(log, b"x" * 200)
    assert log.pending_prefix(growth_bytes=log.size_bytes + 1) is None
    due = log.pending_prefix(growth_bytes=log.size_bytes)
    assert due is not None
    log.write_synced_prefix(due)
    (path,) = log.directory.glob("*.synced")
    append(log, b"")
    assert log.pending_prefix(growth_bytes=1) is None  # the file is larger than that batch
    while log.size_bytes < due.part.size_bytes + path.stat().st_size:
        assert log.pending_prefix(growth_bytes=1) is None
        append(log, b"")
    assert log.pending_prefix(growth_bytes=1) is not None


def test_after_a_roll_it_still_serves_the_sealed_segment_until_the_next_is_written(
    tmp_path: Path,
) -> None:
    log = open_log(
        tmp_path / "log", settings=LogSettings(segment_bytes=1_000, index_interval_bytes=200)
    )
    while log.size_bytes < 900:
        append(log, b"x" * 20)
    write_synced_prefix(log)
    while len(log.segments) < 2:
        append(log, b"x" * 20)
    assert parts_of(log) == [0]
    flip(log.segments[0].path, 66)
    reopened = killed_and_reopened(log)
    assert (reopened.log_end_offset, reopened.recovery.reason) == (log.log_end_offset, "")
    write_synced_prefix(reopened)
    assert parts_of(reopened) == [reopened.segments[1].base_offset]


def test_retention_and_compaction_void_what_was_copied_before(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", settings=LogSettings(segment_bytes=200))
    append(log, b"x" * 50)
    late = pending_prefix(log)
    append(log, b"x" * 50)
    log.advance_log_start(Offset(1))
    log.delete_segments_below(Offset(1))
    log.write_synced_prefix(late)
    assert parts_of(log) == []


MOUNT = Mount("boot-1", "pod-1", "claim-1")


def registered(path: Path, mount: Mount = MOUNT) -> LogManager:
    directory = LogManager.open(
        path, OsDisk(), broker_id=BrokerId(1), settings=SETTINGS, mount=mount
    )
    directory.write_boot_record(BootRecord(*mount, BrokerEpoch(1)))
    return directory


@pytest.mark.parametrize("lives_unheard", [0, 2])
@pytest.mark.parametrize(
    ("mount", "is_believed"),
    [
        (MOUNT, True),
        (MOUNT._replace(boot_id="boot-2"), False),
        (MOUNT._replace(pod_uid="pod-2"), False),
        (MOUNT._replace(claim_uid="claim-2"), False),
        (UNKNOWN_MOUNT, False),
    ],
)
def test_only_the_kernel_and_mount_that_it_was_written_on_believe_it(
    tmp_path: Path, mount: Mount, is_believed: bool, lives_unheard: int
) -> None:
    """Through any number of starts that the controller did not hear of. Elsewhere it goes: a later
    life there must not meet it."""
    directory = registered(tmp_path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    for number in range(20):
        append(log, b"%d" % number)
    write_synced_prefix(log)
    flip(log.segments[0].path, 66)
    directory.close()
    for _ in range(1 + lives_unheard):
        directory = LogManager.open(
            tmp_path, OsDisk(), broker_id=BrokerId(1), settings=SETTINGS, mount=mount
        )
        directory.close()
    again = directory.logs[TOPIC_ID, 0]
    assert again.log_end_offset == (20 if is_believed else 0)
    assert parts_of(again) == ([0] if is_believed else [])
    assert again.recovery_point == (20 if is_believed else 0)


def test_a_lost_write_leaves_nothing_to_believe(tmp_path: Path) -> None:
    """S8: both stamps are off the volume then."""
    directory = registered(tmp_path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    append(log, b"one")
    write_synced_prefix(log)
    directory.remove_boot_record()
    directory.close()
    again = registered(tmp_path)
    assert parts_of(again.logs[TOPIC_ID, 0]) == []


def test_it_outlives_a_clean_stop_on_the_same_mount(tmp_path: Path) -> None:
    directory = registered(tmp_path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    append(log, b"one")
    write_synced_prefix(log)
    directory.write_clean_stop(BrokerEpoch(1))
    directory.close()
    again = registered(tmp_path)
    assert parts_of(again.logs[TOPIC_ID, 0]) == [0]
    assert values_of(again.logs[TOPIC_ID, 0]) == [(0, b"one")]


def test_a_swap_that_a_start_completes_takes_it_away(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", settings=SETTINGS)
    for number in range(BATCHES):
        append(log, b"%d" % number)
    write_synced_prefix(log)
    part = synced_prefix_of(OsDisk(), log.directory)
    compacted = open_log(tmp_path / "compacted")
    append(compacted, *(b"%d" % number for number in range(BATCHES)), timestamp_ms=5)
    (log.directory / f"{0:020d}.log.swap").write_bytes(read_all(compacted))
    reopened = open_log(
        log.directory, recovery_point=Offset(BATCHES), settings=SETTINGS, synced_prefix=part
    )
    assert parts_of(reopened) == []
    assert responses_of(reopened) == responses_of(verified_copy(reopened))
