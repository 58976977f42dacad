"""The judges of S16, S20 and S21 on values: what they notice, and what they let pass."""

from collections import Counter
from dataclasses import replace

import pytest
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tests.simulation.checks.lease_checks import LeaseChecker
from tests.simulation.checks.stall_checks import MoveChecker, check_evicted_in_vain
from tests.simulation.checks.violations import Violation
from tests.support.controller_values import partition

STALLS = Counter({"fault stall_broker": 1, "elections": 3})
SECOND_US = 1_000_000
ALL = "0@1 1@1 2@1"


def a_slice(state: PartitionState, controller_epoch: int = 1) -> PartitionSlice:
    config = {"replica.lag.time.max.ms": "5000"}
    topic = TopicState("orders", TopicId("orders-id"), 1, 3, config=config)
    epoch = ControllerEpoch(controller_epoch)
    return PartitionSlice("shop/default", "orders-0", topic, "Delete", False, epoch, (state,))


LED_BY = [a_slice(partition(ALL, leader=f"{number}@1")) for number in range(3)]


def test_who_never_stalled_is_not_evicted_where_others_only_stall() -> None:
    after = a_slice(partition("0@1 1@1", leader="0@1"))
    check_evicted_in_vain(LED_BY[0], after, STALLS, excused=[BrokerId(2)])
    others = STALLS + Counter({"fault kill_broker": 1})
    check_evicted_in_vain(LED_BY[0], after, others, excused=[])
    check_evicted_in_vain(after, LED_BY[0], STALLS, excused=[])
    with pytest.raises(Violation, match=r"S21.*brokers \[2\]"):
        check_evicted_in_vain(LED_BY[0], after, STALLS, excused=[BrokerId(0)])


def test_leadership_moves_off_a_leader_that_cannot_write_once_in_a_lag_window() -> None:
    checker = MoveChecker(lambda broker_id, epoch: True)
    checker.on_slice(LED_BY[0], LED_BY[1], 10 * SECOND_US)
    checker.on_slice(LED_BY[1], LED_BY[2], 14 * SECOND_US)  # its clock may be fast
    with pytest.raises(Violation, match="S20"):
        checker.on_slice(LED_BY[2], LED_BY[0], 17 * SECOND_US)


def test_a_move_is_one_by_a_controller_that_remembers_off_a_leader_that_stays_in_sync() -> None:
    checker = MoveChecker(lambda broker_id, epoch: broker_id != 2)
    checker.on_slice(LED_BY[0], LED_BY[1], 10 * SECOND_US)
    checker.on_slice(LED_BY[1], replace(LED_BY[2], controller_epoch=ControllerEpoch(2)), 11_000_000)
    checker.on_slice(LED_BY[2], LED_BY[0], 12 * SECOND_US)  # 2 can write: preferred leadership
    checker.on_slice(LED_BY[1], a_slice(partition("0@1 2@1", leader="0@1")), 12 * SECOND_US)
    checker.on_slice(LED_BY[1], a_slice(partition("0@1 1@2", leader="0@1")), 12 * SECOND_US)


def test_leadership_that_goes_back_is_no_move_in_a_lag_window_where_that_comes_often() -> None:
    """L5: to the preferred replica, whatever its leader's disk does."""
    checker = MoveChecker(lambda broker_id, epoch: True, balances_often=True)
    checker.on_slice(LED_BY[0], LED_BY[1], 10 * SECOND_US)
    checker.on_slice(LED_BY[1], LED_BY[0], 11 * SECOND_US)
    with pytest.raises(Violation, match="S20"):
        checker.on_slice(LED_BY[0], LED_BY[1], 12 * SECOND_US)


def test_the_lease_is_taken_above_all_that_objects_have_had_for_a_while() -> None:
    checker = LeaseChecker()
    checker.on_lease(ControllerEpoch(1), 0)
    checker.on_object(ControllerEpoch(1), SECOND_US)
    checker.on_object(ControllerEpoch(2), 9 * SECOND_US)
    checker.on_lease(ControllerEpoch(-1), 9 * SECOND_US)  # deleted by hand
    checker.on_lease(ControllerEpoch(2), 10 * SECOND_US)  # read before 2 was written
    checker.on_lease(ControllerEpoch(2), 20 * SECOND_US)  # renewed
    checker.on_lease(ControllerEpoch(-1), 20 * SECOND_US)
    with pytest.raises(Violation, match=r"S16.*controller epoch 2, stored was 2"):
        checker.on_lease(ControllerEpoch(2), 20 * SECOND_US)
