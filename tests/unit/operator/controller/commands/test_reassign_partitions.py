"""The decisions of moves between brokers and of a broker's retirement.

What a move may be: core/test_reassignment.py.
"""

from dataclasses import replace

import pytest
from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.controller.commands.reassign_partitions import reassign, retire
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    Evaluate,
    NotifyBrokers,
    SaveBroker,
)
from tidemark_operator.controller.core.reassignment import CannotReassign
from tidemark_protocol.ids import BrokerId

from tests.support.command_player import play, pool_state, slice_of
from tests.support.controller_values import TOPIC_ID, partition

LED = partition("0@7 1@7", leader="0@7", replicas=(0, 1))
TARGET = (BrokerId(0), BrokerId(2))


def test_a_move_is_written_and_then_evaluated() -> None:
    pool = pool_state(slice_of(LED))
    played = play(pool, reassign(pool, TOPIC_ID, {0: TARGET}))
    assert played.kinds == [ChangeSlice, Evaluate]
    assert played.result is None
    [value] = played.written
    assert value.partitions[0].adding_replicas == (2,)
    assert value.partitions[0].removing_replicas == (1,)


def test_moves_that_can_begin_do_before_the_others_are_an_error() -> None:
    waits = replace(partition("0@7 1@7", leader="1@7", replicas=(0, 1)), partition=1)
    pool = pool_state(slice_of(LED, waits), live=(0, 2), fenced=(1,))
    played = play(pool, reassign(pool, TOPIC_ID, {0: TARGET, 1: TARGET, 9: TARGET}))
    assert played.kinds == [ChangeSlice, Evaluate]
    assert [len(state.adding_replicas) for state in played.written[0].partitions] == [1, 0]
    with pytest.raises(CannotReassign, match=r"partition 1: its leader 1 is stopping.*partition 9"):
        _ = played.result


def test_nothing_is_written_when_no_move_can_begin() -> None:
    pool = pool_state(slice_of(LED))
    played = play(pool, reassign(pool, TOPIC_ID, {0: (BrokerId(0), BrokerId(8))}))
    assert played.decisions == []
    assert isinstance(played.error, CannotReassign)


def test_a_fenced_broker_without_replicas_is_stored_as_gone() -> None:
    pool = pool_state(slice_of(LED), live=(0, 1), fenced=(2,))
    gone = replace(pool.brokers[BrokerId(2)], state=BrokerControlState.GONE)
    version = pool.image.version
    played = play(pool, retire(pool, BrokerId(2)))
    assert played.decisions == [SaveBroker(gone), NotifyBrokers()]
    assert pool.image.version > version
    assert play(pool, retire(pool, BrokerId(2))).decisions == []


@pytest.mark.parametrize("number", [0, 1, 2, 5], ids=["leads", "fenced", "live", "unknown"])
def test_other_brokers_are_not_retired(number: int) -> None:
    pool = pool_state(slice_of(LED), live=(0, 2), fenced=(1,))
    assert play(pool, retire(pool, BrokerId(number))).decisions == []
