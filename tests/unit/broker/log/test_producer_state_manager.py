"""Producer states move with the log: append, roll, truncate, kill, clean stop, retention."""

import errno
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from tidemark_broker.log.checkpoint_formats import MalformedFile
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.errors import DiskFull, StorageFailed
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.log.producer_snapshots import (
    decode_kafka_snapshot,
    decode_side_snapshot,
    encode_kafka_snapshot,
    encode_side_snapshot,
)
from tidemark_protocol.ids import LeaderEpoch, Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import (
    KILLED,
    append,
    open_log,
    produced_batch,
    read_all,
)

THREE_A_SEGMENT = LogSettings(segment_bytes=3 * produced_batch(0).header.size_bytes)


def produce(log: PartitionLog, sequence: int, count: int = 1, *, leader_epoch: int = 0, **of: int):
    batch = produced_batch(sequence, count, **of)
    log.append_as_leader([batch], leader_epoch=LeaderEpoch(leader_epoch))


def known(log: PartitionLog) -> dict[int, list[tuple[int, int, int]]]:
    """(epoch, first sequence, first offset) of every batch in each producer's window."""
    return {
        producer_id: [(b.producer_epoch, b.first_sequence, b.first_offset) for b in entry.window]
        for producer_id, entry in log.producers
    }


def names(log: PartitionLog, suffix: str) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob(f"*{suffix}"))


def test_leader_and_follower_know_the_same(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    produce(leader, 0, 3)
    append(leader, b"without a producer")
    produce(leader, 3, 2)
    produce(leader, 0, producer_id=8, epoch=2)
    follower = open_log(tmp_path / "follower")
    follower.append_as_follower(memoryview(read_all(leader)))
    assert known(follower) == known(leader) == {7: [(0, 0, 0), (0, 3, 4)], 8: [(2, 0, 6)]}


def test_a_failed_append_moves_no_sequence(tmp_path: Path) -> None:
    """S10."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    produce(log, 0)
    disk.space_bytes = 20
    with pytest.raises(DiskFull):
        produce(log, 1)
    assert known(log) == {7: [(0, 0, 0)]}
    disk.space_bytes = None
    produce(log, 1)
    assert known(log) == {7: [(0, 0, 0), (0, 1, 1)]}


def test_a_failed_replicated_append_moves_no_sequence(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    produce(leader, 0)
    disk = FaultyDisk()
    follower = open_log(tmp_path / "follower", disk)
    disk.space_bytes = 60
    with pytest.raises(DiskFull):
        follower.append_as_follower(memoryview(read_all(leader)))
    assert known(follower) == {}


@pytest.mark.parametrize("recovery_point", [KILLED, None], ids=["killed", "stopped cleanly"])
@pytest.mark.parametrize("batches", [1, 3, 4, 7, 14])
def test_a_restart_knows_five_batches_of_each(
    tmp_path: Path, batches: int, recovery_point: Offset | None
) -> None:
    """S24: not only the last."""
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(batches):
        produce(log, sequence)
    before = known(log)
    if recovery_point is None:
        log.close()
    reopened = open_log(tmp_path / "log", recovery_point=recovery_point, settings=THREE_A_SEGMENT)
    assert known(reopened) == before
    assert len(before[7]) == min(5, batches)


def test_a_clean_start_reads_no_batch_but_the_last(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for sequence in range(6):
        produce(log, sequence)
    before = known(log)
    log.close()
    disk = FaultyDisk()
    reopened = open_log(tmp_path / "log", disk, recovery_point=None)
    walked = [name for operation, name in disk.done if operation == "read_at"]
    assert known(reopened) == before
    # The segment's own looks: at its first header, at the headers after the last index, at the
    # batch of its latest time, and twice for the last one, whose CRC says where the log ends.
    assert len(walked) == 5


@pytest.mark.parametrize("cut", range(13))
def test_a_truncation_leaves_what_the_log_tells(tmp_path: Path, cut: int) -> None:
    """Against a log that never had more, beyond what is kept in memory too."""
    long = open_log(tmp_path / "long", settings=THREE_A_SEGMENT)
    short = open_log(tmp_path / "short", settings=THREE_A_SEGMENT)
    for sequence in range(12):
        epoch, first = divmod(sequence, 4)
        produce(long, first, epoch=epoch)
        if sequence < cut:
            produce(short, first, epoch=epoch)
    long.truncate_to(Offset(cut))
    assert known(long) == known(short)


def test_a_deep_truncation_reads_the_log_from_the_snapshot_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(40):
        produce(log, sequence)
    log.truncate_to(Offset(20))
    assert known(log) == {7: [(0, number, number) for number in range(15, 20)]}
    bases = [base for base in names(log, ".log") if base]
    assert names(log, ".producers") == names(log, ".snapshot") == bases


def test_a_log_that_restarts_elsewhere_knows_nobody_but_the_highest_id(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(5):
        produce(log, sequence)
    log.truncate_fully_and_start_at(Offset(100))
    assert (known(log), log.producers.highest_producer_id) == ({}, 7)
    assert names(log, ".snapshot") == names(log, ".producers") == []


class DiskUntil(FaultyDisk):
    """It takes so many changes of names, and none after: what a power cut leaves of a directory."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self.changes = changes

    def check(self, operation: str, path: Path) -> None:
        if operation in ("open", "rename", "remove"):
            self.changes -= 1
            if self.changes < 0:
                raise OSError(errno.EIO, "cut off", str(path))
        super().check(operation, path)


def test_whoever_begins_anew_knows_nobody_whatever_a_power_cut_leaves(tmp_path: Path) -> None:
    """S32: nobody says that the leader has what it knew as of there, and for a record that was
    never committed it would answer a retry as if it were in the log."""
    for changes in range(100):
        disk, directory = DiskUntil(1 << 30), tmp_path / f"{changes}"
        log = open_log(directory, disk, settings=THREE_A_SEGMENT)
        for sequence in range(4):
            produce(log, sequence)
        disk.changes = changes
        try:
            log.truncate_fully_and_start_at(Offset(3))
        except StorageFailed:
            reopened = open_log(directory, settings=THREE_A_SEGMENT)
            assert reopened.segments[0].base_offset == 0 or not known(reopened)
        else:
            break
    assert 0 < changes < 99


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_snapshot_of_a_history_that_was_cut_off_is_not_believed(
    tmp_path: Path, is_torn: bool
) -> None:
    """A power cut may bring back a file whose removal was not synced."""
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(4):
        produce(log, sequence, producer_id=1)
    side = tmp_path / "log" / f"{3:020d}.producers"
    kafkas = tmp_path / "log" / f"{3:020d}.snapshot"
    kept = side.read_bytes(), kafkas.read_bytes()
    log.truncate_to(Offset(1))
    for sequence in range(4):
        produce(log, sequence, producer_id=2, leader_epoch=5)
    before = known(log)
    for path in (tmp_path / "log").glob("*.producers"):
        path.unlink()
    side.write_bytes(kept[0][:20] if is_torn else kept[0])
    kafkas.write_bytes(kept[1])
    reopened = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    assert known(reopened) == before == {1: [(0, 0, 0)], 2: [(0, n, n + 1) for n in range(4)]}


def test_what_is_removed_goes_before_what_says_of_which_history_it_is(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT, disk=disk)
    for sequence in range(4):
        produce(log, sequence)
    disk.done.clear()
    log.truncate_to(Offset(1))
    removed = [name for done, name in disk.done if done == "remove" and name.startswith("0")]
    stem = f"{3:020d}"
    assert removed.index(f"{stem}.snapshot") < removed.index(f"{stem}.producers")


def test_a_snapshot_above_the_recovered_end_is_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(4):
        produce(log, sequence)
    segment = tmp_path / "log" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[: 2 * produced_batch(0).header.size_bytes])
    reopened = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    assert known(reopened) == {7: [(0, 0, 0), (0, 1, 1)]}
    assert names(reopened, ".producers") == []


@pytest.mark.parametrize("corruption", ["torn", "flipped", "gone"])
def test_a_damaged_snapshot_is_passed_over_for_the_log(tmp_path: Path, corruption: str) -> None:
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(8):
        produce(log, sequence)
    before = known(log)
    side = tmp_path / "log" / f"{6:020d}.producers"
    data = bytearray(side.read_bytes())
    match corruption:
        case "torn":
            side.write_bytes(data[: len(data) // 2])
        case "flipped":
            data[-1] ^= 1
            side.write_bytes(data)
        case _:
            side.unlink()
    assert known(open_log(tmp_path / "log", settings=THREE_A_SEGMENT)) == before


def test_kafkas_snapshot_alone_still_knows_the_last_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(3):
        produce(log, sequence)
    log.close()
    for side in (tmp_path / "log").glob("*.producers"):
        side.unlink()
    reopened = open_log(tmp_path / "log", recovery_point=None, settings=THREE_A_SEGMENT)
    assert known(reopened) == {7: [(0, 2, 2)]}


class NoRoomForSnapshots(FaultyDisk):
    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        if path.suffix in {".producers", ".snapshot"}:
            raise OSError(errno.ENOSPC, "no space", str(path))
        super().write_atomically(path, data, durable=durable)


def test_a_full_disk_costs_a_snapshot_and_nothing_else(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", NoRoomForSnapshots(), settings=THREE_A_SEGMENT)
    for sequence in range(8):
        produce(log, sequence)
    before = known(log)
    log.close()
    reopened = open_log(tmp_path / "log", recovery_point=None, settings=THREE_A_SEGMENT)
    assert known(reopened) == before == {7: [(0, n, n) for n in range(3, 8)]}


def test_expired_producers_are_gone_from_snapshots_but_their_ids_stay_known(tmp_path: Path) -> None:
    """S5: after a lost counter no id that is on a disk may be given again."""
    log = open_log(tmp_path / "log")
    produce(log, 0, producer_id=900)
    produce(log, 0, producer_id=3)
    log.producers.expire(0, expiration_ms=10)
    produce(log, 1, producer_id=3)
    log.producers.expire(10, expiration_ms=10)
    log.close()
    reopened = open_log(tmp_path / "log", recovery_point=None)
    assert known(reopened) == {3: [(0, 0, 1), (0, 1, 2)]}
    assert reopened.producers.highest_producer_id == 900


def test_kafkas_snapshot_has_kafkas_bytes(tmp_path: Path) -> None:
    """Version, CRC32C, count; then id, epoch, last sequence, last offset, offset delta, timestamp,
    coordinator epoch, first offset of the open transaction. All big-endian."""
    log = open_log(tmp_path / "log")
    append(log, b"x")
    produce(log, 0, 3, producer_id=70_000, epoch=4, timestamp_ms=1_234)
    body = struct.pack(">iqhiqiqiq", 1, 70_000, 4, 2, 3, 2, 1_234, -1, -1)
    expected = struct.pack(">hI", 1, crc32c(body)) + body
    assert encode_kafka_snapshot(log.producers) == expected


def test_snapshots_come_back_as_they_were_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for sequence in range(12):
        produce(log, sequence)
    produce(log, 2**31 - 1, 3, producer_id=9)
    data = encode_side_snapshot(log.producers, LeaderEpoch(3))
    states, epoch = decode_side_snapshot(data)
    assert epoch == 3
    assert encode_side_snapshot(states, epoch) == data
    assert [entry.batches for _, entry in states] == [e.batches for _, e in log.producers]
    (seven, nine) = decode_kafka_snapshot(encode_kafka_snapshot(log.producers))
    assert seven[1].batches == log.producers.get(7).batches[-1:]
    assert nine[1].batches == log.producers.get(9).batches


@pytest.mark.parametrize("decode", [decode_kafka_snapshot, decode_side_snapshot])
def test_no_cut_and_no_flipped_bit_of_a_snapshot_is_believed(tmp_path: Path, decode) -> None:
    log = open_log(tmp_path / "log")
    produce(log, 0)
    produce(log, 0, producer_id=8)
    data = (
        encode_kafka_snapshot(log.producers)
        if decode is decode_kafka_snapshot
        else encode_side_snapshot(log.producers, LeaderEpoch(0))
    )
    for size in range(len(data)):
        with pytest.raises(MalformedFile):
            decode(data[:size])
    for bit in range(8 * len(data)):
        corrupt = bytearray(data)
        corrupt[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedFile):
            decode(bytes(corrupt))


def test_what_tells_of_producers_goes_once_a_synced_snapshot_does(tmp_path: Path) -> None:
    """S24: a power cut would leave a name without a snapshot, and nobody would know a retry."""
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    for sequence in range(4):
        produce(log, sequence)
    log.flush()
    log.advance_log_start(Offset(4))
    assert log.delete_segments_below(Offset(4)) == 0
    assert names(log, ".log") == [0, 3, 4]
    log.flush()
    assert log.delete_segments_below(Offset(4)) == 2
    assert (names(log, ".log"), names(log, ".producers")) == ([4], [4])
    before = known(log)
    assert known(open_log(tmp_path / "log", log_start_offset=Offset(4))) == before != {}


def test_a_log_without_producers_is_let_go_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log, b"a")
    log.advance_log_start(Offset(1))
    assert log.delete_segments_below(Offset(1)) == 1


def reopened(log: PartitionLog, start: int) -> PartitionLog:
    return open_log(log.directory, log_start_offset=Offset(start), settings=THREE_A_SEGMENT)


def test_a_roll_without_room_for_its_snapshot_keeps_what_tells_of_producers(tmp_path: Path) -> None:
    """I8: at the next start a retry would be a first batch. It is written when there is room."""
    disk = NoRoomForSnapshots()
    log = open_log(tmp_path / "log", disk, settings=THREE_A_SEGMENT)
    produce(log, 0, producer_id=7)
    for sequence in range(5):
        produce(log, sequence, producer_id=8)
    before = known(log)
    log.flush()
    log.advance_log_start(Offset(3))
    for _ in range(2):
        with pytest.raises(DiskFull, match="producers"):
            log.delete_segments_below(Offset(3))
        log.flush()
    assert known(reopened(log, 3)) == before
    log.small_writes = OsDisk()
    assert log.delete_segments_below(Offset(3)) == 0
    log.flush()
    assert log.delete_segments_below(Offset(3)) == 1
    assert names(log, ".log") == [3]
    assert known(reopened(log, 3)) == before


def test_an_emptied_log_whose_snapshot_found_no_room_keeps_its_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", NoRoomForSnapshots(), settings=THREE_A_SEGMENT)
    for sequence in range(4):
        produce(log, sequence)
    log.advance_log_start(Offset(4))
    for _ in range(3):
        log.flush()
        with pytest.raises(DiskFull, match="producers"):
            log.delete_segments_below(Offset(4))
    produce(log, 4)  # for records there is room
    assert known(reopened(log, 4)) == known(log) == {7: [(0, n, n) for n in range(5)]}


def test_batches_that_stay_tell_of_their_producers_without_a_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", NoRoomForSnapshots(), settings=THREE_A_SEGMENT)
    for sequence in range(8):
        produce(log, sequence)
    log.advance_log_start(Offset(6))
    with pytest.raises(DiskFull, match="producers"):
        log.delete_segments_below(Offset(6))
    assert log.delete_segments_below(Offset(3)) == 1
    assert known(reopened(log, 6)) == known(log) == {7: [(0, n, n) for n in range(3, 8)]}


def test_a_snapshot_that_counts_again_after_a_truncation_is_synced_first(tmp_path: Path) -> None:
    """I8: a flush syncs the newest alone. Once that one is cut off, the one before it tells of the
    producers, and a power cut would leave its name."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk, settings=THREE_A_SEGMENT)
    produce(log, 0, producer_id=8)
    for sequence in range(12):
        produce(log, sequence)
    log.flush()
    assert names(log, ".producers") == [3, 6, 9, 11]
    log.truncate_to(Offset(4))  # deeper than what is remembered: made anew
    assert names(log, ".producers") == [3]
    log.advance_log_start(Offset(3))
    assert log.delete_segments_below(Offset(3)) == 0
    disk.done.clear()
    log.flush()
    assert ("sync", f"{3:020d}.producers") in disk.done
    assert log.delete_segments_below(Offset(3)) == 1
    assert known(reopened(log, 3)) == known(log)
    assert 8 in known(log)


@pytest.mark.parametrize("batches", [3, 4, 7])
def test_retention_goes_on_in_a_log_that_rolls_after_each_flush(
    tmp_path: Path, batches: int
) -> None:
    """The newest snapshot is never synced then, an older one is; a producer that is quiet has
    nothing in the segments that stay."""
    log = open_log(tmp_path / "log", settings=THREE_A_SEGMENT)
    produce(log, 0, producer_id=8)
    sequences = iter(range(1000))
    for _ in range(5):
        for _ in range(batches):
            produce(log, next(sequences))
        retained_from = log.log_end_offset
        log.flush()
        for _ in range(batches):
            produce(log, next(sequences))
        log.advance_log_start(max(log.log_start_offset, Offset(retained_from - 3)))
        log.delete_segments_below(log.log_start_offset)
    assert len(names(log, ".log")) <= 2 + 2 * batches // 3
    assert known(reopened(log, log.log_start_offset)) == known(log)
    assert 8 in known(log)
