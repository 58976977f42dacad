"""Which broker may be replaced when a pool's template changes (I19)."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_operator.api.kinds import BROKER_POOL, CLAIM
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
    StopBroker,
)
from tidemark_operator.broker_runtime.pods import PodRuntime
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.pool.plan import plan_pool
from tidemark_operator.reconcile.pool.plan_rolling_update import (
    RollingUpdate,
    plan_rolling_update,
    rolling_update_condition,
)
from tidemark_operator.resources.broker_pod import PodSettings
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import TopicState

from tests.support.api_objects import broker_pool, with_spec
from tests.support.reconcile_harness import Cluster, CountingStore, partition_state

POOL = broker_pool(replicas=3, image="image:1", imagePullPolicy="Never", storage={"size": "1Gi"})
ALL = frozenset(BrokerId(number) for number in range(3))


def broker(number: int, *, outdated: bool = True, process: str = "Running") -> ObservedBroker:
    return ObservedBroker(
        BrokerId(number), BrokerProcess(process), f"pod-{number}", is_outdated=outdated
    )


def topic(*replicas: tuple[int, ...], in_sync: int = 3) -> TopicView:
    """Partition i on the brokers `replicas[i]`, led by the first; `in_sync` of them are."""
    states = tuple(
        partition_state(number, tuple(map(BrokerId, ids)), in_sync)
        for number, ids in enumerate(replicas)
    )
    state = TopicState("orders", TopicId("t"), len(states), len(replicas[0]))
    return TopicView(state, states, "orders", "Retain", is_retained=False)


HEALTHY = topic((0, 1, 2), (0, 2, 1), (1, 2, 0))


def plan(
    *brokers: ObservedBroker,
    topics: tuple[TopicView, ...] = (HEALTHY,),
    active: frozenset[BrokerId] = ALL,
) -> RollingUpdate:
    return plan_rolling_update(POOL, ObservedPool(brokers), active, topics)


def test_a_pool_of_its_template_is_left_alone() -> None:
    rolling_update = plan(*(broker(number, outdated=False) for number in range(3)))
    assert rolling_update == RollingUpdate()
    assert rolling_update_condition(rolling_update).is_true


def test_who_leads_least_goes_first() -> None:
    rolling_update = plan(broker(0), broker(1), broker(2))
    assert rolling_update.stop == StopBroker(BrokerId(2), "pod-2")
    assert rolling_update_condition(rolling_update).reason == "Rolling"


@pytest.mark.parametrize("process", ["Starting", "Stopping", "Absent", "Exited"])
def test_nobody_goes_while_another_is_away(process: str) -> None:
    rolling_update = plan(broker(0), broker(1), broker(2, outdated=False, process=process))
    assert (rolling_update.stop, rolling_update.obstacle) == (None, "broker 2 is not active")


def test_a_broker_without_a_session_is_away_too() -> None:
    brokers = (broker(0), broker(1, outdated=False), broker(2, outdated=False))
    rolling_update = plan_rolling_update(
        POOL, ObservedPool(brokers), ALL - {BrokerId(1)}, (HEALTHY,)
    )
    assert (rolling_update.stop, rolling_update.obstacle) == (None, "broker 1 is not active")


def test_the_next_waits_until_the_last_has_caught_up() -> None:
    rolling_update = plan(
        broker(0), broker(1, outdated=False), broker(2), topics=(topic((0, 2, 1), in_sync=2),)
    )
    assert (rolling_update.stop, rolling_update.obstacle) == (
        None,
        "broker 1 is not in sync with orders-0 yet",
    )


def test_a_broker_that_its_template_keeps_from_starting_is_replaced_at_once() -> None:
    """A bad image stops at the first broker, and its correction begins with that one."""
    active = ALL - {BrokerId(1)}
    rolling_update = plan(broker(0), broker(1, process="Starting"), broker(2), active=active)
    assert rolling_update.stop == StopBroker(BrokerId(1), "pod-1")


@pytest.mark.parametrize("process", ["Stopping", "Absent", "Exited"])
def test_not_even_that_one_while_another_is_on_its_way(process: str) -> None:
    active = frozenset({BrokerId(0)})
    rolling_update = plan(broker(0), broker(1), broker(2, process=process), active=active)
    assert (rolling_update.stop, rolling_update.obstacle) == (None, "broker 1 is not active")


def test_a_pod_that_is_not_ready_serves_as_long_as_its_broker_has_a_session() -> None:
    """A kubelet that does not look makes every pod of its node NotReady."""
    behind = topic((0, 1, 2), in_sync=2)  # broker 2 catches up, min ISR hangs on 0 and 1
    late = broker(0, process="Starting"), broker(1, process="Starting")
    assert plan(*late, broker(2, outdated=False), topics=(behind,)).stop is None
    assert plan(*late, broker(2, outdated=False)).stop == StopBroker(BrokerId(1), "pod-1")


def test_no_partition_goes_below_min_isr() -> None:
    """Broker 7 was cut off by scaling, and is not waited for: 0 and 1 hold orders-0 alone."""
    rolling_update = plan(broker(0), broker(1), broker(2), topics=(topic((0, 1, 7), in_sync=2),))
    assert rolling_update.stop == StopBroker(BrokerId(2), "pod-2")
    rolling_update = plan(
        broker(0), broker(1), broker(2, outdated=False), topics=(topic((0, 1, 7), in_sync=2),)
    )
    assert rolling_update.stop is None
    assert rolling_update.obstacle == (
        "without broker 1, orders-0 would fall below min.insync.replicas"
    )


def test_a_partition_that_can_never_spare_a_replica_is_named_and_does_not_hold_up_the_pool() -> (
    None
):
    rolling_update = plan(broker(0), broker(1), broker(2), topics=(topic((0,), (1,), in_sync=1),))
    assert rolling_update.stop == StopBroker(BrokerId(2), "pod-2")
    assert rolling_update.interrupted == ()
    rolling_update = plan(
        broker(0),
        broker(1, outdated=False),
        broker(2, outdated=False),
        topics=(topic((0,), (1,), in_sync=1),),
    )
    assert rolling_update.stop == StopBroker(BrokerId(0), "pod-0")
    assert "acks=all is rejected meanwhile" in rolling_update_condition(rolling_update).message
    assert "orders-0" in rolling_update_condition(rolling_update).message


def test_what_is_not_known_is_waited_for() -> None:
    missing = replace(HEALTHY, missing_slices=("orders-0",))
    assert plan(broker(0), broker(1), broker(2), topics=(missing,)).obstacle == (
        "PartitionSlice orders-0 is missing"
    )
    outcome_unknown = replace(HEALTHY, partitions=HEALTHY.partitions[:2])
    assert plan(broker(0), broker(1), broker(2), topics=(outcome_unknown,)).obstacle == (
        "the state of topic orders is not completely known"
    )


def test_retained_topics_hold_up_nobody() -> None:
    retained = replace(topic((0, 1, 2), in_sync=1), is_retained=True)
    assert plan(broker(0), broker(1), broker(2), topics=(retained,)).stop is not None


def test_pods_are_seen_to_be_outdated(tmp_path: Path) -> None:
    async def story() -> None:
        store = CountingStore(tmp_path / "objects.db")
        runtime = PodRuntime(store, PodSettings())
        pool = with_spec(POOL, replicas=1)
        for action in plan_pool(pool, await runtime.observe(pool)):
            await runtime.apply(pool, action)
        assert not (await runtime.observe(pool)).brokers[0].is_outdated
        assert (await runtime.observe(with_spec(pool, image="image:2"))).brokers[0].is_outdated
        claim = (await store.list(CLAIM, "shop"))[0]
        await store.delete(CLAIM, "shop", claim["metadata"]["name"])
        # Without its claim it cannot be said what a pod would be made of: no reason to stop it.
        assert not (await runtime.observe(with_spec(pool, image="image:2"))).brokers[0].is_outdated
        store.close()

    asyncio.run(story())


def test_a_pool_is_rolled_one_broker_after_another(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.ready_topic(partitions=3)
        for number, found in cluster.runtime.brokers.items():
            cluster.runtime.brokers[number] = replace(found, is_outdated=True)
        cluster.runtime.actions.clear()
        stopped = []
        for _ in range(3):
            assert await cluster.pass_pool() is not None  # comes back soon
            condition = await cluster.condition(BROKER_POOL, "default", "Updated")
            assert condition["reason"] == "Rolling"
            (gone,) = [each for each in cluster.runtime.actions if isinstance(each, StopBroker)]
            stopped.append(gone.broker_id)
            cluster.controller.active.discard(gone.broker_id)
            cluster.runtime.actions.clear()
            cluster.time_ms += 2000
            await cluster.pass_pool()  # starts it
            assert not any(isinstance(each, StopBroker) for each in cluster.runtime.actions)
            made = cluster.runtime.brokers[gone.broker_id]
            cluster.runtime.brokers[gone.broker_id] = replace(made, is_outdated=False)
            cluster.controller.active.add(gone.broker_id)
            cluster.runtime.actions.clear()
        assert sorted(stopped) == [0, 1, 2]
        cluster.time_ms += 2000
        await cluster.pass_pool()
        assert (await cluster.condition(BROKER_POOL, "default", "Updated"))["status"] == "True"
        assert (await cluster.stored(BROKER_POOL, "default"))["status"]["updatedBrokers"] == 3
        cluster.store.close()

    asyncio.run(story())
