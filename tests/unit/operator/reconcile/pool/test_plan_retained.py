"""Where retained data of deleted topics moves when its brokers are to be emptied."""

from dataclasses import replace

from tidemark_operator.controller.core.reassignment import reassigned
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.pool.plan_retained import RetainedMoves, plan_retained_moves
from tidemark_operator.reconcile.topic.plan_placement import MAX_MOVES
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_values import eligibility, partition, topic
from tests.unit.operator.reconcile.placement_values import ids, places, spec_of, view_of


def at_rest(*replicas: int, number: int = 0) -> PartitionState:
    members = " ".join(f"{each}@{each + 1}" for each in replicas)
    return replace(partition(members), replicas=ids(*replicas), partition=number)


def retained_view(*states: PartitionState) -> TopicView:
    view = view_of(spec_of(partitions=len(states)), *states)
    return replace(view, is_retained=True)


def test_retained_data_leaves_brokers_that_are_to_be_emptied_and_nothing_else_moves() -> None:
    view = retained_view(at_rest(0, 1), at_rest(1, 2, number=1), at_rest(0, number=2))
    moves = plan_retained_moves([view], places(4, 2))
    assert moves.targets == ((view.topic, {1: ids(1, 3)}),)
    assert plan_retained_moves([view], places(4)) == RetainedMoves()
    assert plan_retained_moves([replace(view, is_retained=False)], places(4, 2)).targets == ()


def test_retained_data_under_way_is_told_with_what_it_waits_for() -> None:
    moving = reassigned(
        topic(), at_rest(0, 2), eligibility("0@1", "1@2", "2@3"), ids(0, 1), is_retained=True
    )
    moves = plan_retained_moves([retained_view(moving)], places(3, 2))
    assert (moves.targets, moves.waiting) == ((), ())
    assert moves.under_way == (
        "deleted topic orders, partition 0 to brokers 0,1: waiting for 1 to be in sync",
    )


def test_moves_of_retained_data_are_bounded_together() -> None:
    states = [at_rest(2, number=number) for number in range(MAX_MOVES)]
    first, second = retained_view(*states), retained_view(*states)
    second = replace(second, topic=replace(second.topic, topic_id=TopicId("other")))
    moves = plan_retained_moves([first, second], places(3, 2))
    assert sum(len(targets) for _, targets in moves.targets) == MAX_MOVES


def test_what_waits_is_named_before_what_is_under_way_and_names_have_an_end() -> None:
    moves = RetainedMoves(under_way=("u1", "u2"), waiting=("w1", "w2")).and_waiting(("w3",))
    assert moves.sentences() == ["w1", "w2", "w3", "u1", "u2"]
    one_more = moves.and_waiting(("w4",)).sentences()
    assert one_more == ["w1", "w2", "w3", "w4", "u1", "and 1 more partitions of deleted topics"]
    assert RetainedMoves().sentences() == []
