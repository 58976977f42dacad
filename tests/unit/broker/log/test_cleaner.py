"""Compaction: what stays, what goes, and that a crash at any step loses nothing."""

import dataclasses
import random
import shutil

import pytest
from tidemark_broker.kafka_wire.records.batch_rewriting import DELETE_HORIZON
from tidemark_broker.kafka_wire.records.errors import CannotCompact, CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import split_batches
from tidemark_broker.log import cleaner
from tidemark_broker.log.cleaner import CleanedSegments, Compaction
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.partition_log import PartitionLog

from tests.support.compacted_log_fixtures import (
    COMPACTED,
    NOW_MS,
    compact,
    compressed,
    files_of,
    keyed_batch,
    pairs_of,
    plan_of,
    put,
    records_of,
    seal,
)
from tests.support.crafted_batches import crafted_batch, crafted_record
from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import ALL, append, headers_of, open_log, read_all

DISK = OsDisk()


def small_log(path, settings=COMPACTED) -> PartitionLog:
    return open_log(path, settings=settings)


def reopened(log: PartitionLog, *, recovery_point: int | None = 0) -> PartitionLog:
    return open_log(log.directory, recovery_point=recovery_point, settings=log.settings)


def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path):
    log = small_log(tmp_path)
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, ("b", "2"))
    put(log, ("c", "1"))
    seal(log)
    put(log, ("a", "active"))
    done = compact(log, DISK)
    assert done is not None
    assert pairs_of(log) == [(2, "a", "2"), (3, "b", "2"), (4, "c", "1"), (5, "a", "active")]
    assert done.removed_records == 2
    assert log.cleaned_to == 5
    assert compact(log, DISK) is None  # nothing is dirty


def test_there_are_no_holes_whatever_goes(tmp_path):  # I4
    log = small_log(tmp_path)
    for number in range(20):
        put(log, ("a", f"{number}"))
    seal(log)
    compact(log, DISK)
    headers = headers_of(read_all(log))
    assert [(h.base_offset, h.last_offset, h.record_count) for h in headers] == [
        (0, 18, 0),
        (19, 19, 1),
    ]
    assert headers_of(log.read(7, max_bytes=1, end_offset=ALL))[0].last_offset == 18


def test_runs_end_where_epochs_do(tmp_path):  # I5
    log = small_log(tmp_path)
    for epoch in (1, 1, 3, 3, 4):
        put(log, ("a", "x"), epoch=epoch)
    seal(log)
    compact(log, DISK)
    headers = headers_of(read_all(log))
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 1), (2, 3), (4, 4)]
    again = reopened(log)
    assert read_all(again) == read_all(log)
    assert again.recovery.reason == ""


def test_segments_are_joined_while_they_fit_into_one(tmp_path):
    log = small_log(tmp_path)
    for number in range(30):
        put(log, (f"{number % 3}", f"{number}"))
    before = len(files_of(tmp_path))
    compact(log, DISK)
    left = [name for name in files_of(tmp_path) if not name.endswith(".deleted")]
    assert len(left) < before
    put(log, ("z", "1"))
    assert pairs_of(reopened(log)) == pairs_of(log)


def test_nothing_at_or_past_the_high_watermark_is_touched(tmp_path):
    log = small_log(tmp_path)
    put(log, ("a", "1"))
    seal(log)
    put(log, ("a", "2"))
    seal(log)
    assert compact(log, DISK, high_watermark=0) is None
    compact(log, DISK, high_watermark=1)
    assert pairs_of(log) == [(0, "a", "1"), (1, "a", "2")]  # 2 may be cut off yet
    compact(log, DISK, high_watermark=2)
    assert pairs_of(log) == [(1, "a", "2")]


def test_the_active_segment_is_not_touched(tmp_path):
    log = small_log(tmp_path)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    assert compact(log, DISK) is None


def test_young_records_wait_for_the_lag(tmp_path):
    log = small_log(tmp_path, dataclasses.replace(COMPACTED, min_compaction_lag_ms=500))
    put(log, ("a", "1"))  # timestamp 1000
    put(log, ("a", "2"))
    seal(log)
    assert compact(log, DISK, now_ms=1499) is None
    assert compact(log, DISK, now_ms=1500) is not None


def test_a_pass_waits_for_the_dirty_ratio(tmp_path):
    log = small_log(tmp_path, dataclasses.replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    for number in range(10):
        put(log, (f"{number}", "x"))
    seal(log)
    assert compact(log, DISK) is not None
    put(log, ("a", "x"))
    seal(log)
    assert compact(log, DISK) is None
    for number in range(12):
        put(log, (f"{number}", "y"))
    seal(log)
    assert compact(log, DISK) is not None


def test_what_is_older_than_the_longest_lag_does_not_wait_for_the_ratio(tmp_path):  # KIP-354
    settings = dataclasses.replace(
        COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500
    )
    log = small_log(tmp_path, settings)
    put(log, ("a", "1"))  # timestamp 1000
    seal(log)
    assert compact(log, DISK, now_ms=1501) is not None
    put(log, ("a", "2"))
    seal(log)
    assert compact(log, DISK, now_ms=1500) is None
    assert compact(log, DISK, now_ms=1501) is not None


def test_tombstones_stay_for_their_time_and_then_go(tmp_path):
    log = small_log(tmp_path, dataclasses.replace(COMPACTED, delete_retention_ms=1000))
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    seal(log)
    compact(log, DISK)
    assert pairs_of(log) == [(1, "b", "1"), (2, "a", None)]
    assert [record.timestamp_ms for record in records_of(log)] == [1000, 1000]
    put(log, ("c", "1"))
    seal(log)
    compact(log, DISK, now_ms=NOW_MS + 1000)
    assert (2, "a", None) in pairs_of(log)
    put(log, ("c", "2"))
    seal(log)
    compact(log, DISK, now_ms=NOW_MS + 1001)
    assert pairs_of(log) == [(1, "b", "1"), (4, "c", "2")]


def test_a_tombstone_behind_a_batch_that_cannot_be_opened_stays(tmp_path):
    """It may be all that outdates a record in there."""
    log = small_log(tmp_path, dataclasses.replace(COMPACTED, delete_retention_ms=0))
    closed = bytearray(keyed_batch(("a", "1")).data)
    closed[22] |= 4  # zstd
    log.append_as_leader([recrc(closed)], leader_epoch=0)
    put(log, ("a", None))
    seal(log)
    compact(log, DISK)
    put(log, ("b", "1"))
    seal(log)
    compact(log, DISK, now_ms=NOW_MS + 10_000)
    found = headers_of(read_all(log))
    assert [(h.base_offset, h.compression, h.record_count) for h in found[:2]] == [
        (0, 4, 1),
        (1, 0, 1),
    ]


def test_a_tombstone_with_a_horizon_from_elsewhere_waits_for_the_pass_that_notes_it(tmp_path):
    """A follower's leader had compacted it, or its producer set it: what it outdates is here."""
    log = small_log(tmp_path, dataclasses.replace(COMPACTED, segment_bytes=10_000))
    put(log, ("a", "1"))
    put(log, *[(f"{number}", "1") for number in range(5)])
    tombstone = crafted_batch(
        [crafted_record(b"a", None)], base_ms=1_000, max_ms=1_000, attributes=DELETE_HORIZON
    )
    log.append_as_leader([tombstone], leader_epoch=0)
    seal(log)
    compact(log, DISK, max_keys=3)
    assert log.cleaned_to == 6
    assert {(0, "a", "1"), (6, "a", None)} <= set(pairs_of(log))
    compact(log, DISK)
    assert [pair for pair in pairs_of(log) if pair[1] == "a"] == []


def recrc(data: bytearray):
    from crc32c import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return split_batches(memoryview(bytes(data)), max_batch_bytes=len(data))[0]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_opened_and_stay_compressed(tmp_path, codec):
    log = small_log(tmp_path)
    batch = compressed(keyed_batch(("a", "1"), ("b", "1" * 100)), codec)
    log.append_as_leader([batch], leader_epoch=0)
    put(log, ("a", "2"))
    seal(log)
    compact(log, DISK)
    assert pairs_of(log) == [(1, "b", "1" * 100), (2, "a", "2")]
    assert headers_of(read_all(log))[0].compression == codec


def test_the_newest_time_of_a_segment_is_that_of_a_record_that_is_left(tmp_path):
    """As a restart finds it: who asks for the record of the largest timestamp is told one."""
    log = small_log(tmp_path)
    first = [keyed_batch(("a", "1"), ("b", "1")), keyed_batch(("a", "2"), timestamp_ms=2_000)]
    log.append_as_leader(first, leader_epoch=0)
    log.append_as_leader([dated_apart(1_500, 9_000)], leader_epoch=0)
    put(log, ("late", "2"))
    seal(log)
    compact(log, DISK)
    assert log.segments[0].max_timestamp_ms == 2_000
    assert log.offset_for_timestamp(2_000) == (2, 2_000)
    log.close()
    assert reopened(log, recovery_point=None).segments[0].max_timestamp_ms == 2_000


def dated_apart(early_ms: int, late_ms: int):
    records = [
        crafted_record(b"early", b"1"),
        crafted_record(b"late", b"1", offset_delta=1, timestamp_delta_ms=late_ms - early_ms),
    ]
    return crafted_batch(records, base_ms=early_ms, max_ms=late_ms)


def test_what_would_outgrow_a_segment_stays_as_it_is(tmp_path, monkeypatch):
    """A producer may pack tighter than we do."""
    log = small_log(tmp_path)
    noise = random.Random(7).randbytes(24_000)
    records = [crafted_record(b"a", b"1"), crafted_record(b"b", 2 * noise, offset_delta=1)]
    tight = snappy_with_a_repetition(b"".join(records), noise)
    times = {"base_ms": 1_000, "max_ms": 1_000}
    log.append_as_leader([crafted_batch(records, **times, codec=2, body=tight)], leader_epoch=0)
    put(log, ("a", "2"))
    seal(log)
    before = read_all(log)
    monkeypatch.setattr(cleaner, "MAX_SEGMENT_BYTES", len(before) + 1_000)
    with pytest.raises(CannotCompact):
        compact(log, DISK)
    assert read_all(log) == before
    assert not any(name.endswith(".cleaned") for name in files_of(tmp_path))


def snappy_with_a_repetition(data: bytes, noise: bytes) -> bytes:
    """One raw block: all but the second `noise` in full, that as copies of 64 bytes each."""
    second = data.index(noise) + len(noise)
    copy = bytes([63 << 2 | 2]) + len(noise).to_bytes(2, "little")
    assert len(noise) % 64 == 0 and 2**14 <= len(data) < 2**16
    length = bytes([len(data) & 0x7F | 0x80, len(data) >> 7 & 0x7F | 0x80, len(data) >> 14])
    parts = literal(data[:second]), copy * (len(noise) // 64), literal(data[second + len(noise) :])
    return length + b"".join(parts)


def literal(data: bytes) -> bytes:
    if len(data) <= 60:
        return bytes([len(data) - 1 << 2]) + data
    return bytes([61 << 2]) + (len(data) - 1).to_bytes(2, "little") + data


def test_the_last_batch_of_a_producer_stays_without_its_records(tmp_path):  # I8
    log = small_log(tmp_path)
    log.append_as_leader([keyed_batch(("a", "1"), producer=(7, 0))], leader_epoch=0)
    log.append_as_leader([keyed_batch(("a", "2"), ("b", "1"), producer=(7, 1))], leader_epoch=0)
    put(log, ("a", "3"), ("b", "3"))
    seal(log)
    compact(log, DISK)
    headers = headers_of(read_all(log))
    assert [(h.base_offset, h.producer_id, h.base_sequence, h.record_count) for h in headers] == [
        (0, -1, -1, 0),
        (1, 7, 1, 0),
        (3, -1, -1, 2),
    ]
    assert headers[1].last_offset_delta == 1
    put(log, ("c", "1"))
    seal(log)
    compact(log, DISK)
    assert headers_of(read_all(log))[1].producer_id == 7


def test_records_without_keys_from_an_earlier_policy_stay(tmp_path):
    log = small_log(tmp_path)
    append(log, b"old")
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    seal(log)
    compact(log, DISK)
    assert [(r.offset, r.key) for r in records_of(log)] == [(0, None), (2, b"a")]


def test_more_keys_than_fit_into_memory_take_several_passes(tmp_path):
    log = small_log(tmp_path)
    for number in range(60):
        put(log, (f"{number % 20}", f"{number}"))
    seal(log)
    passes = 0
    while compact(log, DISK, max_keys=7) is not None:
        passes += 1
        assert passes < 60
    assert passes > 2
    assert [number for _, _, number in pairs_of(log)] == [f"{n}" for n in range(40, 60)]


def test_a_pass_gets_on_even_when_one_batch_has_more_keys_than_memory(tmp_path):
    log = small_log(tmp_path)
    put(log, *[(f"{number}", "x") for number in range(9)])
    seal(log)
    compact(log, DISK, max_keys=1)
    assert log.cleaned_to == 9


def test_a_corrupt_batch_ends_the_pass_and_changes_nothing(tmp_path):  # I10
    log = small_log(tmp_path)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    seal(log)
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    with pytest.raises(CorruptBatch):
        compact(log, DISK)
    assert log.cleaned_to == 0
    assert path.read_bytes() == bytes(data)


def test_a_log_that_is_cut_meanwhile_does_not_take_the_swap(tmp_path):
    log = small_log(tmp_path)
    for number in range(6):
        put(log, ("a", f"{number}"))
    seal(log)
    put(log, ("b", "1"))
    plan = plan_of(log, 6, NOW_MS)
    begun = log.swaps.begin()
    steps = Compaction(DISK, tmp_path, plan, log.settings, now_ms=NOW_MS, producer_ids=()).steps()
    rewritten = next(step for step in steps if isinstance(step, CleanedSegments))
    assert log.swaps.commit(rewritten.path, begun)
    log.truncate_to(3)
    assert not log.swaps.is_valid(begun)
    assert not any(name.endswith(".swap") for name in files_of(tmp_path))
    again = reopened(log)
    assert [offset for offset, _, _ in pairs_of(again)] == [0, 1, 2]


def test_a_follower_inside_a_run_of_its_leader_takes_the_rest(tmp_path):
    leader = small_log(tmp_path / "leader")
    for number in range(6):
        put(leader, ("a", f"{number}"))
    follower = small_log(tmp_path / "follower")
    follower.append_as_follower(memoryview(leader.read(0, max_bytes=150, end_offset=ALL)))
    assert follower.log_end_offset == 2
    seal(leader)
    compact(leader, DISK)
    sent = leader.read(follower.log_end_offset, max_bytes=9999, end_offset=ALL)
    assert headers_of(sent)[0].base_offset == 0
    follower.append_as_follower(memoryview(sent))
    assert follower.log_end_offset == 6
    assert pairs_of(follower)[-1] == (5, "a", "5")
    assert pairs_of(reopened(follower)) == pairs_of(follower)


# Crashes


def crashing_states(path):
    """Every state of the files that a pass goes through, as copies; and the log's contents after
    the pass."""
    log = small_log(path / "log")
    for number in range(12):
        put(log, (f"{number % 4}", f"{number}"))
    seal(log)
    put(log, ("active", "1"))
    before = pairs_of(log)
    states = []

    class Copying(OsDisk):
        def copy(self):
            states.append(path / f"state-{len(states)}")
            shutil.copytree(log.directory, states[-1])

        def open(self, file, *, create=False):
            opened = super().open(file, create=create)
            self.copy()
            return opened

        def rename(self, old, new):
            super().rename(old, new)
            self.copy()

        def remove(self, file):
            super().remove(file)
            self.copy()

        def sync_directory(self, directory):
            super().sync_directory(directory)
            self.copy()

    disk = Copying()
    log._disk = log.swaps._disk = disk
    for segment in log._segments:
        segment._disk = disk
    log.settings = dataclasses.replace(log.settings, segment_bytes=100_000)
    compact(log, disk)
    return states, before, pairs_of(log)


def test_a_kill_at_any_step_leaves_the_log_as_before_or_after(tmp_path):
    states, before, after = crashing_states(tmp_path)
    assert len(states) > 5
    assert len(before) > len(after)
    outcomes = []
    for state in states:
        log = open_log(state, recovery_point=None, settings=COMPACTED)
        outcomes.append(pairs_of(log))
        assert log.recovery.reason == ""
        assert all(name.endswith(".log") for name in files_of(state))
        put(log, ("next", "1"))
        assert open_log(state, settings=COMPACTED).log_end_offset == log.log_end_offset
    assert before in outcomes
    assert outcomes == [before] * outcomes.count(before) + [after] * outcomes.count(after)


def test_a_rewritten_segment_is_on_the_disk_before_its_name_counts(tmp_path):
    log = small_log(tmp_path)
    for number in range(12):
        put(log, ("a", f"{number}"))
    seal(log)
    disk = log.swaps._disk = FaultyDisk()
    assert compact(log, disk) is not None
    named = [at for at, (what, name) in enumerate(disk.done) if name.endswith(".swap")]
    assert named
    for at in named:
        assert ("sync", disk.done[at][1].replace(".swap", ".cleaned")) in disk.done[:at]


def test_a_replaced_file_whose_removal_was_not_stored_is_dropped_at_the_next_start(tmp_path):
    log = small_log(tmp_path)
    for number in range(12):
        put(log, ("a", f"{number}"))
    seal(log)
    copies = {p.name: p.read_bytes() for p in tmp_path.glob("*.log")}
    log.settings = dataclasses.replace(log.settings, segment_bytes=100_000)
    compact(log, DISK)
    put(log, ("b", "1"))
    after = pairs_of(log)
    gone = sorted(set(copies) - {p.name for p in tmp_path.glob("*.log")})
    assert gone
    (tmp_path / gone[-1]).write_bytes(copies[gone[-1]])
    again = reopened(log)
    assert pairs_of(again) == after
    assert again.recovery.only_a_torn_tail
    assert not (tmp_path / gone[-1]).exists()


def test_a_damaged_swap_is_dropped_while_the_old_file_is_there(tmp_path):
    log = small_log(tmp_path)
    put(log, ("a", "1"))
    log.close()
    (tmp_path / "00000000000000000000.log.swap").write_bytes(b"garbage" * 20)
    again = open_log(tmp_path, recovery_point=None, settings=COMPACTED)
    assert pairs_of(again) == [(0, "a", "1")]
