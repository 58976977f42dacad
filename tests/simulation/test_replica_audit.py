"""The judges of one replica on a real log: what they notice, and what they let pass."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch, read_header
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.log.segment import Segment
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.compacted_log import CompactedLog
from tests.simulation.checks.corruption_checks import CorruptionChecker
from tests.simulation.checks.replica_audit import ReplicaAudit, is_corrupt
from tests.simulation.checks.violations import Violation
from tests.support.controller_values import partition
from tests.support.log_fixtures import TOPIC_ID, append, open_log

KEY = (TOPIC_ID, 0)
ME = BrokerId(1)
OTHERS = partition("0@1 2@1", leader="0@1")


@dataclass
class SegmentFiles:
    """`Files` of a log on the disk."""

    flipped: set[int] = field(default_factory=set)  # positions in any segment
    oldest_retained: int | None = None

    @staticmethod
    def segment_bytes(segment: Segment) -> bytearray:
        return bytearray(segment.path.read_bytes())

    def flipped_positions(self, segment: Segment) -> set[int]:
        return self.flipped

    def is_unreliable(self, log: PartitionLog) -> bool:
        return self.has_flipped_bits

    @property
    def has_flipped_bits(self) -> bool:
        return bool(self.flipped)

    def has_retention(self, topic_id: object) -> bool:
        return True

    def oldest_retained_ms(self, topic_id: object) -> int | None:
        return self.oldest_retained


class Replica(SimpleNamespace):
    __hash__ = object.__hash__


def a_replica(log: PartitionLog) -> Any:
    return Replica(
        log=log,
        high_watermark=0,
        state=None,
        duplicate_batches=0,
        leader=None,
        follower=SimpleNamespace(untruncated=None),
        corruption=None,
        topic_id=TOPIC_ID,
        partition=0,
    )


def two_records() -> list[NewRecord]:
    return [NewRecord(b"key", value) for value in (b"a", b"b")]


def at(offset: int, data: bytes) -> bytes:
    """Of leader epoch 0."""
    return offset.to_bytes(8, "big") + data[8:12] + bytes(4) + data[16:]


def an_audit(
    log: PartitionLog, files: SegmentFiles, committed: CommittedLog | None = None
) -> ReplicaAudit:
    committed = committed or CommittedLog("orders-0")
    return ReplicaAudit("orders-0 on 1", a_replica(log), committed, files)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    log = open_log(tmp_path / "orders-0")
    for number in range(4):
        append(log, b"%d" % number, timestamp_ms=1_000)
    return log


def test_a_log_that_begins_anew_was_not_retained_away(log: PartitionLog) -> None:
    """Seed 17000673: a follower that keeps nothing, or ends below its leader's log start."""
    checkers = [an_audit(log, SegmentFiles(oldest_retained=500)) for _ in range(2)]
    for audit in checkers:
        audit.look()
    log.truncate_fully_and_start_at(Offset(9))
    for audit in checkers:
        audit.replica.high_watermark = 9
    with pytest.raises(Violation, match=r"retention.*at 0 is a record of 1000"):
        checkers[0].look()  # it cut nothing in its epoch, so retention took them
    checkers[1].replica.follower.untruncated = object()
    checkers[1].look()
    assert checkers[1].aged_records == 0
    assert list(checkers[1].committed.begun_anew.values()) == [9]


def test_a_log_that_goes_back_was_dropped_from_its_own_start_on(log: PartitionLog) -> None:
    """S32: its leader's log starts lower, and of what retention had taken here nobody tells."""
    audit = an_audit(log, SegmentFiles())
    audit.replica.high_watermark = 4
    audit.committed.led_to = audit.committed.led_by_any = 4
    log.advance_log_start(Offset(3))
    audit.look()
    audit.replica.follower.untruncated = object()
    log.truncate_fully_and_start_at(Offset(1))
    audit.replica.high_watermark = 1
    audit.committed.begin_history(1, 0)
    audit.look()
    assert list(audit.committed.begun_anew.values()) == [3]


def test_what_was_looked_at_for_a_client_is_news_after_the_event_still(log: PartitionLog) -> None:
    """Who began to lead and answered a parked reader at once was not judged as a new leader."""
    audit = an_audit(log, SegmentFiles())
    audit.look()
    assert [audit.has_change() for _ in range(2)] == [True, False]


def test_whoever_was_cut_may_let_go_of_old_records_only(log: PartitionLog) -> None:
    audit = an_audit(log, SegmentFiles(oldest_retained=500))
    audit.replica.follower.untruncated = object()
    audit.replica.high_watermark = 4
    audit.committed.record_led(0, 4, audit.replica)
    audit.look()
    log.advance_log_start(Offset(2))
    with pytest.raises(Violation, match="retention"):
        audit.look()


@pytest.mark.parametrize("last_key", [b"key", b"other"])
def test_what_a_later_record_outdates_may_go_while_it_is_young(
    tmp_path: Path, last_key: bytes
) -> None:
    """Its leader had compacted it away, and retention took the old rest of that segment."""
    log = open_log(tmp_path / "orders-0")
    for key in (b"key", last_key):
        data = at(0, build_batch([NewRecord(key, b"value")], timestamp_ms=1_000))
        log.append_as_follower(memoryview(at(log.log_end_offset, data)))
    audit = an_audit(log, SegmentFiles(oldest_retained=500), CompactedLog("orders-0", int))
    audit.replica.high_watermark = 2
    audit.committed.record_led(0, 2, audit.replica)
    audit.look()
    log.advance_log_start(Offset(1))
    if last_key == b"key":
        audit.look()
        log.advance_log_start(Offset(2))
    with pytest.raises(Violation, match="retention"):
        audit.look()


def test_an_empty_log_is_of_the_history_that_its_epochs_say(log: PartitionLog) -> None:
    """Seed 24002278: a file of leader epochs that outlived the log's beginning anew."""
    audit = an_audit(log, SegmentFiles())
    for base_offset in range(9):
        data = memoryview(log.read(Offset(0), max_bytes=1, end_offset=Offset(1))).tobytes()
        data = base_offset.to_bytes(8, "big") + data[8:]
        audit.committed.take(read_header(data), data, "another")
    log.truncate_fully_and_start_at(Offset(9))
    audit.replica.high_watermark = 9
    audit.look()
    log.assign_epoch(LeaderEpoch(0), Offset(9))
    audit.check_everything()
    log._checkpoint.epochs = LeaderEpochs([(LeaderEpoch(0), Offset(4))])
    audit.check_everything()
    log._checkpoint.epochs = LeaderEpochs([(LeaderEpoch(3), Offset(4))])
    with pytest.raises(Violation, match=r"I5.*says 3 of offset 8, committed there is .* 0"):
        audit.check_everything()


@pytest.mark.timeout(20)
def test_a_flipped_length_is_not_walked(log: PartitionLog) -> None:
    """Seed 17000842: one of half a gigabyte took a judge a minute."""
    high_length_byte = 8
    files = SegmentFiles({high_length_byte})
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[high_length_byte] ^= 0x20
    path.write_bytes(data)
    audit = an_audit(log, files)
    audit.look()
    assert [header.base_offset for header in audit.corrupt()] == [0]
    files.flipped.clear()
    with pytest.raises(Violation, match="no bit was flipped there"):
        audit.check_everything()


def test_a_last_batch_whose_flipped_length_passes_the_files_end_is_damaged(
    log: PartitionLog,
) -> None:
    """Seed 26003586: all that there is of it has its checksum."""
    data = log.read(Offset(3), max_bytes=1, end_offset=Offset(4))
    assert not is_corrupt(read_header(data), data)
    longer = bytearray(data)
    longer[11] ^= 0x80
    assert is_corrupt(read_header(longer), bytes(longer))


def a_corrupt_replica(corrupt_offsets: list[int]) -> Any:
    headers = [SimpleNamespace(base_offset=at, next_offset=at + 1) for at in corrupt_offsets]
    return SimpleNamespace(
        who="orders-0 on 1",
        replica=Replica(
            topic_id=TOPIC_ID, partition=0, corruption=SimpleNamespace(offset=3, valid_from=3)
        ),
        corrupt=lambda: headers,
        is_truncated=False,
        end_offset=10,
        is_valid=lambda offset: offset not in corrupt_offsets,
    )


def rebuilt(checker: CorruptionChecker, audit: Any, state: PartitionState = OTHERS) -> None:
    checker.look(ME, audit, {KEY: state}, {KEY: "Os"})
    audit.replica.corruption = None
    checker.look(ME, audit, {KEY: state}, {KEY: "Os"})


def a_checker() -> CorruptionChecker:
    cluster: Any = SimpleNamespace(broker_records=dict, is_lost=lambda *_: False)
    return CorruptionChecker(cluster)


def test_who_met_a_corrupt_batch_counts_again_only_with_that_batch_sound() -> None:
    checker, audit = a_checker(), a_corrupt_replica([3])
    rebuilt(checker, audit)
    with pytest.raises(Violation, match="had met before"):
        checker.check_entry(KEY, ME, audit, "in sync")


def test_a_count_of_offsets_that_flipped_says_nothing_of_what_lies_behind() -> None:
    """Seed 66003124: it seemed to reach over the batch that had been met, and mended."""
    checker, audit = a_checker(), a_corrupt_replica([])
    rebuilt(checker, audit)
    checker._known[KEY, ME] = {3: None}
    audit.corrupt = lambda: [SimpleNamespace(base_offset=1, next_offset=130)]
    audit.is_truncated, audit.end_offset = True, 130
    checker.check_entry(KEY, ME, audit, "in sync")
    audit.is_truncated = False
    with pytest.raises(Violation, match="had met before"):
        checker.check_entry(KEY, ME, audit, "in sync")


def test_a_batch_that_was_mended_may_be_flipped_again_unnoticed() -> None:
    """Seed 17000830."""
    checker, audit = a_checker(), a_corrupt_replica([])
    rebuilt(checker, audit)
    audit.corrupt = a_corrupt_replica([3]).corrupt
    checker.check_entry(KEY, ME, audit, "in sync")


def test_what_was_mended_in_a_later_life_may_be_flipped_again_unnoticed() -> None:
    """The life that met it ended in the middle of being rebuilt, or a later leader epoch ended its
    damage before it was whole again."""
    checker, audit = a_checker(), a_corrupt_replica([3])
    rebuilt(checker, audit)
    for corrupt_offsets in ([3], []):
        audit = a_corrupt_replica(corrupt_offsets)
        audit.replica.corruption = None
        checker.look(ME, audit, {KEY: OTHERS}, {KEY: "Os"})
        audit.corrupt = a_corrupt_replica([3]).corrupt
        if corrupt_offsets:
            with pytest.raises(Violation, match="had met before"):
                checker.check_entry(KEY, ME, audit, "in sync")
        else:
            checker.check_entry(KEY, ME, audit, "in sync")


def test_what_was_mended_counts_also_while_the_log_does_not_reach_as_far_as_other_damage() -> None:
    """A last resort took what was there."""
    checker, audit = a_checker(), a_corrupt_replica([])
    audit.replica.corruption = SimpleNamespace(offset=9, valid_from=None)
    checker.look(ME, audit, {KEY: OTHERS}, {KEY: "Os"})
    audit.replica.corruption = SimpleNamespace(offset=3, valid_from=3)
    audit.is_valid = lambda offset: offset != 9
    rebuilt(checker, audit)
    for corrupt_offset in (3, 9):
        audit.corrupt = a_corrupt_replica([corrupt_offset]).corrupt
        if corrupt_offset == 9:
            with pytest.raises(Violation, match="had met before"):
                checker.check_entry(KEY, ME, audit, "in sync")
        else:
            checker.check_entry(KEY, ME, audit, "in sync")


def test_who_met_it_and_was_not_rebuilt_knows_it() -> None:
    checker, audit = a_checker(), a_corrupt_replica([3])
    audit.replica.corruption.valid_from = None
    rebuilt(checker, audit)
    audit.is_valid = lambda offset: True
    rebuilt(checker, audit)
    with pytest.raises(Violation, match="had met before"):
        checker.check_entry(KEY, ME, audit, "in sync")


def test_who_was_rebuilt_once_is_not_rebuilt_again_while_others_count_on_it() -> None:
    checker, audit = a_checker(), a_corrupt_replica([])
    rebuilt(checker, audit)
    audit.replica.corruption = SimpleNamespace(offset=5, valid_from=5)
    with pytest.raises(Violation, match="while others count on it"):
        rebuilt(checker, audit, partition("0@1 1@1", leader="0@1"))


def test_nobody_whom_others_count_on_is_rebuilt() -> None:
    for state in (
        partition("0@1 1@1", leader="0@1"),
        partition("0@1", leader="0@1", eligible="1@1"),
    ):
        with pytest.raises(Violation, match="while others count on it"):
            rebuilt(a_checker(), a_corrupt_replica([]), state)


def test_a_log_without_a_common_record_parts_nobody_knows_where(log: PartitionLog) -> None:
    """Seed 37000425: retention had taken the place, and what two histories ago was committed above
    it was held against the producers of the last one."""
    log.truncate_fully_and_start_at(Offset(9))
    append(log, b"here", timestamp_ms=1_000)
    append(log, b"too", timestamp_ms=1_000)
    audit = an_audit(log, SegmentFiles())
    audit.replica.high_watermark = 9
    data = memoryview(log.read(Offset(9), max_bytes=1, end_offset=Offset(10))).tobytes()
    for other in range(12):
        elsewhere = other.to_bytes(8, "big") + data[8:12] + (1).to_bytes(4, "big") + data[16:]
        audit.committed.take(read_header(elsewhere), elsewhere, "another")
    assert audit.parting_offset() == 0
    audit.committed.begin_history(leader_epoch=1, parting_offset=9)
    audit.committed.take(read_header(data), data, "another")
    assert audit.parting_offset() == 11


def test_what_retention_took_may_be_acknowledged_again_where_a_history_began(
    log: PartitionLog,
) -> None:
    """A duplicate, which the leader knows by its producer's state. Its log is empty and has nothing
    in common with what was committed, so where it parts nobody knows."""
    data = memoryview(log.read(Offset(1), max_bytes=1, end_offset=Offset(2))).tobytes()
    log.advance_log_start(Offset(4))
    log.delete_segments_below(Offset(4))
    audit = an_audit(log, SegmentFiles())
    audit.replica.high_watermark = 4
    audit.committed.begin_history(leader_epoch=1, parting_offset=audit.parting_offset())
    for base_offset in (1, 4):
        acknowledge = partial(
            audit.committed.acknowledge,
            base_offset,
            data,
            "a",
            leader_epoch=1,
            is_readable=audit.could_read(base_offset),
        )
        if base_offset < log.log_start_offset:
            acknowledge()
        else:
            with pytest.raises(Violation, match=r"I6.*acknowledged offset 4"):
                acknowledge()


def test_an_active_segment_goes_where_the_log_was_cut_only(log: PartitionLog) -> None:
    """Seed 37000448: an empty log went back, and by the next look it was longer than before. It
    began with a batch that its start lies in: in that leader epoch it may have cut nothing."""
    log.truncate_fully_and_start_at(Offset(9))
    audit = an_audit(log, SegmentFiles(), CompactedLog("orders-0", int))
    audit.replica.high_watermark = 9
    audit.look()
    log.append_as_follower(memoryview(at(8, build_batch(two_records(), timestamp_ms=1_000))))
    assert (log.segments[0].base_offset, log.log_end_offset) == (8, 10)
    audit.look()
    assert audit.compactions == 0


def test_no_compaction_takes_the_active_segment_along(tmp_path: Path) -> None:
    """Nor where the follower was cut earlier in that leader epoch."""
    log = open_log(tmp_path / "orders-0", settings=LogSettings(segment_bytes=100))
    for value in (b"a", b"b", b"c"):
        append(log, value, timestamp_ms=1_000)
    audit = an_audit(log, SegmentFiles(), CompactedLog("orders-0", int))
    audit.replica.follower.untruncated = object()
    audit.look()
    del log._segments._segments[1:]
    with pytest.raises(Violation, match=r"0{18}02\.log was active, and went"):
        audit._has_other_segments()
