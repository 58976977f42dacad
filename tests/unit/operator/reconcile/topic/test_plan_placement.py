"""Which replicas should be elsewhere: placement, replicationFactor, brokers to be emptied."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.objects import ObjectMetadata
from tidemark_operator.api.schemas import validate
from tidemark_operator.api.topic import Topic, TopicSpec
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
    StartBroker,
    StopBroker,
)
from tidemark_operator.controller.core.reassignment import reassigned
from tidemark_operator.controller.core.views import BrokerView, TopicView
from tidemark_operator.reconcile.conditions import MAX_MESSAGE_CHARACTERS
from tidemark_operator.reconcile.pool.plan_drain import plan_drain
from tidemark_operator.reconcile.pool.plan_retained import RetainedMoves, plan_retained_moves
from tidemark_operator.reconcile.retained_data import retained_replicas
from tidemark_operator.reconcile.topic.conditions import ready_conditions
from tidemark_operator.reconcile.topic.plan import (
    AddPartitions,
    ObservedTopic,
    Reassign,
    UpdateTopic,
    plan_topic,
)
from tidemark_operator.reconcile.topic.plan_placement import (
    MAX_MOVES,
    BrokerPlacement,
    replica_counts,
    unknown_topics,
    wanted_moves,
)
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.support.api_objects import parsed
from tests.support.controller_values import eligibility, partition, topic

TOPIC_ID = TopicId("7f1c0000-0000-0000-0000-000000000001")
WHOLE = partition("0@1 1@2 2@3", leader="0@1")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "orders", "namespace": "shop", "uid": TOPIC_ID},
        "spec": spec,
    }


def spec_of(**spec: Any) -> TopicSpec:
    return parsed(Topic, manifest(**spec)).spec


def view_of(spec: TopicSpec, *states: Any, factor: int = 3) -> TopicView:
    stored = replace(
        topic(), config=spec.config, replication_factor=factor, partition_count=spec.partitions
    )
    return TopicView(stored, states, "orders", "Retain", is_retained=False)


def places(count: int, *leaving: int, away: tuple[int, ...] = ()) -> BrokerPlacement:
    usable = tuple(b for b in ids(*range(count)) if b not in leaving)
    active = frozenset(b for b in ids(*range(count)) if b not in away)
    return BrokerPlacement(usable, frozenset(ids(*leaving)), active)


def observed(spec: TopicSpec, view: TopicView, replicas: int, *leaving: int) -> ObservedTopic:
    metadata = ObjectMetadata(name="orders", namespace="shop", uid=TOPIC_ID)
    return ObservedTopic(
        Topic(metadata=metadata, spec=spec),
        TOPIC_ID,
        view,
        pool_replicas=replicas,
        active_brokers=frozenset(ids(*range(replicas))),
        leaving=frozenset(ids(*leaving)),
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


def test_more_replicas_are_moved_in_first_and_counted_then() -> None:
    spec = spec_of(replicationFactor=3)
    one = partition("0@1", leader="0@1", replicas=(0,), min_insync=1)
    view = view_of(spec, one, factor=1)
    plan = plan_topic(observed(spec, view, 3))
    assert plan.action == Reassign(TOPIC_ID, {0: ids(0, 1, 2)})
    there = view_of(spec, replace(WHOLE, min_insync_replicas=1), factor=1)
    update = plan_topic(observed(spec, there, 3)).action
    assert isinstance(update, UpdateTopic)
    assert update.topic.replication_factor == 3


def test_fewer_replicas_are_counted_first_and_leave_then() -> None:
    spec = spec_of(replicationFactor=1)
    update = plan_topic(observed(spec, view_of(spec, WHOLE), 3)).action
    assert isinstance(update, UpdateTopic)
    view = view_of(spec, WHOLE, factor=1)
    assert plan_topic(observed(spec, view, 3)).action == Reassign(TOPIC_ID, {0: ids(0)})


def test_growth_places_new_partitions_on_brokers_that_stay() -> None:
    spec = spec_of(partitions=3)
    view = view_of(spec, WHOLE)
    view = replace(view, topic=replace(view.topic, partition_count=1))
    action = plan_topic(observed(spec, view, 5, 1)).action
    assert isinstance(action, AddPartitions)
    assert action.assignments == (ids(2, 3, 4), ids(3, 4, 0))


def grown(spec: TopicSpec, *states: PartitionState) -> TopicView:
    """Of fewer partitions than the spec asks for."""
    view = view_of(spec, *states)
    return replace(view, topic=replace(view.topic, partition_count=len(states)))


def test_growth_while_brokers_are_to_be_emptied_is_told_with_what_to_do() -> None:
    spec = spec_of(partitions=4)
    plan = plan_topic(observed(spec, grown(spec, WHOLE), 3, 2))
    assert (plan.action, plan.is_waiting) == (None, True)
    (ready,) = (condition for condition in plan.conditions if condition.type == "Ready")
    assert (ready.is_true, ready.reason) == (False, "NotEnoughBrokers")
    assert ready.message == (
        "partitions 1, 2, 3 are not created yet: replicationFactor 3 needs 3 brokers, BrokerPool"
        " default has 2 besides the brokers to drain (2): set its spec.replicas to at least"
        " 4, or remove brokers from its spec.drain"
    )


def test_growth_that_waits_holds_up_neither_a_config_nor_a_move() -> None:
    spec = spec_of(partitions=4, config={"retention.ms": "1000"})
    view = grown(spec_of(partitions=4), WHOLE)
    update = plan_topic(observed(spec, view, 3, 2)).action
    assert isinstance(update, UpdateTopic)
    assert (update.topic.config, update.topic.partition_count) == (spec.config, 1)
    updated = replace(view, topic=replace(view.topic, config=spec.config))
    assert plan_topic(observed(spec, updated, 3, 2)).action is None
    away = observed(spec, updated, 5, 2)
    away = replace(away, active_brokers=frozenset(ids(0, 1, 3)), racks={}, pool_has_racks=True)
    plan = plan_topic(away)  # the racks of new brokers are not known, the drain goes on
    assert plan.action == Reassign(TOPIC_ID, {0: ids(0, 1, 3)})
    assert "WaitingForBrokers" in [c.reason for c in plan.conditions]


def test_growth_that_waits_hides_no_partition_without_a_leader() -> None:
    spec = spec_of(partitions=2)
    plan = plan_topic(observed(spec, grown(spec, partition("", eligible="0@1")), 3, 2))
    texts = [c.message for c in plan.conditions if c.type == "Ready"]
    assert texts[0].startswith("partitions 1 are not created yet")
    assert texts[1] == "no leader: partitions 0"


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


# Brokers above the pool's replicas.


def pool_of(replicas: int, **spec: Any) -> BrokerPool:
    item = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "BrokerPool",
        "metadata": {"name": "default", "namespace": "shop"},
        "spec": {"replicas": replicas, **spec},
    }
    return parsed(BrokerPool, item)


def broker(number: int, process: BrokerProcess = BrokerProcess.RUNNING) -> ObservedBroker:
    return ObservedBroker(BrokerId(number), process, has_storage=True, has_endpoint=True)


def broker_views(*states: str) -> list[BrokerView]:
    endpoints = Endpoints("127.0.0.1", 9092, 8080, "http://127.0.0.1:8080")
    return [
        BrokerView(BrokerId(number), BrokerEpoch(1), state, endpoints, "", "incarnation")
        for number, state in enumerate(states)
    ]


def pool_with(*brokers: ObservedBroker) -> ObservedPool:
    return ObservedPool(brokers=brokers, has_bootstrap=True, has_disruption_budget=True)


def test_a_broker_above_replicas_is_kept_running_while_it_holds_a_replica() -> None:
    views = broker_views("Active", "Active", "Fenced")
    away = pool_with(broker(0), broker(1), broker(2, BrokerProcess.ABSENT))
    drain = plan_drain(pool_of(2), away, views, {BrokerId(2): 1})
    assert (drain.actions, drain.retire) == ((StartBroker(BrokerId(2)),), ())
    assert drain.conditions[0].message.startswith("broker 2 holds 1 replicas")
    unknown = plan_drain(pool_of(2), pool_with(broker(0), broker(1), broker(2)), views, None)
    assert (unknown.actions, unknown.retire, unknown.is_over) == ((), (), False)


def test_once_it_holds_none_it_is_stopped_and_then_recorded_as_gone() -> None:
    views = broker_views("Active", "Active", "Active")
    running = pool_with(broker(0), broker(1), broker(2))
    stopping = plan_drain(pool_of(2), running, views, {BrokerId(0): 1})
    assert [type(action) for action in stopping.actions] == [StopBroker]
    stopped = pool_with(broker(0), broker(1), broker(2, BrokerProcess.ABSENT))
    assert plan_drain(pool_of(2), stopped, views, {}).retire == ids(2)
    over = plan_drain(pool_of(2), stopped, broker_views("Active", "Active", "Gone"), {})
    assert (over.actions, over.retire, over.conditions, over.is_over) == ((), (), (), True)


def test_a_drained_broker_stays_and_says_when_it_is_empty() -> None:
    views = broker_views("Active", "Active", "Active")
    drain = plan_drain(
        pool_of(3, drain=[1]), pool_with(broker(0), broker(1), broker(2)), views, {BrokerId(0): 4}
    )
    assert (drain.actions, drain.retire, drain.is_over) == ((), (), True)
    assert (drain.conditions[0].type, drain.conditions[0].is_true) == ("Drained", True)


def retained(name: str, *numbers: int) -> TopicView:
    """On brokers 0, 1 and 2."""
    states = (replace(WHOLE, partition=number) for number in numbers)
    view = view_of(spec_of(partitions=len(numbers)), *states)
    return replace(view, topic=replace(view.topic, topic=name), is_retained=True)


def drained_of_two(*views: TopicView) -> tuple[str, str]:
    """Reason and message of a pool that has a broker 2 too many."""
    running = pool_with(broker(0), broker(1), broker(2))
    states = broker_views("Active", "Active", "Active")
    counts = replica_counts(views)
    (reported,) = plan_drain(
        pool_of(2),
        running,
        states,
        counts,
        retained_replicas(views),
        unknown_topics(views),
        plan_retained_moves(views, places(2, 2)),
    ).conditions
    assert (reported.type, reported.is_true) == ("Drained", False)
    return reported.reason, reported.message


def test_a_drain_names_retained_data_and_how_it_moves() -> None:
    assert drained_of_two(retained("orders", 0, 1, 4)) == (
        "DataRetained",
        "broker 2 holds 3 replicas of retained data: orders (partitions 0, 1, 4);"
        " retained data is moved too; to delete it instead: tidemark topics purge, or"
        " spec.purgeRetained; deleted topic orders, partition 0 waits: no other active broker of"
        " the pool accepts replicas; deleted topic orders, partition 1 waits: no other active"
        " broker of the pool accepts replicas; deleted topic orders, partition 4 waits: no other"
        " active broker of the pool accepts replicas",
    )
    served = view_of(spec_of(), WHOLE)
    reason, message = drained_of_two(served, retained("orders", 0))
    assert reason == "ReplicasMove"
    assert message.startswith(
        "broker 2 holds 1 replicas, and 1 replicas of retained data: orders"
        " (partitions 0); see the conditions of the Topics, or run tidemark drain --wait;"
        " retained data is moved too;"
    )
    lost = replace(retained("orders", 0), missing_slices=("orders-1",))
    assert drained_of_two(lost)[1].startswith(
        "broker 2 holds an unknown number of replicas, 1 replicas of retained data:"
        " orders (partitions 0); PartitionSlice objects are missing or unreadable: deleted topic"
        " orders; see"
    )


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


def test_the_names_of_retained_data_have_an_end() -> None:
    many = [retained(f"{number}" * 249, *range(50)) for number in range(10)]
    reason, message = drained_of_two(*many)
    assert (reason, "topics purge, or spec.purgeRetained" in message) == ("DataRetained", True)
    assert "(partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 40 more)" in message
    assert "and 5 more topics" in message
    assert len(message) < MAX_MESSAGE_CHARACTERS


def test_replicas_are_not_counted_while_a_slice_is_missing() -> None:
    spec = spec_of()
    view = view_of(spec, WHOLE)
    assert replica_counts([view]) == {BrokerId(0): 1, BrokerId(1): 1, BrokerId(2): 1}
    assert replica_counts([view, replace(view, missing_slices=("orders-1",))]) is None
    assert replica_counts([view, replace(view, partitions=())]) is None
