"""How far a Topic is whose partitions are still being made, or get their first leader."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidemark_operator.api.kinds import TOPIC
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.topic.conditions import ready_conditions, status_fields
from tidemark_protocol.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tests.support.reconcile_harness import NAMESPACE, partition_state
from tests.support.waiting import eventually, run
from tests.unit.operator.reconcile.test_reconcile_cost import OrderStore

REPLICAS = (BrokerId(0), BrokerId(1), BrokerId(2))


def view_of(states: Sequence[PartitionState]) -> TopicView:
    topic = TopicState("orders", TopicId("uid-orders"), len(states), 3)
    return TopicView(topic, tuple(states), "orders", "Retain", is_retained=False)


def states_of(*, led: int, count: int) -> list[PartitionState]:
    states = [partition_state(number, REPLICAS, 3) for number in range(count)]
    return [
        state if number < led else replace(state, leader=NO_BROKER)
        for number, state in enumerate(states)
    ]


def ready(view: TopicView, **given: Any) -> tuple[bool, str, str]:
    condition = ready_conditions(view, **given)[0]
    return condition.is_true, condition.reason, condition.message


def test_partitions_without_a_first_leader_are_progress() -> None:
    view = view_of(states_of(led=1240, count=2000))
    assert ready(view) == (False, "Progressing", "1,240 of 2,000 partitions have a leader")
    assert status_fields(view).led_partitions == 1240


def test_partitions_that_are_not_made_yet_count() -> None:
    view = view_of(states_of(led=128, count=128))
    assert ready(view, wanted=200) == (False, "Progressing", "128 of 200 partitions have a leader")
    led = "all 128 partitions have a leader"
    assert ready(replace(view, deletion_policy="Delete")) == (True, "AllPartitionsLed", led)


def test_a_ready_topic_with_retained_data_says_what_a_deleted_namespace_destroys() -> None:
    view = replace(view_of(states_of(led=1, count=1)), deletion_policy="Retain")
    _, _, message = ready(view)
    assert message.endswith("deleting the Topic keeps its data, deleting the namespace destroys it")


def test_partition_that_lost_its_leader_is_no_progress() -> None:
    states = states_of(led=2, count=3)
    states[2] = replace(states[2], leader_epoch=LeaderEpoch(1))
    assert ready(view_of(states)) == (False, "Leaderless", "no leader: partitions 2")


def test_status_tells_progress_while_partitions_are_made() -> None:
    async def scenario() -> None:
        shop = await OrderStore(0, status_interval_ms=1).open()
        made, sound = asyncio.Event(), shop.controller.create_topic

        async def slow(pool: str, topic: TopicState, assignments: Any, **given: Any) -> None:
            await sound(pool, topic, assignments, **given)
            whole = shop.controller.views[topic.topic_id]
            part = replace(
                whole,
                topic=replace(topic, partition_count=2),
                partitions=whole.partitions[:2],
            )
            shop.controller.views[topic.topic_id] = part
            await made.wait()
            shop.controller.views[topic.topic_id] = whole

        shop.controller.create_topic = slow  # type: ignore[method-assign]
        shop.user_puts("new")
        async with shop.working():
            await eventually(lambda: shop.ready("new"))
            status = shop.store.objects[TOPIC.kind, NAMESPACE, "new"]["status"]
            condition = status["conditions"][0]
            assert (condition["status"], condition["reason"]) == ("False", "Progressing")
            assert condition["message"] == "2 of 3 partitions have a leader"
            assert (status["ledPartitions"], status["topicId"]) == (2, "uid-new")
            made.set()
            await eventually(lambda: shop.ready("new") == "AllPartitionsLed")

    run(scenario)
