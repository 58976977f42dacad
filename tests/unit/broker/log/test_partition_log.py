"""One log on a good disk: append, read, roll, truncate, reopen, flush."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, InvalidBatch
from tidemark_broker.kafka_wire.records.record_batch import split_batches
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.errors import DiskFull, OffsetGap, OffsetOutOfRange, StorageFailed
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import (
    ALL,
    append,
    batch_of,
    headers_of,
    open_log,
    read_all,
    values_of,
)

BATCH_BYTES = len(batch_of(b"a").data)


def segment_names(directory) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


def follow(leader, follower, **limits) -> None:
    data = leader.read(follower.log_end_offset, max_bytes=1 << 20, end_offset=ALL)
    follower.append_as_follower(memoryview(data))


def test_a_leader_gives_offsets_and_its_epoch_and_leaves_the_crc_alone(tmp_path):
    log = open_log(tmp_path / "log")
    log.append_as_leader([batch_of(b"a", b"b"), batch_of(b"c")], leader_epoch=4)
    appended = log.append_as_leader([batch_of(b"d")], leader_epoch=4)
    assert (appended.first_offset, appended.last_offset, log.log_end_offset) == (3, 3, 4)
    batches = split_batches(memoryview(read_all(log)), max_batch_bytes=1000)
    assert [(b.header.base_offset, b.header.partition_leader_epoch) for b in batches] == [
        (0, 4),
        (2, 4),
        (3, 4),
    ]
    assert log.epoch_entries == ((4, 0),)


def test_a_follower_keeps_every_byte(tmp_path):
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    append(leader, b"a", b"b", epoch=1)
    append(leader, b"c", epoch=3)
    follow(leader, follower)
    assert read_all(follower) == read_all(leader)
    assert follower.epoch_entries == leader.epoch_entries == ((1, 0), (3, 2))
    assert follower.append_as_follower(memoryview(b"")) is None


def test_a_follower_refuses_a_gap_and_keeps_nothing(tmp_path):
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    append(leader, b"a")
    append(leader, b"b")
    with pytest.raises(OffsetGap, match="expected a batch at offset 0, found one at 1"):
        follower.append_as_follower(memoryview(leader.read(1, max_bytes=1, end_offset=ALL)))
    follow(leader, follower)
    with pytest.raises(OffsetGap, match="expected a batch at offset 2, found one at 0"):
        follower.append_as_follower(memoryview(leader.read(0, max_bytes=1, end_offset=ALL)))
    assert follower.log_end_offset == 2


def of_three_and_one(path: Path) -> PartitionLog:
    leader = open_log(path)
    append(leader, b"a", b"b", b"c", epoch=1)
    append(leader, b"d", epoch=2)
    return leader


def test_a_follower_without_records_begins_with_the_batch_that_its_start_lies_in(tmp_path):
    """KAFKA-6975: the leader's records were deleted up to there."""
    leader, follower = of_three_and_one(tmp_path / "leader"), open_log(tmp_path / "follower")
    follower.truncate_fully_and_start_at(1)
    data = leader.read(1, max_bytes=1 << 20, end_offset=ALL)
    assert follower.append_as_follower(memoryview(data)) == (0, 3)
    assert (follower.log_start_offset, follower.log_end_offset) == (1, 4)
    assert read_all(follower) == data
    assert follower.epoch_entries == ((1, 0), (2, 3))
    again = open_log(follower.directory, log_start_offset=Offset(1))
    assert (again.log_start_offset, again.log_end_offset) == (1, 4)
    assert read_all(again) == data


def test_a_follower_that_cannot_begin_so_is_as_before(tmp_path):
    leader, disk = of_three_and_one(tmp_path / "leader"), FaultyDisk()
    follower = open_log(tmp_path / "follower", disk)
    follower.truncate_fully_and_start_at(1)
    data = leader.read(1, max_bytes=1 << 20, end_offset=ALL)
    disk.space_bytes = 100
    with pytest.raises(DiskFull):
        follower.append_as_follower(memoryview(data))
    assert (follower.log_start_offset, follower.log_end_offset) == (1, 1)
    assert follower.epoch_entries == ()
    disk.space_bytes = None
    follower.append_as_follower(memoryview(data))
    assert read_all(follower) == data


def test_a_follower_with_records_takes_no_batch_from_before_its_end(tmp_path):
    leader, follower = of_three_and_one(tmp_path / "leader"), open_log(tmp_path / "follower")
    append(follower, b"a", epoch=1)
    follower.advance_log_start(1)
    with pytest.raises(OffsetGap, match="expected a batch at offset 1, found one at 0"):
        follower.append_as_follower(memoryview(leader.read(1, max_bytes=1, end_offset=ALL)))
    assert (follower.log_start_offset, follower.log_end_offset) == (1, 1)


def test_a_follower_refuses_an_epoch_that_falls(tmp_path):
    follower, leader = open_log(tmp_path / "follower"), open_log(tmp_path / "leader")
    append(follower, b"a", epoch=5)
    append(leader, b"x", epoch=4)
    append(leader, b"y", epoch=4)
    with pytest.raises(CorruptBatch, match="leader epoch 5 or later, found 4"):
        follower.append_as_follower(memoryview(leader.read(1, max_bytes=1, end_offset=ALL)))
    assert follower.epoch_entries == ((5, 0),)


def test_an_epoch_without_batches_gives_way_to_what_the_leader_has(tmp_path):
    follower, leader = open_log(tmp_path / "follower"), open_log(tmp_path / "leader")
    append(leader, b"a", epoch=4)
    follow(leader, follower)
    follower.assign_epoch(5, 1)
    append(leader, b"b", epoch=4)
    follow(leader, follower)
    assert follower.epoch_entries == ((4, 0),)


def test_a_corrupt_batch_in_the_middle_keeps_a_follower_from_taking_any(tmp_path):
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    for value in (b"a", b"b", b"c"):
        append(leader, value)
    data = bytearray(read_all(leader))
    data[BATCH_BYTES + 65] ^= 4
    with pytest.raises(CorruptBatch, match=f"byte {BATCH_BYTES}"):
        follower.append_as_follower(memoryview(bytes(data)))
    assert (follower.log_end_offset, follower.size_bytes) == (0, 0)


@pytest.mark.parametrize(("offset", "value"), [(22, 0x20), (60, 0)])
def test_a_leader_refuses_control_batches_and_counts_that_leave_holes(tmp_path, offset, value):
    log = open_log(tmp_path / "log")
    batch = batch_of(b"a")
    data = bytearray(batch.data)
    data[offset] = value
    header = headers_of(bytes(data))[0]
    with pytest.raises(InvalidBatch):
        log.append_as_leader([batch._replace(header=header)], leader_epoch=0)
    assert log.log_end_offset == 0


def test_no_append_is_longer_than_a_segment_may_be(tmp_path):
    """Its places are kept as four bytes past the segment's first offset."""
    log = open_log(tmp_path / "log")
    append(log, b"a")
    batch = batch_of(b"b")
    most = batch.header._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    huge = batch._replace(header=most)
    with pytest.raises(InvalidBatch, match="at most 2147483648 records in one append"):
        log.append_as_leader([huge, huge], leader_epoch=0)
    assert (log.log_end_offset, log.failure) == (1, "")
    append(log, b"b")
    assert values_of(log) == [(0, b"a"), (1, b"b")]


def test_reads_end_before_the_end_offset_and_return_the_first_batch_whole(tmp_path):
    log = open_log(tmp_path / "log")
    for value in (b"a", b"b", b"c", b"d"):
        append(log, value, value)
    assert [h.base_offset for h in headers_of(log.read(3, max_bytes=1, end_offset=ALL))] == [2]
    assert [h.base_offset for h in headers_of(log.read(0, max_bytes=9999, end_offset=5))] == [0, 2]
    assert log.read(4, max_bytes=9999, end_offset=5) == b""
    assert log.read(8, max_bytes=9999, end_offset=ALL) == b""
    two = log.read(0, max_bytes=len(batch_of(b"a", b"a").data) * 2 + 70, end_offset=ALL)
    assert [h.base_offset for h in headers_of(two)] == [0, 2]
    with pytest.raises(OffsetOutOfRange, match="offset 9 is out of range: the log holds 0 to 8"):
        log.read(9, max_bytes=1, end_offset=ALL)


def test_reads_that_go_on_where_the_last_one_ended_cross_segments(tmp_path):
    log = open_log(tmp_path / "log", settings=LogSettings(segment_bytes=BATCH_BYTES * 2))
    seen = []
    offset = 0
    for number in range(9):
        append(log, b"%d" % number)
        data = log.read(offset, max_bytes=1, end_offset=ALL)
        seen += [header.base_offset for header in headers_of(data)]
        offset = seen[-1] + 1
    assert seen == list(range(9))
    assert len(segment_names(log.directory)) == 5


def test_a_reader_whose_next_batch_was_truncated_away_reads_the_new_one(tmp_path):
    log = open_log(tmp_path / "log")
    for value in (b"a", b"b", b"c"):
        append(log, value)
        log.read(log.log_end_offset - 1, max_bytes=1, end_offset=ALL)
    log.truncate_to(1)
    append(log, b"longer than what was there", epoch=1)
    append(log, b"d", epoch=1)
    found = headers_of(log.read(2, max_bytes=999, end_offset=ALL))
    assert [(header.base_offset, header.partition_leader_epoch) for header in found] == [(2, 1)]


def test_segments_are_rolled_by_size(tmp_path):
    log = open_log(tmp_path / "log", settings=LogSettings(segment_bytes=BATCH_BYTES * 2))
    for value in (b"a", b"b", b"c", b"d", b"e"):
        append(log, value)
    assert segment_names(log.directory) == [f"{base:020d}.log" for base in (0, 2, 4)]
    assert [value for _, value in values_of(log)] == [b"a", b"b", b"c", b"d", b"e"]


def test_segments_are_rolled_by_the_age_of_their_records(tmp_path):
    log = open_log(tmp_path / "log", settings=LogSettings(segment_ms=100))
    for timestamp_ms in (1000, 1100, 1101, 1150):
        append(log, b"x", timestamp_ms=timestamp_ms)
    assert segment_names(log.directory) == [f"{base:020d}.log" for base in (0, 2)]


def test_index_files_have_kafkas_layout(tmp_path):
    settings = LogSettings(segment_bytes=BATCH_BYTES * 4, index_interval_bytes=BATCH_BYTES + 1)
    log = open_log(tmp_path / "log", settings=settings)
    for number in range(5):
        append(log, b"x", timestamp_ms=1000 + number)
    stem = log.directory / f"{0:020d}"
    # One entry: the third batch, after more than an interval; then the last timestamp when sealed.
    assert stem.with_suffix(".index").read_bytes() == bytes.fromhex(
        f"00000002{BATCH_BYTES * 2:08x}"
    )
    assert stem.with_suffix(".timeindex").read_bytes() == bytes.fromhex(
        f"{1002:016x}00000002{1003:016x}00000003"
    )


def test_offsets_are_found_by_timestamp(tmp_path):
    settings = LogSettings(segment_bytes=BATCH_BYTES * 4, index_interval_bytes=BATCH_BYTES)
    log = open_log(tmp_path / "log", settings=settings)
    for timestamp_ms in (10, 20, 20, 40, 30, 50, 60):
        append(log, b"x", timestamp_ms=timestamp_ms)
    found = {t: log.offset_for_timestamp(t) for t in (0, 20, 25, 41, 60, 61)}
    assert found == {
        0: (0, 10),
        20: (1, 20),
        25: (3, 40),
        41: (5, 50),
        60: (6, 60),
        61: None,
    }


def test_truncation_never_splits_a_batch(tmp_path):
    log = open_log(tmp_path / "log")
    for value in (b"a", b"b", b"c"):
        append(log, value, value)
    assert log.truncate_to(3) == 4
    assert log.log_end_offset == 2
    append(log, b"new")
    assert values_of(log) == [(0, b"a"), (1, b"a"), (2, b"new")]


def test_truncation_into_an_older_segment_drops_the_later_ones(tmp_path):
    settings = LogSettings(segment_bytes=BATCH_BYTES * 2, index_interval_bytes=1)
    log = open_log(tmp_path / "log", settings=settings)
    for number in range(7):
        append(log, b"%d" % number, epoch=number)
    log.flush()
    assert log.recovery_point == 7
    assert log.truncate_to(3) == 4
    assert segment_names(log.directory) == [f"{base:020d}.log" for base in (0, 2)]
    assert (log.log_end_offset, log.recovery_point, log.latest_epoch) == (3, 3, 2)
    append(log, b"new", epoch=9)
    assert values_of(log) == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"new")]
    reopened = open_log(log.directory, settings=settings)
    assert read_all(reopened) == read_all(log)
    assert reopened.epoch_entries == ((0, 0), (1, 1), (2, 2), (9, 3))


def test_truncation_at_or_past_the_end_only_drops_epochs_without_batches(tmp_path):
    log = open_log(tmp_path / "log")
    append(log, b"a", epoch=1)
    log.assign_epoch(2, 1)
    assert log.truncate_to(5) == 0
    assert (log.log_end_offset, log.epoch_entries) == (1, ((1, 0),))


def test_a_full_truncation_starts_an_empty_log_elsewhere(tmp_path):
    log = open_log(tmp_path / "log")
    append(log, b"a", epoch=1)
    assert log.truncate_fully_and_start_at(100) == 1
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (100, 100, -1)
    append(log, b"b", epoch=2)
    assert values_of(open_log(log.directory)) == [(100, b"b")]


def test_a_log_that_begins_anew_on_a_full_disk_keeps_no_epoch_of_what_it_was(tmp_path):
    """Seed 24002278: after a kill, the end of the empty log passed for committed records of it."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    append(log, b"a", epoch=1)
    disk.space_bytes = 0
    log.truncate_fully_and_start_at(100)
    reopened = open_log(log.directory, log_start_offset=Offset(100))
    assert (reopened.log_end_offset, reopened.epoch_entries) == (100, ())


def test_a_log_that_was_to_begin_anew_and_did_not_derives_its_epochs(tmp_path):
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    append(log, b"a", epoch=1)
    append(log, b"b", epoch=3)
    disk.io_failure["rename"] = errno.EIO  # of its segments: the process ends, as by a kill
    with pytest.raises(StorageFailed):
        log.truncate_fully_and_start_at(100)
    reopened = open_log(log.directory)
    assert (reopened.log_end_offset, reopened.epoch_entries) == (2, ((1, 0), (3, 1)))


class _Meanwhile(OsDisk):
    """Something happens while a worker is about to sync the file of leader epochs."""

    happens: Callable[[Path], object]

    def sync_file(self, path: Path) -> None:
        self.happens(path)
        super().sync_file(path)


def test_a_flush_goes_on_where_the_log_is_begun_anew_meanwhile(tmp_path):
    disk = _Meanwhile()
    log = open_log(tmp_path / "log", disk)
    append(log, b"a", epoch=1)
    disk.happens = lambda _: log.truncate_fully_and_start_at(5)
    log.flush()
    assert (log.failure, log.log_end_offset) == ("", 5)
    assert log.recovery_point == 0  # what the flush began with is gone


def test_a_flush_fails_where_the_file_of_leader_epochs_is_gone(tmp_path):
    disk = _Meanwhile()
    log = open_log(tmp_path / "log", disk)
    append(log, b"a", epoch=1)
    disk.happens = Path.unlink
    with pytest.raises(StorageFailed, match="leader-epoch-checkpoint"):
        log.flush()
    assert log.recovery_point == 0


def test_an_epoch_without_batches_survives_a_restart(tmp_path):
    log = open_log(tmp_path / "log")
    append(log, b"a", epoch=1)
    log.assign_epoch(2, 1)
    assert open_log(log.directory).epoch_entries == ((1, 0), (2, 1))


@pytest.mark.parametrize(("epoch", "start_offset"), [(1, 1), (3, 0), (3, 2), (2, 0)])
def test_an_epoch_that_contradicts_the_log_is_our_own_mistake(tmp_path, epoch, start_offset):
    log = open_log(tmp_path / "log")
    append(log, b"a", epoch=1)
    log.assign_epoch(2, 1)
    with pytest.raises(ValueError, match="the log ends at 1 in epoch 2"):
        log.assign_epoch(epoch, start_offset)


def test_a_batch_that_fails_its_crc_is_never_served(tmp_path):  # I10
    log = open_log(tmp_path / "log")
    for value in (b"a", b"b", b"c"):
        append(log, value)
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[BATCH_BYTES * 2 - 1] ^= 1
    path.write_bytes(data)
    assert len(log.read(0, max_bytes=999, end_offset=ALL)) == BATCH_BYTES
    with pytest.raises(CorruptBatch):
        log.read(1, max_bytes=999, end_offset=ALL)
    assert len(log.read(2, max_bytes=999, end_offset=ALL)) == BATCH_BYTES


def test_damage_is_cut_off_with_all_behind_it(tmp_path):
    log = open_log(tmp_path / "log", settings=LogSettings(segment_bytes=3 * BATCH_BYTES))
    for value in (b"a", b"b", b"c", b"d", b"e"):
        append(log, value)
    path = log.directory / f"{0:020d}.log"
    for corrupt_at in (BATCH_BYTES * 2 - 1, BATCH_BYTES + 8):  # a record; a length field
        data = bytearray(path.read_bytes())
        data[corrupt_at] ^= 1
        path.write_bytes(data)
        assert log.truncate_before_corruption(1) in (3, 4)
        assert values_of(log) == [(0, b"a")]
        for value in (b"B", b"C", b"D"):
            append(log, value)
    log.truncate_to(1)
    assert values_of(open_log(log.directory, settings=log.settings)) == [(0, b"a")]


def test_an_index_that_lies_is_rebuilt_when_a_read_finds_out(tmp_path):
    settings = LogSettings(segment_bytes=BATCH_BYTES * 6, index_interval_bytes=1)
    log = open_log(tmp_path / "log", settings=settings)
    for number in range(8):
        append(log, b"%d" % number)
    log.close()
    index = log.directory / f"{0:020d}.index"
    entries = bytearray(index.read_bytes())
    entries[15] += 1  # the second entry's position, still between its neighbours
    index.write_bytes(entries)
    reopened = open_log(log.directory, recovery_point=None, settings=settings)
    assert [value for _, value in values_of(reopened)] == [b"%d" % n for n in range(8)]
    assert headers_of(reopened.read(2, max_bytes=1, end_offset=ALL))[0].base_offset == 2


def test_the_append_path_never_syncs(tmp_path):
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk, settings=LogSettings(segment_bytes=BATCH_BYTES * 2))
    disk.done.clear()
    for number in range(6):
        append(log, b"x", epoch=number)
    assert not [done for done in disk.done if done[0].startswith("sync")]


def test_a_flush_syncs_segments_epochs_and_directory_and_then_moves_the_recovery_point(tmp_path):
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk, settings=LogSettings(segment_bytes=BATCH_BYTES * 2))
    for _ in range(3):
        append(log, b"x")
    disk.done.clear()
    log.flush()
    assert disk.done == [
        ("sync", f"{2:020d}.producers"),
        ("sync", f"{2:020d}.snapshot"),
        ("sync", f"{0:020d}.log"),
        ("sync", f"{2:020d}.log"),
        ("sync", "leader-epoch-checkpoint"),
        ("sync_directory", "log"),
    ]
    assert log.recovery_point == 3
    append(log, b"x")
    disk.done.clear()
    log.flush()
    assert disk.done == [("sync", f"{2:020d}.log")]


def test_a_truncation_during_a_flush_keeps_the_recovery_point_low(tmp_path):
    class TruncatesWhileSyncing(FaultyDisk):
        def check(self, operation, path):
            super().check(operation, path)
            if operation == "sync" and path.suffix == ".log" and log.log_end_offset == 3:
                log.truncate_to(1)
                append(log, b"n", epoch=1)
                append(log, b"n", epoch=1)
                append(log, b"n", epoch=1)

    log = open_log(tmp_path / "log", TruncatesWhileSyncing())
    for _ in range(3):
        append(log, b"x")
    log.flush()
    assert (log.log_end_offset, log.recovery_point) == (4, 0)


@pytest.mark.parametrize("byte", range(23, 27))
def test_a_flipped_length_in_offsets_never_makes_a_cut_take_more(tmp_path: Path, byte: int) -> None:
    """Seed 9200131 of the simulator (8 s, 76dcbca): a batch that seemed to reach the offset of the
    cut was taken for the one that holds it, and sound committed ones behind it went."""
    log = open_log(tmp_path / "orders-0")
    for number in range(6):
        append(log, b"%d" % number)
    path, size_bytes = log.segments[0].path, log.segments[0].size_bytes // 6
    data = bytearray(path.read_bytes())
    data[size_bytes + byte] ^= 0x08
    path.write_bytes(data)
    with pytest.raises(CorruptBatch):
        log.truncate_to(Offset(4))
    assert log.log_end_offset == 6
    assert path.read_bytes() == data
