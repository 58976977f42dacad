"""The simulator's judges see what they are for; the shrinker keeps what matters."""

import io
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch, read_header
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.coverage_rows import ROWS
from tests.simulation.checks.producer_expiry import ProducerExpiry
from tests.simulation.checks.violations import Violation
from tests.simulation.clients.clients import records_shown
from tests.simulation.engine.campaign import CampaignResult, show_coverage
from tests.simulation.engine.picture import Mark, ReplicaSample, Sample, picture
from tests.simulation.engine.shrinker import shrunk
from tests.simulation.faults.faults import Fault


def batch(text: bytes, offset: int, epoch: int = 0, sequence: int = -1) -> bytes:
    producer = (7, 0) if sequence >= 0 else (-1, -1)
    data = bytearray(
        build_batch(
            [NewRecord(None, text)],
            timestamp_ms=1,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
    )
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def take(log: CommittedLog, data: bytes, who: str = "a") -> None:
    log.take(read_header(data), data, who)


def violation(act: Callable[[], object]) -> str:
    with pytest.raises(Violation) as found:
        act()
    return found.value.name


def test_the_first_replica_says_what_is_committed() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0))
    take(log, batch(b"x", 0), "b")
    assert violation(lambda: take(log, batch(b"y", 0), "b")) == "I3"
    assert violation(lambda: take(log, batch(b"x", 0, epoch=1), "b")) == "I3"
    assert log.end_offset == 1


def test_a_sequence_is_committed_once_and_in_its_order() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0, sequence=0))
    take(log, batch(b"y", 1, sequence=1))
    assert violation(lambda: take(log, batch(b"x", 2, sequence=0))) == "I8"
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0, sequence=0))
    assert violation(lambda: take(log, batch(b"z", 1, sequence=2))) == "I8"
    log = CommittedLog("orders-0")
    assert violation(lambda: take(log, batch(b"x", 0, sequence=3))) == "I8"


def test_a_sequence_that_comes_again_after_its_producer_expired_is_beyond_promises() -> None:
    now_us = 0
    log = CommittedLog("orders-0")
    log.expiry = ProducerExpiry(1_300, lambda: now_us)
    first = batch(b"x", 0, sequence=0)
    log.expiry.record_written(read_header(first))
    take(log, first)
    now_us = 999_999
    assert not log.expiry.may_be_over(7, 0, 0)
    assert violation(lambda: take(log, batch(b"x", 1, sequence=0))) == "I8"
    now_us = 1_000_000
    assert log.expiry.may_be_over(7, 0, 0)
    assert violation(lambda: take(log, batch(b"x", 1, sequence=0))) == "beyond"
    assert violation(lambda: take(log, batch(b"x", 1, sequence=3))) == "I8"
    assert not ProducerExpiry().may_be_over(7, 0, 0)


def a_log_from(start_offset: int, *epochs: tuple[int, int]) -> Any:
    checkpoint = SimpleNamespace(epochs=LeaderEpochs(epochs))
    return SimpleNamespace(log_start_offset=start_offset, _checkpoint=checkpoint)


class Replica(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("former_end", "parted_at", "epochs", "expected"),
    [
        (1, None, ((0, 1), (1, 2)), "beyond"),  # it ended below where its leader begins
        (2, 1, ((0, 1), (1, 2)), "beyond"),
        (2, None, ((1, 2),), "beyond"),  # its leader had lost the epoch before
        (2, None, ((0, 1), (1, 2)), "I8"),
    ],
)
def test_a_sequence_that_retention_took_comes_again_where_a_log_had_to_begin_anew(
    former_end: int, parted_at: int | None, epochs: tuple[tuple[int, int], ...], expected: str
) -> None:
    """0087: it forgets producers whose last batch its leader has no more."""
    log, first = CommittedLog("orders-0"), batch(b"x", 0, sequence=0)
    take(log, first)
    take(log, batch(b"y", 1))
    log.record_led(1, 2, Replica(log=a_log_from(2, *epochs)))
    held = [first, batch(b"y" if parted_at is None else b"lost", 1)][:former_end]
    again = Replica(log=a_log_from(2))
    log.record_begun_anew(again, [(read_header(each), each) for each in held], 0, former_end)
    assert log.begun_anew == {again: 2}
    take(log, batch(b"z", 2))
    assert violation(lambda: take(log, batch(b"x", 3, sequence=0))) == expected
    assert violation(lambda: take(log, batch(b"x", 3, sequence=3))) == "I8"


def test_what_nobody_could_read_says_nothing_of_sequences() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0, sequence=0))
    take(log, batch(b"z", 2, sequence=2))
    assert log.end_offset == 3


def test_what_is_acknowledged_is_committed_as_it_was_sent() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0))
    log.acknowledge(0, batch(b"x", 0), "a", leader_epoch=2)
    assert log.acknowledged_end() == 1
    assert violation(lambda: log.acknowledge(0, batch(b"y", 0), "a", leader_epoch=2)) == "I6"
    assert violation(lambda: log.acknowledge(1, batch(b"z", 0), "a", leader_epoch=2)) == "I6"


def test_a_leader_answers_for_what_earlier_leaders_acknowledged() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0))
    take(log, batch(b"x", 1, epoch=1))
    log.acknowledge(0, batch(b"x", 0), "a", leader_epoch=0)
    log.acknowledge(1, batch(b"x", 1), "b", leader_epoch=1)
    assert [log.acknowledged_end(before_epoch=epoch) for epoch in range(3)] == [0, 1, 2]


def test_from_an_election_without_proof_until_its_leader_begins_nothing_is_known_past_it() -> None:
    log = committed_and_acknowledged(offsets=3)
    log.await_history(leader_epoch=1, parting_offset=1)
    assert log.acknowledged_end() == 1
    assert [log.may_checker(offset, newest_epoch=1) for offset in range(3)] == [True, False, False]
    log.acknowledge(3, batch(b"z", 3), "a", leader_epoch=0)
    assert not log.is_awaited(leader_epoch=0)
    assert log.lost_from == 1


def test_the_log_of_a_leader_without_proof_says_what_is_committed_then() -> None:
    log = committed_and_acknowledged(offsets=3)
    log.await_history(leader_epoch=1, parting_offset=0)  # as far as was known
    log.begin_history(leader_epoch=1, parting_offset=1)
    assert (log.acknowledged_end(), log.end_offset, log.lost_from) == (1, 1, 1)
    assert [log.may_checker(offset, newest_epoch=0) for offset in range(2)] == [True, False]
    assert log.may_checker(5, newest_epoch=1)
    take(log, batch(b"other", 1, epoch=1, sequence=1))
    log.acknowledge(1, batch(b"other", 1, sequence=1), "a", leader_epoch=1)
    assert log.acknowledged_end() == 2
    assert violation(lambda: take(log, batch(b"x", 1, sequence=1))) == "I3"
    assert violation(lambda: take(log, batch(b"y", 2, epoch=1, sequence=1))) == "I8"


def test_a_log_whose_batches_begin_elsewhere_parts_where_they_do() -> None:
    """Seed 22000778: retention had moved its start into a batch of the history before."""
    log = CommittedLog("orders-0")
    two_records = build_batch([NewRecord(None, b"x"), NewRecord(None, b"y")], timestamp_ms=1)
    take(log, batch(b"w", 0))
    take(log, two_records[:7] + b"\x01" + two_records[8:])
    other = batch(b"other", 2, epoch=2)
    assert log.differs(read_header(other), other)
    assert not log.differs(read_header(batch(b"x", 3)), batch(b"x", 3))
    log.begin_history(leader_epoch=3, parting_offset=2)
    assert (log.end_offset, log.lost_from) == (1, 1)
    take(log, other)
    assert log.end_offset == 3


def test_a_log_from_before_two_elections_without_proof_parts_where_the_first_did() -> None:
    log = committed_and_acknowledged(offsets=3)
    for epoch, parting_offset in ((1, 1), (3, 2)):
        log.await_history(epoch, parting_offset)
        log.begin_history(epoch, parting_offset)
        take(log, batch(b"other", parting_offset, epoch=epoch))
    checked_proposal = {
        epoch: [log.may_checker(offset, epoch) for offset in range(3)] for epoch in (0, 1, 3)
    }
    assert checked_proposal == {
        0: [True, False, False],
        1: [True, True, False],
        3: [True, True, True],
    }


def passed_over(*, is_led_early: bool) -> CommittedLog:
    """Epoch 2 was granted without proof to a log that parts at 1. It was heard of once epoch 3,
    granted to another in its stead, was stored, or its leader had begun at 3 and committed."""
    log, late = committed_and_acknowledged(offsets=3), object()
    log.await_history(leader_epoch=2, parting_offset=1)
    log.await_history(leader_epoch=3, parting_offset=3)
    if is_led_early:
        log.record_led(2, 2, late)  # type: ignore[arg-type]
    log.begin_history(leader_epoch=3, parting_offset=3)
    assert log.lost_from == (1 if is_led_early else 3)
    take(log, batch(b"new", 3, epoch=3, sequence=3))
    log.acknowledge(3, batch(b"new", 3, sequence=3), "b", leader_epoch=3)
    log.record_led(2, 2, late)  # type: ignore[arg-type]
    return log


@pytest.mark.parametrize("is_led_early", [True, False])
def test_who_hears_late_of_a_grant_without_proof_began_no_history_and_has_what_parts_there(
    *, is_led_early: bool
) -> None:
    log = passed_over(is_led_early=is_led_early)
    assert [log.may_checker(1, newest_epoch=epoch) for epoch in range(4)] == [False] * 3 + [True]
    assert all(log.may_checker(0, newest_epoch=epoch) for epoch in range(4))
    log.acknowledge(1, batch(b"other", 1), "a", leader_epoch=2)  # it stands alone
    assert log.lost_from == 1  # its readers saw it


def test_who_hears_late_of_a_grant_without_proof_need_not_hold_what_was_acknowledged() -> None:
    log = passed_over(is_led_early=False)
    assert [log.acknowledged_end(before_epoch=epoch) for epoch in (2, 3)] == [1, 3]
    assert log.acknowledged_end() == 4


def test_what_whoever_committed_it_had_damaged_is_known_of_the_first_that_has_it_whole() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0))
    take(log, batch(b"z", 2))
    take(log, batch(b"y", 1), "b")
    assert violation(lambda: take(log, batch(b"other", 1), "c")) == "I3"


@pytest.mark.parametrize("parting_offset", [2, 3])
def test_what_nobody_could_read_says_nothing_of_sequences_in_the_next_history_either(
    parting_offset: int,
) -> None:
    """The last committed batch of a producer was in it, and its next one comes after a last
    resort."""
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0, sequence=0))
    take(log, batch(b"z", 2))
    log.begin_history(leader_epoch=1, parting_offset=parting_offset)
    take(log, batch(b"next", parting_offset, epoch=1, sequence=2))
    assert violation(lambda: take(log, batch(b"y", parting_offset + 1, sequence=2))) == "I8"


def test_what_a_gap_lacked_and_somebody_has_whole_is_known_in_the_next_history() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0, sequence=0))
    take(log, batch(b"z", 2))
    take(log, batch(b"y", 1, sequence=1), "b")
    log.begin_history(leader_epoch=1, parting_offset=3)
    assert violation(lambda: take(log, batch(b"y", 3, epoch=1, sequence=1))) == "I8"


def test_what_a_gap_lacked_may_be_shown_by_whoever_has_it() -> None:
    log = CommittedLog("orders-0")
    take(log, batch(b"x", 0))
    take(log, batch(b"z", 2))
    shown, past = batch(b"y", 1), batch(b"y", 3)
    log.check_shown(read_header(shown), shown, "b")
    assert violation(lambda: log.check_shown(read_header(past), past, "b")) == "I7"


def committed_and_acknowledged(offsets: int) -> CommittedLog:
    log = CommittedLog("orders-0")
    for offset in range(offsets):
        data = batch(b"x", offset, sequence=offset)
        take(log, data)
        log.acknowledge(offset, data, "a", leader_epoch=0)
    return log


def test_the_leader_epoch_of_an_offset_is_that_of_the_batch_that_holds_it() -> None:
    log = CommittedLog("orders-0")
    for data in (batch(b"x", 0, epoch=2), batch(b"y", 1, epoch=5)):
        take(log, data)
    assert [log.epoch_at(offset) for offset in (-1, 0, 1, 2)] == [-1, 2, 5, -1]
    for epoch, expected in ((4, True), (5, False), (6, False), (7, True)):
        found = batch(b"y", 1, epoch=epoch)
        assert log.differs_in_epoch_only(read_header(found), found) is expected


def test_a_client_that_is_shown_a_damaged_batch_says_so() -> None:
    intact = batch(b"7", 4)
    assert records_shown(intact, 0) == [(4, 7)]
    corrupt = intact[:-1] + bytes([intact[-1] ^ 1])
    assert violation(lambda: records_shown(corrupt, 0)) == "I10"
    assert violation(lambda: records_shown(intact[:-1], 0)) == "I10"


def test_what_never_happened_is_a_row_too() -> None:
    result = CampaignResult(runs=1, coverage=Counter({"truncations": 3}))
    shown = io.StringIO()
    show_coverage(Console(file=shown, width=200), result)
    assert [name for name in ROWS if name not in shown.getvalue()] == []


def test_the_shrinker_keeps_only_the_faults_that_matter() -> None:
    faults = tuple(Fault(number, "kill_broker", (number,)) for number in range(20))
    needed = {3, 11, 12}
    kept = shrunk(faults, lambda some: needed <= {fault.at_us for fault in some})
    assert {fault.at_us for fault in kept} == needed


def test_a_picture_has_a_lane_per_broker_and_a_line_per_fault() -> None:
    replica = ReplicaSample("leader", 4, 10, 12)
    samples = [
        Sample(now_us, {("orders-0", broker): replica for broker in range(3)})
        for now_us in (0, 1_000_000)
    ]
    drawn = picture("seed 1", samples, [Mark(500_000, "kill <broker>")])
    assert [f">broker {number}<" in drawn for number in range(4)] == [True, True, True, False]
    assert "0.500 s  kill &lt;broker&gt;" in drawn
    assert drawn.count('class="mark"') == 1


def test_a_process_whose_pod_was_deleted_before_anybody_looked_is_watched() -> None:
    """55001379: it led, and what it committed was taken for nobody's."""

    class Previous:
        process_id, loop, is_alive = 1, object(), True

    lives = {Previous(): SimpleNamespace(partitions=object())}
    slot = SimpleNamespace(broker_id=2, process=object(), broker=None, lives=lives)
    cluster: Any = SimpleNamespace(brokers={2: slot})
    watched = ClusterObserver(cluster)
    assert [broker.process for broker in watched.live_brokers()] == [1]
