"""The decisions of a registration in their order; what a start proves: regression S1 to S9."""

from dataclasses import replace
from uuid import UUID

from tidemark_operator.controller.commands.register_broker import register
from tidemark_operator.controller.core.decision import (
    ConfirmBroker,
    Evaluate,
    EvaluateLater,
    Outcome,
    ReportChange,
    SaveBroker,
    Steps,
    UnsettleSlices,
)
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_protocol.controller_messages import RegisterRequest, RegisterResponse
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.support.broker_records import NOWHERE, storage_of
from tests.support.command_player import POOL, Played, play, pool_state, slice_of
from tests.support.controller_values import partition

BROKER = BrokerId(1)
EPOCH = BrokerEpoch(7)
SETTINGS = ControllerSettings()


def request(incarnation: str = "second", *, stopped_in: int = -1) -> RegisterRequest:
    return RegisterRequest(
        POOL,
        BROKER,
        cluster_id="c",
        incarnation=incarnation,
        endpoints=NOWHERE,
        rack="",
        storage=storage_of(BROKER),
        clean_stop_epoch=BrokerEpoch(stopped_in),
        highest_controller_epoch=ControllerEpoch(1),
        highest_broker_epoch=EPOCH,
        highest_producer_id=-1,
    )


def registration(pool: PoolState, asked: RegisterRequest) -> Steps[RegisterResponse]:
    return register(
        pool,
        asked,
        SETTINGS,
        wall_clock_ms=1_700_000_000_000,
        now_ms=lambda: 5,
        new_uuid=lambda: UUID(int=1),
    )


def registered(pool: PoolState, asked: RegisterRequest) -> Played[RegisterResponse]:
    return play(pool, registration(pool, asked))


def test_a_new_broker_is_stored_and_then_its_report_counts() -> None:
    pool = pool_state(live=(0, 2))
    played = registered(pool, request())
    assert played.kinds == [UnsettleSlices, SaveBroker, Evaluate]
    assert played.result.error is ErrorCode.NONE
    assert played.result.broker_epoch == pool.brokers[BROKER].broker_epoch == EPOCH + 1


def test_a_former_life_is_confirmed_and_fenced_before_the_next_one_is_stored() -> None:
    pool = pool_state(slice_of(partition("0@7 1@7", leader="0@7")))
    former = pool.brokers[BROKER]
    played = registered(pool, request())
    assert played.kinds == [UnsettleSlices, ConfirmBroker, Evaluate, SaveBroker, Evaluate]
    assert played.decisions[1] == ConfirmBroker(former)
    first, last = played.decisions[2], played.decisions[4]
    assert isinstance(first, Evaluate)
    [leaving] = first.overriding
    assert (leaving.broker_id, leaving.broker_epoch, leaving.is_live) == (BROKER, EPOCH, False)
    assert last == Evaluate()
    assert pool.replaced[BROKER][0] == former.incarnation


def test_a_clean_start_needs_no_confirmation() -> None:
    pool = pool_state()
    played = registered(pool, request(stopped_in=7))
    assert played.kinds == [UnsettleSlices, Evaluate, SaveBroker, Evaluate]
    assert played.result.is_clean


def test_no_epoch_is_given_while_the_former_life_is_not_fenced() -> None:
    pool = pool_state()
    steps = registration(pool, request(stopped_in=7))
    assert isinstance(next(steps), UnsettleSlices)
    assert isinstance(steps.send(Outcome()), Evaluate)
    assert steps.send(Outcome(is_complete=False)) == EvaluateLater()
    played = play(pool, steps)
    assert played.result.error is ErrorCode.REQUEST_TIMED_OUT
    assert pool.brokers[BROKER].broker_epoch == EPOCH


def test_an_epoch_that_cannot_be_stored_is_not_given() -> None:
    pool = pool_state()
    played = play(pool, registration(pool, request(stopped_in=7)), deferred=["broker 1"])
    assert played.kinds == [UnsettleSlices, Evaluate, SaveBroker, EvaluateLater]
    assert played.result.error is ErrorCode.REQUEST_TIMED_OUT


def test_the_same_process_is_told_its_epoch_again_and_nothing_is_stored() -> None:
    pool = pool_state()
    pool.reports_wanted = 0
    played = registered(pool, request(pool.brokers[BROKER].incarnation))
    assert played.kinds == [UnsettleSlices, Evaluate, ReportChange]
    assert played.result.broker_epoch == EPOCH


def test_a_process_that_was_replaced_gets_no_epoch_and_nothing_is_written() -> None:
    pool = pool_state()
    pool.record_replaced(replace(pool.brokers[BROKER], incarnation="zeroth"))
    played = registered(pool, request("zeroth"))
    assert played.decisions == []
    assert played.result.error is not ErrorCode.NONE
