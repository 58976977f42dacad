"""The judge of simulated groups: what it lets pass, and what it does not."""

from tests.simulation.checks.group_checks import NOTHING, GroupChecks, mark_of, metadata_of

COORDINATOR, FORMER = 1, 2


def checks(*, is_excused: bool = False, may_forget: bool = False) -> GroupChecks:
    return GroupChecks(
        "g", (0, 1), lambda: is_excused, lambda: may_forget, lambda broker: broker == COORDINATOR
    )


def violation(found: GroupChecks) -> str:
    return "" if found.violation is None else found.violation.name


def test_a_mark_comes_back_from_what_was_committed() -> None:
    assert mark_of(7, metadata_of(3)) == (3, 7)
    assert mark_of(-1, "") == NOTHING


def test_an_acknowledged_commit_that_is_gone_is_a_violation() -> None:
    found = checks()
    found.on_committed(0, NOTHING, (1, 5))
    found.on_fetched(0, found.acknowledged(0), (1, 5), 1, by=COORDINATOR)
    assert violation(found) == ""
    found.on_fetched(0, found.acknowledged(0), (1, 4), 1, by=COORDINATOR)
    assert violation(found) == "G1"


def test_a_member_of_a_former_generation_may_hear_what_its_coordinator_last_knew() -> None:
    found = checks()
    found.on_committed(0, NOTHING, (1, 5))
    found.on_committed(0, found.acknowledged(0), (2, 7))
    found.on_fetched(0, found.acknowledged(0), (1, 5), 1, by=COORDINATOR)
    assert violation(found) == ""
    found.on_fetched(0, found.acknowledged(0), (1, 5), 2, by=COORDINATOR)
    assert violation(found) == "G1"


def test_so_may_one_of_the_same_generation_that_went_back_to_a_former_coordinator() -> None:
    found = checks()
    found.on_committed(0, NOTHING, (1, 5))
    found.on_fetched(0, found.acknowledged(0), (1, 4), 1, by=FORMER)
    assert violation(found) == ""
    found.on_fetched(0, found.acknowledged(0), (0, 4), 2, by=FORMER)
    assert violation(found) == "G1"


def test_what_was_acknowledged_while_it_was_asked_need_not_be_seen() -> None:
    found = checks()
    before = found.acknowledged(0)
    found.on_committed(0, NOTHING, (1, 5))
    found.on_fetched(0, before, NOTHING, 1, by=COORDINATOR)
    assert violation(found) == ""


def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    found = checks(may_forget=True)
    found.on_committed(0, NOTHING, (1, 5))
    found.on_fetched(0, found.acknowledged(0), NOTHING, 1, by=COORDINATOR)
    assert violation(found) == ""


def test_two_owners_in_one_generation_are_a_violation_and_in_two_are_none() -> None:
    found = checks()
    found.on_assigned("a", 1, (0,))
    found.on_assigned("b", 2, (0,))
    found.on_assigned("a", 1, (0,))
    assert violation(found) == ""
    found.on_assigned("b", 1, (0,))
    assert violation(found) == "G2"


def test_a_commit_of_a_former_generation_after_a_later_one_is_a_violation() -> None:
    found = checks()
    found.on_committed(0, NOTHING, (2, 5))
    found.on_committed(0, found.acknowledged(0), (1, 9))
    assert violation(found) == "G3"


def test_a_log_that_lost_something_itself_excuses_its_groups() -> None:
    found = checks(is_excused=True)
    found.on_committed(0, NOTHING, (2, 5))
    found.on_fetched(0, found.acknowledged(0), NOTHING, 1, by=COORDINATOR)
    assert violation(found) == ""


def test_a_group_goes_on_when_everything_is_held_once_and_committed_again() -> None:
    found = checks()
    found.on_assigned("a", 1, (0, 1))
    found.on_assigned("b", 2, (1,))
    assert found.missing() == "generation 2 holds [1] of (0, 1)"
    found.on_assigned("a", 2, (0,))
    found.heal()
    assert found.missing() == "no commit yet for [0, 1]"
    found.on_committed(0, NOTHING, (2, 1))
    found.on_committed(1, NOTHING, (2, 1))
    assert found.missing() == ""
