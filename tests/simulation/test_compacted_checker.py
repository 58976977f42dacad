"""A compacted topic is judged by record: what may be gone from a log or a reader, and what not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tidemark_broker.kafka_wire.records.batch_rewriting import (
    batch_of_rest,
    batch_without_records,
    empty_run,
)
from tidemark_broker.kafka_wire.records.record_batch import (
    NewRecord,
    build_batch,
    read_header,
    read_records,
)
from tidemark_chaos.history_checker import Kind, Operation, Outcome, SuspendedGuarantee

from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.compacted_history import check_last_reads, with_compacted
from tests.simulation.checks.compacted_log import COMPACTION, CompactedLog
from tests.simulation.checks.violations import Violation
from tests.simulation.clients.clients import (
    ProducerPlan,
    end_of,
    history_name,
    new_record,
    number_of,
    records_shown,
)

NOW_MS = 1_000
Pair = tuple[str, str | None]


def batch(offset: int, *pairs: Pair, epoch: int = 0, sequence: int = -1) -> bytes:
    data = bytearray(
        build_batch(
            [NewRecord(k.encode(), None if v is None else v.encode()) for k, v in pairs],
            timestamp_ms=1,
            producer_id=7 if sequence >= 0 else -1,
            producer_epoch=0 if sequence >= 0 else -1,
            base_sequence=sequence,
        )
    )
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def rest(data: bytes, offsets: Sequence[int], horizon_ms: int | None = None) -> bytes:
    """As compaction leaves it."""
    records = [r for r in read_records(memoryview(data)) if r.offset in offsets]
    return batch_of_rest(read_header(data), records, horizon_ms=horizon_ms)


def log_of(*batches: bytes, now_ms: int = NOW_MS) -> CompactedLog:
    log = CompactedLog("orders-0", lambda: now_ms)
    for data in batches:
        log.take(read_header(data), data, "a")
    log.led_to = log.end_offset
    return log


def compare(log: CommittedLog, data: bytes) -> None:
    log.compare(read_header(data), data, "b")


def violation(act: Callable[[], object]) -> str:
    with pytest.raises(Violation) as found:
        act()
    return found.value.name


FIRST = batch(0, ("a", "1"), ("b", "1"))
SECOND = batch(2, ("a", "2"), sequence=0)
TOMBSTONE = batch(3, ("b", None))


def test_what_a_later_record_outdates_may_be_gone_and_the_last_record_of_a_key_not() -> None:
    log = log_of(FIRST, SECOND)
    compare(log, rest(FIRST, [1]))
    assert violation(lambda: compare(log, rest(FIRST, [0]))) == COMPACTION
    assert violation(lambda: compare(log, empty_run(0, 1, 0))) == COMPACTION
    assert log.coverage() == {"outdated records gone": 1, "tombstones gone": 0}


def test_what_stays_is_what_was_committed() -> None:
    log = log_of(FIRST, SECOND)
    other = batch(0, ("a", "1"), ("b", "other"))
    assert violation(lambda: compare(log, rest(other, [1]))) == "I3"
    assert violation(lambda: compare(log, batch(0, ("a", "1"), ("b", "1"), epoch=1))) == "I3"


def test_a_run_has_the_leader_epoch_of_what_it_covers() -> None:
    log = log_of(batch(0, ("a", "1")), batch(1, ("a", "2")))
    compare(log, empty_run(0, 0, 0))
    assert violation(lambda: compare(log, empty_run(0, 0, 1))) == "I3"


def test_a_batch_that_is_kept_for_its_producer_is_that_producers() -> None:
    log = log_of(SECOND, batch(3, ("a", "3"), sequence=1))
    kept = batch_without_records(read_header(SECOND))
    compare(log, kept)
    other = batch_without_records(read_header(SECOND)._replace(base_sequence=3))
    assert violation(lambda: compare(log, other)) == "I3"
    assert list(log.last_sequences()) == [(7, 0, 1)]


def test_a_tombstone_may_go_once_some_clock_has_passed_its_horizon() -> None:
    gone = empty_run(3, 3, 0)
    for horizon_ms in (None, NOW_MS):
        log = log_of(FIRST, SECOND, TOMBSTONE)
        compare(log, rest(TOMBSTONE, [3], horizon_ms))
        assert violation(lambda log=log: compare(log, gone)) == COMPACTION
    log = log_of(FIRST, SECOND, TOMBSTONE)
    compare(log, rest(TOMBSTONE, [3], NOW_MS - 1))
    compare(log, gone)
    assert log.coverage()["tombstones gone"] == 1


def test_a_horizon_that_lay_behind_a_flipped_bit_may_have_passed() -> None:
    """Seed 46009480: its leader had removed the tombstone, and nobody could look that far."""
    log = log_of(FIRST, SECOND, TOMBSTONE)
    log.sees_all = lambda: False
    compare(log, empty_run(3, 3, 0))
    assert violation(lambda: compare(log, empty_run(2, 2, 0))) == COMPACTION


def test_what_a_flipped_bit_hides_may_outdate_what_is_gone() -> None:
    log = log_of(FIRST)
    log.led_to = 4  # in a log that cannot be read on
    compacted = rest(FIRST, [1])
    assert violation(lambda: compare(log, compacted)) == COMPACTION
    log.sees_all = lambda: False
    compare(log, compacted)
    kept = rest(batch(2, ("a", "2"), ("c", "1")), [2])
    log.take(read_header(kept), kept, "b")
    assert log.end_offset == log.led_to
    compare(log, empty_run(0, 0, 0))
    log.sees_all = lambda: True
    assert violation(lambda: compare(log, empty_run(0, 1, 0))) == COMPACTION


def test_nothing_is_compacted_that_no_leader_found_committed() -> None:
    log = log_of(FIRST, SECOND)
    log.check_is_whole(read_header(rest(FIRST, [1])), "b")
    log.check_is_whole(read_header(TOMBSTONE), "b")
    late = rest(batch(3, ("a", "3"), ("a", "4")), [4])
    assert violation(lambda: log.check_is_whole(read_header(late), "b")) == COMPACTION
    log.await_history(1, 3)
    log.check_is_whole(read_header(late), "b")


def test_an_acknowledged_record_is_what_was_sent_also_once_it_is_compacted() -> None:
    log = log_of(FIRST, SECOND)
    compare(log, empty_run(0, 0, 0))
    log.acknowledge(0, FIRST, "a", 0)
    assert violation(lambda: log.acknowledge(2, FIRST, "a", 0)) == "I6"


def test_after_a_last_resort_nobody_knows_what_outdates_what_is_gone() -> None:
    log = log_of(FIRST, SECOND)
    log.begin_history(1, 2)
    compare(log, empty_run(0, 1, 0))
    other = batch(2, ("c", "other"), epoch=1)
    log.take(read_header(other), other, "b")
    compare(log, other)
    assert violation(lambda: compare(log, empty_run(2, 2, 1))) == COMPACTION
    log.await_history(2, 3)
    compare(log, empty_run(2, 2, 1))
    assert violation(lambda: compare(log, SECOND)) == "I3"
    assert violation(lambda: compare(log, batch(0, ("a", "x"), ("b", "1")))) == "I3"


def test_what_was_lost_outdates_nothing_of_the_next_history() -> None:
    """Nor has a tombstone the horizon of one that was at its offset."""
    log = log_of(FIRST, SECOND, TOMBSTONE, batch(4, ("c", "lost")), batch(5, ("d", "lost")))
    compare(log, rest(TOMBSTONE, [3], NOW_MS - 1))
    log.begin_history(1, 2)
    for offset, pair in ((2, ("c", "kept")), (3, ("d", None))):
        data = batch(offset, pair, epoch=1)
        log.take(read_header(data), data, "b")
        assert violation(lambda at=offset: compare(log, empty_run(at, at, 1))) == COMPACTION
    compare(log, empty_run(0, 1, 0))


def test_what_was_compacted_in_a_history_that_is_lost_is_a_gap() -> None:
    log = log_of(FIRST)
    kept = empty_run(2, 4, 0)
    log.take(read_header(kept), kept, "b")
    assert log.end_offset == 5
    next_one = batch(5, ("a", "5"))
    log.take(read_header(next_one), next_one, "b")
    whole = batch(2, ("b", "2"))
    log.take(read_header(whole), whole, "b")
    assert violation(lambda: compare(log, batch(2, ("b", "x")))) == "I3"


def test_a_tombstone_with_a_horizon_is_not_what_was_sent() -> None:
    """53001661: who leads after a last resort had compacted its log, and answers a retry."""
    log = log_of(FIRST, SECOND)
    log.begin_history(1, 2)
    sent = batch(2, ("c", None))
    with_horizon = rest(sent, [2], NOW_MS - 1)
    log.take(read_header(with_horizon), with_horizon, "b")
    log.led_to = log.end_offset
    log.acknowledge(2, sent, "b", 1)
    compare(log, empty_run(2, 2, 0))
    assert violation(lambda: compare(log, empty_run(2, 2, 1))) == "I3"


def test_a_last_batch_that_is_kept_for_its_producer_says_nothing_in_the_next_history() -> None:
    """It rests, and who leads after a last resort has its last batch without records."""
    log = log_of(batch(0, ("a", "1"), sequence=0))
    kept = batch_without_records(read_header(batch(1, ("a", "2"), sequence=1)))
    log.take(read_header(kept), kept, "b")
    log.begin_history(1, 2)
    next_one = batch(2, ("a", "3"), epoch=1, sequence=2)
    log.take(read_header(next_one), next_one, "b")
    assert list(log.last_sequences()) == [(7, 0, 2)]


def test_a_log_parts_where_records_differ_and_not_where_they_are_gone() -> None:
    log = log_of(FIRST, SECOND)
    for data, expected in (
        (rest(FIRST, [0]), False),
        (rest(FIRST, [1]), False),
        (batch(0, ("a", "x"), ("b", "1")), True),
    ):
        assert log.differs(read_header(data), data) is expected


def test_a_damaged_batch_differs_from_what_was_committed() -> None:
    log = log_of(FIRST, SECOND)
    for position in range(61, len(FIRST)):
        for bit in range(8):
            corrupt = bytearray(FIRST)
            corrupt[position] ^= 1 << bit
            log.differs(read_header(FIRST), bytes(corrupt))  # raises nothing
    assert log.differs(read_header(FIRST), FIRST[:-1] + b"\xff")


def test_where_all_is_outdated_a_log_of_another_leader_epoch_parts() -> None:
    """Seed 23000841: of the offsets that an empty batch covers only its epoch is known."""
    log = log_of(FIRST)
    empty = empty_run(2, 4, 0)
    log.take(read_header(empty), empty, "b")
    for epoch in (0, 1):
        other = batch(3, ("a", "3"), epoch=epoch)
        assert log.differs(read_header(other), other) is (epoch == 1)
    log.begin_history(2, 3)
    taken = batch(3, ("a", "3"), epoch=2)
    log.take(read_header(taken), taken, "b")
    assert violation(lambda: compare(log, empty_run(2, 4, 1))) == "I3"


def test_a_run_of_another_leader_epoch_parts_also_where_the_last_record_of_a_key_is() -> None:
    """Seed 41004237: that it may not be gone was found first, so nothing parted."""
    log = log_of(FIRST)
    for epoch in (0, 1):
        run = empty_run(0, 1, epoch)
        assert log.differs(read_header(run), run) is (epoch == 1)


def test_no_leader_epoch_is_known_of_what_lies_below_a_leaders_first_batch() -> None:
    """Seed 38000600: a history that nobody knows the beginning of."""
    log = log_of(empty_run(4, 6, 3))
    compare(log, empty_run(0, 3, 0))
    assert violation(lambda: compare(log, empty_run(4, 6, 0))) == "I3"


def test_a_flipped_leader_epoch_is_known_by_its_records() -> None:
    """Seeds 24003566 and 26004238: compaction had written the batch anew, with another horizon, or
    without its records."""
    log = log_of(FIRST)
    a_leader: Any = None
    log.record_led(4, 0, a_leader)
    for found, expected in (
        (batch(0, ("a", "1"), ("b", "1"), epoch=128), True),
        (batch(0, ("a", "1"), ("b", "1"), epoch=129), False),
        (batch(0, ("a", "1"), ("b", "other"), epoch=128), False),
        (empty_run(0, 1, 128), True),
        (empty_run(0, 1, 4), False),
        (empty_run(7, 8, 128), False),
    ):
        assert log.differs_in_epoch_only(read_header(found), found) is expected
    part = rest(batch(0, ("a", "1"), ("b", "1"), epoch=128), [1], horizon_ms=5)
    assert log.differs_in_epoch_only(read_header(part), part)


def test_a_reader_is_shown_what_may_be_there() -> None:
    log = log_of(FIRST, SECOND)
    shown = rest(FIRST, [1])
    log.check_shown(read_header(shown), shown, "b")
    missing = rest(FIRST, [0])
    assert violation(lambda: log.check_shown(read_header(missing), missing, "b")) == "I7"


def poll(offsets: tuple[int, ...], name: str) -> Operation:
    return Operation(
        process="last-reader",
        kind=Kind.POLL,
        outcome=Outcome.OK,
        partition=name,
        values=tuple(offsets),
        offsets=offsets,
        invoked_us=0,
        completed_us=1,
        is_final=True,
        high_watermark=3,
    )


def test_whoever_reads_it_all_is_shown_the_last_record_of_each_key() -> None:
    log = log_of(FIRST, SECOND)
    name = history_name("topic", 0)
    check_last_reads([poll((1,), name), poll((2,), name)], {name: log})
    check_last_reads([poll((), name)], {name: CommittedLog("orders-0")})
    lost = [poll((0, 2), name)]
    assert violation(lambda: check_last_reads(lost, {name: log})) == COMPACTION
    assert with_compacted({}, {name: log}) == {name: SuspendedGuarantee(is_compacted=True)}
    assert with_compacted({}, {name: CommittedLog("orders-0")}) == {}


def test_a_last_reader_that_was_sent_on_to_a_log_start_need_not_see_what_lies_before_it() -> None:
    """The next leader had not heard of that start."""
    log = log_of(FIRST, SECOND)
    name = history_name("topic", 0)
    sent_on = replace(poll((2,), name), log_start_offset=2)
    later = replace(poll((), name), log_start_offset=0)
    check_last_reads([sent_on, later], {name: log})
    assert violation(lambda: check_last_reads([poll((2,), name), later], {name: log})) == COMPACTION


def test_a_tombstone_says_its_number_and_a_reader_goes_on_behind_batches_without_records() -> None:
    plan = ProducerPlan("p", "orders", 0, -1, 1, 1, has_keys=True)
    records = [new_record(plan, value) for value in range(60)]
    assert {record.value is None for record in records} == {False, True}
    data = build_batch(records, timestamp_ms=1)
    assert [number_of(record) for record in read_records(memoryview(data))] == list(range(60))
    assert [number for _, number in records_shown(data, 58)] == [58, 59]
    run = empty_run(60, 99, 0)
    assert (end_of(data + run, 58), records_shown(run, 60)) == (100, [])
    assert end_of(b"", 7) == 7
