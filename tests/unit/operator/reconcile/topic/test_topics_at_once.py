"""Turns of several Topics at once: none is lost, and a topicName's data has one owner."""

import asyncio

from tidemark_operator.api.kinds import PARTITION_SLICE, TOPIC

from tests.support.reconcile_harness import NAMESPACE
from tests.support.waiting import eventually, run
from tests.unit.operator.reconcile.test_reconcile_cost import OrderStore


def test_topics_made_at_once_all_become_ready() -> None:
    names = [f"new{number}" for number in range(60)]

    async def scenario() -> None:
        shop = await OrderStore(0).open()
        for name in names:
            shop.user_puts(name)
        await shop.work(lambda: all(shop.ready(name) for name in names))
        assert {shop.ready(name) for name in names} == {"AllPartitionsLed"}
        assert sorted(shop.controller.calls) == sorted(f"create {name}" for name in names)
        assert shop.store.most_at_once > 1
        assert shop.store.calls["replace Topic"] == 60

    run(scenario)


def test_topics_deleted_at_once_are_all_forgotten() -> None:
    async def scenario() -> None:
        shop = await OrderStore(60).open()
        for number in range(60):
            shop.user_deletes(f"t{number}")
        await shop.work(lambda: len(shop.controller.calls) == 60)
        expected = sorted(f"delete uid-t{number} retain=True" for number in range(60))
        assert sorted(shop.controller.calls) == expected

    run(scenario)


def test_two_new_topics_of_one_name_make_one_topic() -> None:
    async def scenario() -> None:
        shop = await OrderStore(0).open()
        shop.user_puts("b", topicName="orders")
        shop.user_puts("a", topicName="orders")
        await shop.work(lambda: shop.ready("a") and shop.ready("b"))
        assert (shop.ready("a"), shop.ready("b")) == ("AllPartitionsLed", "TopicNameTaken")
        assert shop.controller.calls == ["create orders"]

    run(scenario)


def test_older_topic_seen_while_another_one_is_made_waits_for_it() -> None:
    """Events of two objects may come in another order than the objects were made."""

    async def scenario() -> None:
        shop = await OrderStore(0).open()
        shop.user_puts("b", topicName="orders")
        making = "create PartitionSlice b-0"
        made = shop.store.hold(making)
        async with shop.working():
            await eventually(lambda: shop.store.is_holding(making))
            shop.user_puts("a", topicName="orders")
            for _ in range(20):
                await asyncio.sleep(0)
            made.set()
            await eventually(lambda: shop.ready("a") and shop.ready("b"))
        assert (shop.ready("b"), shop.ready("a")) == ("AllPartitionsLed", "TopicNameTaken")
        assert shop.controller.calls == ["create orders"]

    run(scenario)


def test_deletion_decided_before_an_adoption_does_not_take_the_heirs_data() -> None:
    async def scenario() -> None:
        shop = await OrderStore(0).open()
        shop.user_puts("orders")
        await shop.work(lambda: shop.ready("orders"))
        confirming = "get Topic orders"
        confirmed = shop.store.hold(confirming, after=1)
        shop.user_deletes("orders")
        async with shop.working():
            await eventually(lambda: shop.store.is_holding(confirming))
            shop.user_puts("heir", topicName="orders")
            for _ in range(20):
                await asyncio.sleep(0)
            confirmed.set()
            await eventually(lambda: shop.ready("heir") == "AllPartitionsLed")
        (view,) = shop.controller.views.values()
        assert not view.is_retained
        item = shop.store.objects[PARTITION_SLICE.kind, NAMESPACE, "orders-0"]
        assert (item["topicId"], item["retained"]) == ("uid-orders", False)

    run(scenario)


def test_name_of_a_deleted_topic_is_free_for_one_that_waited() -> None:
    async def scenario() -> None:
        shop = await OrderStore(1).open()
        shop.user_puts("late", topicName="t0")
        await shop.work(lambda: shop.ready("late") == "TopicNameTaken")
        shop.store.objects.pop((PARTITION_SLICE.kind, NAMESPACE, "t0-0"))
        shop.user_deletes("t0")
        await shop.work(lambda: shop.ready("late") == "AllPartitionsLed")

    run(scenario)


def test_data_of_a_former_topic_goes_to_one_of_two_that_wait_for_the_name() -> None:
    """Neither may begin anew beside data that is served still."""

    async def scenario() -> None:
        shop = await OrderStore(0).open()
        shop.user_puts("a", topicName="orders")
        await shop.work(lambda: shop.ready("a"))
        for name in ("b", "c"):
            shop.user_puts(name, topicName="orders")
            await shop.work(lambda name=name: shop.ready(name) == "TopicNameTaken")
        shop.user_deletes("a")
        await shop.work(lambda: shop.ready("b") == "AllPartitionsLed")
        (view,) = shop.controller.views.values()
        assert (view.topic.topic_id, view.is_retained, view.object_name) == ("uid-a", False, "b")
        assert shop.ready("c") == "TopicNameTaken"

    run(scenario)


def test_data_of_a_former_topic_ends_though_its_successor_has_other_data() -> None:
    """Deleted and made anew with the topicName of retained data, before anybody looked."""

    async def scenario() -> None:
        shop = await OrderStore(0).open()
        shop.user_puts("old", topicName="kept")
        await shop.work(lambda: shop.ready("old"))
        shop.user_deletes("old")
        await shop.work(lambda: "delete uid-old retain=True" in shop.controller.calls)
        shop.user_puts("orders")
        await shop.work(lambda: shop.ready("orders"))
        del shop.store.objects[TOPIC.kind, NAMESPACE, "orders"]
        shop.user_puts("orders", topicName="kept")
        await shop.work(lambda: "delete uid-orders retain=True" in shop.controller.calls)
        assert shop.ready("orders") == "AllPartitionsLed"
        views = shop.controller.views.values()
        assert [view.topic.topic for view in views if not view.is_retained] == ["kept"]

    run(scenario)
