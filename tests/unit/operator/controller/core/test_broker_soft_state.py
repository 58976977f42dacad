"""Entries of slices that appear after a broker registered: which count as lost (S2, S9, S12)."""

import pytest
from tidemark_operator.controller.core.broker_soft_state import BrokerSoftState
from tidemark_protocol.ids import BrokerEpoch

from tests.support.controller_values import REPLICA, TOPIC_ID, member

OTHER_REPLICA = (TOPIC_ID, 1)
EPOCH = BrokerEpoch(7)


def registered_here() -> BrokerSoftState:
    """Of a broker that registered in epoch 7 with this controller and found the other replica."""
    return BrokerSoftState(found_replicas=frozenset({OTHER_REPLICA}), lost_below=EPOCH)


@pytest.mark.parametrize("epoch", [6, 8])
def test_an_entry_of_another_epoch_is_lost_if_no_log_was_found(epoch: int) -> None:
    soft_state = registered_here()
    soft_state.record_entry(REPLICA, member(f"0@{epoch}"))
    assert soft_state.lost_replicas == {REPLICA}


def test_an_entry_is_not_lost_if_it_has_the_present_epoch_or_its_log_was_found() -> None:
    soft_state = registered_here()
    soft_state.record_entry(REPLICA, member("0@7"))
    soft_state.record_entry(OTHER_REPLICA, member("0@6"))
    assert soft_state.lost_replicas == frozenset()


def test_an_entry_is_not_lost_if_another_controller_had_the_registration() -> None:
    soft_state = BrokerSoftState()
    soft_state.record_entry(REPLICA, member("0@6"))
    assert soft_state.lost_replicas == frozenset()


def test_restored_entry_of_another_epoch_is_lost_up_to_the_present_one() -> None:
    soft_state = BrokerSoftState(lost_replicas=frozenset({OTHER_REPLICA}))
    soft_state.record_entry_put_back(REPLICA, member("0@6"), EPOCH)
    assert soft_state.lost_replicas == {REPLICA, OTHER_REPLICA}
    assert soft_state.lost_below == EPOCH


def test_restored_entry_is_not_lost_if_it_has_the_present_epoch() -> None:
    soft_state = BrokerSoftState()
    soft_state.record_entry_put_back(REPLICA, member("0@7"), EPOCH)
    assert soft_state == BrokerSoftState()


def test_restored_entry_of_a_broker_that_registered_here_is_left_to_its_report() -> None:
    soft_state = registered_here()
    soft_state.record_entry_put_back(REPLICA, member("0@6"), EPOCH)
    assert soft_state == registered_here()
