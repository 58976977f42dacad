"""The search itself: a small bound explored whole, planted bugs found, counterexamples replayed."""

import inspect
from dataclasses import replace

import pytest
from tidemark_broker.replication.core import follower, leader

from tests.model.__main__ import PARTS
from tests.model.replicas import NO_STATE
from tests.model.search import Bounds, begun_in, explored, transcript
from tests.mutation.injected_bugs import INJECTED_BUGS, InjectedBug


def test_one_record_and_one_fault_break_nothing_in_any_order() -> None:
    kinds = ("kill", "fetch")  # all of them: `make sim-exhaustive`
    result = explored(begun_in("world"), Bounds(records=1, faults=1, kinds=kinds))
    assert result.broken == "", transcript("world", result)
    assert result.is_complete
    assert result.states > 3_000, "the search has become blind"


def test_every_part_explores_a_world_of_its_own() -> None:
    """The same numbers twice mean that what tells two worlds apart cannot happen within a bound."""
    counts = [
        explored(begun_in(part.situation), replace(part.bounds, depth=4)).states for part in PARTS
    ]
    assert len(set(counts)) == len(PARTS), counts


def test_a_bound_on_states_ends_in_the_middle_of_a_depth() -> None:
    bounds = Bounds(records=1, faults=1, states=500)
    result = explored(begun_in("world"), bounds)
    assert not result.is_complete
    assert 500 <= result.states < 500 + 50  # what one state leads to
    as_deep = replace(bounds, depth=result.depth, states=10_000)
    assert explored(begun_in("world"), as_deep).states <= result.states


@pytest.mark.parametrize("bug", INJECTED_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: InjectedBug) -> None:
    with bug.injected():
        result = explored(begun_in(bug.situation), bug.bounds)
        assert result.broken.startswith(bug.breaks), result
        # The counterexample is a transcript, and says the same when it is read.
        assert f"BROKEN {result.broken}" in transcript(bug.situation, result)
    as_deep = replace(bug.bounds, depth=len(result.path))
    clean = explored(begun_in(bug.situation), as_deep)
    assert clean.broken == "", transcript(bug.situation, clean)


@pytest.mark.parametrize("name", sorted(NO_STATE))
def test_what_is_left_out_of_a_state_is_an_attribute_of_a_core(name: str) -> None:
    """One that was renamed would count again, and the same world would have more states."""
    source = inspect.getsource(leader) + inspect.getsource(follower)
    assert f"self.{name}" in source
