"""The judge of sessions: who is fenced although every controller could have heard it."""

from collections import Counter
from dataclasses import replace

import pytest
from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_protocol.ids import BrokerId

from tests.simulation.checks.session_checks import SESSION_US, check_not_in_vain, check_one_event
from tests.simulation.checks.violations import Violation
from tests.support.broker_records import a_record
from tests.support.controller_values import partition

ACTIVE = a_record(BrokerId(1))
FENCED = replace(ACTIVE, state=BrokerControlState.FENCED)
CONTROLLERS_DIE = Counter({"fault kill_controller": 2, "elections": 1})


def test_who_is_fenced_while_only_controllers_die_was_fenced_in_vain() -> None:
    with pytest.raises(Violation, match="broker 1 was fenced"):
        check_not_in_vain(ACTIVE, FENCED, CONTROLLERS_DIE, is_held_down=False)


def test_who_was_killed_once_all_was_well_again_was_not_fenced_in_vain() -> None:
    """Seed 10000635: the run's own kill, at its end, to see when others lead."""
    check_not_in_vain(ACTIVE, FENCED, CONTROLLERS_DIE, is_held_down=True)


def test_where_anything_else_befell_the_world_nobody_is_judged() -> None:
    others = CONTROLLERS_DIE + Counter({"fault kill_broker": 1})
    check_not_in_vain(ACTIVE, FENCED, others, is_held_down=False)


def test_a_controller_that_the_healing_lets_hear_again_may_fence_whom_it_hears_last() -> None:
    """Seed 31000292 of "controllers go deaf"."""
    deaf = Counter({"fault deafen_controller": 1})
    check_not_in_vain(ACTIVE, FENCED, deaf, is_held_down=False, healed_for_us=SESSION_US - 1)
    for healed_for_us in (None, SESSION_US):
        with pytest.raises(Violation, match="broker 1 was fenced"):
            check_not_in_vain(ACTIVE, FENCED, deaf, is_held_down=False, healed_for_us=healed_for_us)
    with pytest.raises(Violation, match="broker 1 was fenced"):
        check_not_in_vain(ACTIVE, FENCED, CONTROLLERS_DIE, is_held_down=False, healed_for_us=0)


@pytest.mark.parametrize("before", [None, FENCED], ids=["new", "fenced"])
def test_who_was_not_active_was_not_fenced_in_vain(before: BrokerRecord | None) -> None:
    check_not_in_vain(before, FENCED, CONTROLLERS_DIE, is_held_down=False)


def test_who_fell_silent_with_the_leader_does_not_lead_after_it_nor_is_it_waited_for() -> None:
    two_die, up = Counter({"fault lose_two_and_controller": 1}), [BrokerId(0)]
    old = partition("0@1 1@1 2@1", leader="2@1")
    later = {"leader_epoch": 6, "partition_epoch": 10}
    check_one_event(old, partition("0@1", leader="0@1", **later), two_die, up=up)
    for half in (partition("0@1 1@1", leader="1@1", **later), partition("0@1 1@1", **later)):
        with pytest.raises(Violation, match="sessions"):
            check_one_event(old, half, two_die, up=up)
        check_one_event(old, half, CONTROLLERS_DIE, up=up)
    check_one_event(old, partition("", **later), two_die, up=up)  # nobody may lead


def test_other_writes_of_an_active_broker_are_none_of_it() -> None:
    check_not_in_vain(ACTIVE, replace(ACTIVE, rack="b"), CONTROLLERS_DIE, is_held_down=False)
