"""The decisions that change a broker's state, and what is known before they are stored."""

from dataclasses import replace

import pytest
from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_operator.controller.commands import broker_state
from tidemark_operator.controller.core.decision import (
    ChangeSlices,
    Decision,
    Deferred,
    Evaluate,
    EvaluateAndSave,
    NotifyBrokers,
    Outcome,
    SaveBroker,
)
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_protocol.controller_messages import CommittedTruncation
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

from tests.support.command_player import SLICE, Played, play, pool_state, slice_of
from tests.support.controller_values import TOPIC_ID, partition

BROKER = BrokerId(1)
EPOCH = BrokerEpoch(7)
LATER = BrokerEpoch(8)
LED = partition("0@7 1@7", leader="0@7")


def now_ms() -> int:
    return 5


def in_state(pool: PoolState, state: BrokerControlState) -> BrokerRecord:
    return replace(pool.brokers[BROKER], state=state)


def drain(pool: PoolState) -> Played[None]:
    return play(pool, broker_state.drain(pool, BROKER, EPOCH, now_ms))


def test_a_broker_is_active_once_that_is_stored_and_then_elections_run() -> None:
    pool = pool_state(live=(0,), fenced=(1,))
    active = in_state(pool, BrokerControlState.ACTIVE)
    played = play(pool, broker_state.activate(pool, BROKER, EPOCH, now_ms))
    expected: list[Decision] = [SaveBroker(active), Evaluate()]
    assert played.decisions == expected
    assert pool.sessions.expire(5, pool_size=2).expired == ()


def test_a_broker_whose_record_cannot_be_stored_stays_fenced() -> None:
    pool = pool_state(live=(0,), fenced=(1,))
    steps = broker_state.activate(pool, BROKER, EPOCH, now_ms)
    played = play(pool, steps, deferred=["broker 1"])
    assert isinstance(played.error, Deferred)
    assert not pool.brokers[BROKER].is_live


def test_nothing_is_written_for_a_live_broker_or_another_epoch() -> None:
    pool = pool_state()
    assert play(pool, broker_state.activate(pool, BROKER, EPOCH, now_ms)).decisions == []
    for steps in (
        broker_state.activate(pool, BROKER, LATER, now_ms),
        broker_state.drain(pool, BROKER, LATER, now_ms),
        broker_state.fence(pool, [(BROKER, LATER)], "test"),
        broker_state.fail_storage(pool, BROKER, LATER),
        broker_state.evaluate_failures(pool, BROKER, LATER),
    ):
        assert play(pool, steps).decisions == []


def test_a_drain_counts_at_once_and_its_version_once_all_is_stored() -> None:
    pool = pool_state()
    expected: list[Decision] = [EvaluateAndSave((BROKER,)), NotifyBrokers()]
    assert drain(pool).decisions == expected
    assert pool.brokers[BROKER].is_stopping
    assert pool.soft_state_of(BROKER).drained_at_version == pool.image.version
    assert drain(pool).decisions == []


def test_a_drain_that_is_deferred_has_no_version_yet() -> None:
    pool = pool_state()
    steps = broker_state.drain(pool, BROKER, EPOCH, now_ms)
    assert next(steps) == EvaluateAndSave((BROKER,))
    assert steps.send(Outcome(is_complete=False)) == NotifyBrokers()
    assert pool.brokers[BROKER].is_stopping
    assert pool.soft_state_of(BROKER).drained_at_version is None


def test_brokers_that_fall_together_are_fenced_before_anything_is_evaluated() -> None:
    pool = pool_state()
    fenced = (BrokerId(0), BROKER)
    steps = broker_state.fence(pool, [(each, EPOCH) for each in fenced], "test")
    assert next(steps) == EvaluateAndSave(fenced, leaving=fenced)
    assert [pool.brokers[each].is_live for each in fenced] == [False, False]


def test_a_failed_disk_is_stored_before_its_entries_are_removed() -> None:
    pool = pool_state()
    failed = replace(in_state(pool, BrokerControlState.FENCED), clean_since=LATER, disk_since=LATER)
    played = play(pool, broker_state.fail_storage(pool, BROKER, EPOCH))
    expected: list[Decision] = [SaveBroker(failed), EvaluateAndSave((), leaving=(BROKER,))]
    assert played.decisions == expected
    assert play(pool, broker_state.fail_storage(pool, BROKER, EPOCH)).decisions == []


def test_failures_count_as_evaluated_if_all_is_stored_and_only_those_of_the_beginning() -> None:
    for is_complete in (True, False):
        pool = pool_state(slice_of(LED))
        notes = pool.soft_state_of(BROKER)
        reported = notes.failed_replicas = frozenset({(TOPIC_ID, 0)})
        steps = broker_state.evaluate_failures(pool, BROKER, EPOCH)
        assert next(steps) == Evaluate()
        notes.failed_replicas = frozenset()  # a later heartbeat
        with pytest.raises(StopIteration):
            steps.send(Outcome(is_complete=is_complete))
        assert notes.evaluated_failures == (reported if is_complete else frozenset())


def test_truncations_are_one_step_for_all_slices_of_their_topics() -> None:
    cut = CommittedTruncation(
        TOPIC_ID,
        0,
        LeaderEpoch(5),
        to_offset=Offset(3),
        last_epoch=LeaderEpoch(4),
        log_end_offset=Offset(9),
        high_watermark=Offset(7),
    )
    pool = pool_state(slice_of(LED))
    played = play(pool, broker_state.record_truncations(pool, (cut,)))
    assert (played.kinds, played.result) == ([ChangeSlices], True)
    pool = pool_state(slice_of(LED))
    played = play(pool, broker_state.record_truncations(pool, (cut,)), deferred=[SLICE])
    assert played.result is False
