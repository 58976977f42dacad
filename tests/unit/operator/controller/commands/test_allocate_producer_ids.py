"""The decisions of an allocation of producer ids; across controllers: regression S5."""

from dataclasses import replace

from tidemark_operator.api.broker import BLOCK_SIZE, first_producer_id
from tidemark_operator.controller.commands.allocate_producer_ids import allocate
from tidemark_operator.controller.core.decision import SaveBroker
from tidemark_protocol.controller_messages import AllocateProducerIdsRequest
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.command_player import POOL, play, pool_state

BROKER = BrokerId(1)


def request(epoch: int = 7) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(POOL, BROKER, BrokerEpoch(epoch))


def test_a_round_is_stored_as_used_before_its_ids_are_given() -> None:
    state = pool_state()
    record, number = state.brokers[BROKER], state.next_producer_id_round()
    played = play(state, allocate(state, request()))
    assert played.decisions == [SaveBroker(replace(record, producer_id_round=number))]
    assert played.result.error is ErrorCode.NONE
    assert played.result.first_producer_id == first_producer_id(number, BROKER)
    assert played.result.count == BLOCK_SIZE


def test_a_round_whose_write_is_deferred_is_not_given_and_not_used_again() -> None:
    state = pool_state()
    number = state.next_producer_id_round()
    played = play(state, allocate(state, request()), deferred=["broker 1"])
    assert played.result.error is ErrorCode.REQUEST_TIMED_OUT
    assert state.next_producer_id_round() > number


def test_another_epoch_of_the_broker_gets_none_and_nothing_is_written() -> None:
    state = pool_state()
    played = play(state, allocate(state, request(epoch=6)))
    assert (played.decisions, played.result.error) == ([], ErrorCode.STALE_BROKER_EPOCH)
