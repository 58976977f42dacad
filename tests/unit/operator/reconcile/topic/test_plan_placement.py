"""Which replicas should be elsewhere: placement, replicationFactor, brokers to be emptied."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.schemas import validate
from tidemark_operator.reconcile.topic.conditions import ready_conditions
from tidemark_operator.reconcile.topic.plan import plan_topic
from tidemark_operator.reconcile.topic.plan_placement import (
    MAX_MOVES,
    replica_counts,
    wanted_moves,
)
from tidemark_protocol.ids import BrokerId

from tests.support.controller_values import partition
from tests.unit.operator.reconcile.placement_values import (
    WHOLE,
    ids,
    manifest,
    observed,
    places,
    spec_of,
    view_of,
)


def test_a_partition_moves_where_placement_says_and_the_others_stay() -> None:
    spec = spec_of(partitions=2, placement=[{"partition": 1, "replicas": [3, 1, 2]}])
    view = view_of(spec, WHOLE, replace(WHOLE, partition=1))
    assert wanted_moves(spec, view, places(4)) == {1: ids(3, 1, 2)}


def test_a_broker_to_be_emptied_is_replaced_in_its_own_place() -> None:
    spec = spec_of()
    assert wanted_moves(spec, view_of(spec, WHOLE), places(4, 0)) == {0: ids(3, 1, 2)}
    assert wanted_moves(spec, view_of(spec, WHOLE), places(4, 1)) == {0: ids(0, 3, 2)}


def test_nothing_moves_to_a_broker_that_is_away_or_to_too_few() -> None:
    spec = spec_of()
    assert wanted_moves(spec, view_of(spec, WHOLE), places(4, 0, away=(3,))) == {}
    assert wanted_moves(spec, view_of(spec, WHOLE), places(3, 0)) == {}


def test_a_placement_on_a_broker_to_be_emptied_is_told_and_moves_nothing() -> None:
    spec = spec_of(placement=[{"partition": 0, "replicas": [0, 1, 2]}])
    plan = plan_topic(observed(spec, view_of(spec, WHOLE), 4, 2))
    assert plan.action is None
    (placed,) = (condition for condition in plan.conditions if condition.type == "Placed")
    assert (placed.is_true, placed.reason) == (False, "PlacementOnLeavingBroker")
    assert "partitions 0 on brokers to drain (2)" in placed.message


def test_entries_that_nobody_can_follow_use_up_no_place_of_brokers_to_be_emptied() -> None:
    many = 150
    impossible = [{"partition": number, "replicas": [9, 1, 2]} for number in range(many)]
    spec = spec_of(partitions=many + 1, placement=impossible)
    view = view_of(spec, *(replace(WHOLE, partition=number) for number in range(many + 1)))
    moves = wanted_moves(spec, view, places(4, 0))
    assert (moves[many], len(moves)) == (ids(3, 1, 2), MAX_MOVES)


def test_a_move_under_way_is_left_alone() -> None:
    spec = spec_of()
    state = partition(
        "0@1 1@2 2@3", leader="0@1", replicas=(3, 1, 2, 0), adding=(3,), removing=(0,)
    )
    assert wanted_moves(spec, view_of(spec, state), places(4, 0)) == {}


def test_a_partition_without_a_leader_waits() -> None:
    spec = spec_of()
    assert wanted_moves(spec, view_of(spec, partition("", eligible="0@1")), places(4, 0)) == {}


def test_a_rack_that_the_partition_lacks_is_preferred() -> None:
    spec = spec_of()
    racks = dict(zip(ids(0, 1, 2, 3, 4), ("a", "b", "c", "b", "a"), strict=True))
    found = wanted_moves(spec, view_of(spec, WHOLE), replace(places(5, 0), racks=racks))
    assert found == {0: ids(4, 1, 2)}


def test_the_condition_names_what_a_move_waits_for() -> None:
    spec = spec_of()
    state = partition(
        "0@1 1@2 2@3", leader="0@1", replicas=(3, 1, 2, 0), adding=(3,), removing=(0,)
    )
    conditions = {c.type: c for c in plan_topic(observed(spec, view_of(spec, state), 4)).conditions}
    assert conditions["Moving"].message == (
        "partition 0 to brokers 3,1,2: waiting for 3 to be in sync"
    )
    assert conditions["FullyReplicated"].is_true  # nothing is missing of what was there


@pytest.mark.parametrize(
    ("in_sync", "reason", "message"),
    [
        ("0@1 1@2 2@3", "AllInSync", "every replica is in sync"),
        ("0@1 1@2", "UnderReplicated", "under-replicated: partitions 0"),
        (
            "0@1",
            "BelowMinInsync",
            "below min.insync.replicas, acks=all writes are rejected: partitions 0; "
            "under-replicated: partitions 0",
        ),
    ],
)
def test_the_condition_says_whether_acks_all_is_refused(
    in_sync: str, reason: str, message: str
) -> None:
    """Such a Topic is Ready: it is led."""
    view = view_of(spec_of(), partition(in_sync, leader="0@1", min_insync=2))
    found = {c.type: c for c in ready_conditions(view)}
    assert found["Ready"].is_true
    assert (found["FullyReplicated"].reason, found["FullyReplicated"].message) == (reason, message)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"partition": 1, "replicas": [0, 1, 2]}, "a partition that does not exist"),
        ({"partition": 0, "replicas": [0, 1]}, "must list replicationFactor brokers"),
        ({"partition": 0, "replicas": [0, 1, 1]}, "a broker twice"),
    ],
)
def test_placements_that_cannot_be_are_refused(entry: dict[str, Any], sentence: str) -> None:
    (found,) = validate(manifest(placement=[entry]))
    assert sentence in found


def test_replicas_are_not_counted_while_a_slice_is_missing() -> None:
    spec = spec_of()
    view = view_of(spec, WHOLE)
    assert replica_counts([view]) == {BrokerId(0): 1, BrokerId(1): 1, BrokerId(2): 1}
    assert replica_counts([view, replace(view, missing_slices=("orders-1",))]) is None
    assert replica_counts([view, replace(view, partitions=())]) is None
