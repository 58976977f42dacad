"""What is due for brokers that leave: drained by name, or above the pool's replicas."""

from dataclasses import replace
from typing import Any

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
    StartBroker,
    StopBroker,
)
from tidemark_operator.controller.core.views import BrokerView, TopicView
from tidemark_operator.reconcile.conditions import MAX_MESSAGE_CHARACTERS
from tidemark_operator.reconcile.pool.plan_drain import may_go, plan_drain
from tidemark_operator.reconcile.pool.plan_retained import plan_retained_moves
from tidemark_operator.reconcile.retained_data import retained_replicas
from tidemark_operator.reconcile.topic.plan_placement import replica_counts, unknown_topics
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.api_objects import broker_pool
from tests.unit.operator.reconcile.placement_values import WHOLE, ids, places, spec_of, view_of


def pool_of(replicas: int, **spec: Any) -> BrokerPool:
    return broker_pool(replicas=replicas, **spec)


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


def test_the_names_of_retained_data_have_an_end() -> None:
    many = [retained(f"{number}" * 249, *range(50)) for number in range(10)]
    reason, message = drained_of_two(*many)
    assert (reason, "topics purge, or spec.purgeRetained" in message) == ("DataRetained", True)
    assert "(partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 40 more)" in message
    assert "and 5 more topics" in message
    assert len(message) < MAX_MESSAGE_CHARACTERS


def test_in_doubt_a_broker_may_not_go() -> None:
    assert not may_go(BrokerId(2), None)
    assert not may_go(BrokerId(2), {BrokerId(2): 1})
    assert may_go(BrokerId(2), {BrokerId(1): 1})


def test_an_ended_broker_that_holds_a_replica_is_cleared_away_to_start_anew() -> None:
    ended = pool_with(broker(0), broker(1, BrokerProcess.EXITED))
    drain = plan_drain(pool_of(1), ended, broker_views("Active", "Fenced"), {BrokerId(1): 1})
    assert drain.actions == (StopBroker(BrokerId(1), ""),)


def test_a_broker_without_storage_is_not_started_again() -> None:
    away = ObservedBroker(BrokerId(1), BrokerProcess.ABSENT, has_storage=False)
    views = broker_views("Active", "Fenced")
    drain = plan_drain(pool_of(1), pool_with(broker(0), away), views, {BrokerId(1): 1})
    assert (drain.actions, drain.retire, drain.is_over) == ((), (), False)


def test_only_the_first_brokers_of_many_are_named() -> None:
    counts = {BrokerId(number): 1 for number in range(7)}
    pool = pool_of(7, drain=list(range(7)))
    (drained,) = plan_drain(pool, pool_with(), broker_views(), counts).conditions
    assert "broker 4 holds 1 replicas; and 2 more brokers hold replicas;" in drained.message
