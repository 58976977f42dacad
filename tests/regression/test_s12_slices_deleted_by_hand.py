"""S12: a slice that somebody deleted while nothing happened is told by the next sweep, as soon as a
live read does not find it either. Reconciler and controller over one store."""

from collections.abc import Mapping

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE, TOPIC, Object, ResourceKind
from tidemark_operator.controller.core.placement import place
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.reconciler import Reconciler
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.ids import ControllerEpoch, TopicId
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_harness import ORDERS, POOL, FakeStore, Harness
from tests.support.controller_steps import successor
from tests.support.reconcile_harness import KeepingRuntime
from tests.support.waiting import run

NAMESPACE = "shop"
KEY = WorkKey(TOPIC.kind, NAMESPACE, "orders")
AGAIN = TopicId("7f1c0000-0000-0000-0000-000000000009")
SLICE = (PARTITION_SLICE.kind, NAMESPACE, "orders-0")


class ReadStore(FakeStore):
    """Counts reads of slices; its lists may lack some that are there, as may a page of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.slice_reads: list[str] = []
        self.unlisted: set[str] = set()
        self.is_deaf = False  # to reads of one slice

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        if kind is PARTITION_SLICE:
            self.slice_reads.append(f"get {name}")
            if self.is_deaf:
                raise StoreError("no answer")
        return await super().get(kind, namespace, name)

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        if kind is PARTITION_SLICE:
            self.slice_reads.append("list")
        found = await super().list(kind, namespace, labels)
        return [item for item in found if item["metadata"]["name"] not in self.unlisted]


class OrderStore:
    """A Topic on three brokers that are idle."""

    def __init__(self) -> None:
        self.store = ReadStore()
        indexed = IndexedStore(self.store)
        self.harness = Harness(store=indexed)
        self.harness.store = self.store  # what others do to objects passes by the operator
        self.reconciler = Reconciler(
            indexed, self.harness.service, KeepingRuntime(), settings=ReconcilerSettings()
        )

    async def open(self, *, partitions: int = 1) -> "OrderStore":
        await self.harness.start(3)
        await self.harness.create(partitions=partitions)
        spec = {"partitions": partitions, "replicationFactor": 3}
        topic: Object = {
            "apiVersion": TOPIC.api_version,
            "kind": TOPIC.kind,
            "metadata": {"name": "orders", "namespace": NAMESPACE, "uid": ORDERS},
            "spec": spec,
        }
        await self.store.create(TOPIC, topic)
        for _ in range(3):
            await self.sweep()
        assert (await self.ready())["status"] == "True"
        self.store.slice_reads.clear()
        return self

    async def sweep(self) -> None:
        keys = await self.reconciler.all_keys(None)
        assert KEY in keys
        await self.reconciler.reconcile(KEY)

    async def ready(self) -> Mapping[str, str]:
        (topic,) = await self.store.list(TOPIC, NAMESPACE)
        conditions: list[dict[str, str]] = topic.get("status", {}).get("conditions", [])
        return next(each for each in conditions if each["type"] == "Ready")

    def delete_slice(self, name: str = "orders-0") -> Object:
        return self.store.objects.pop((PARTITION_SLICE.kind, NAMESPACE, name))


def test_a_slice_deleted_on_an_idle_pool_is_a_condition_at_the_next_sweep() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open()
        shop.delete_slice()
        await shop.sweep()
        ready = await shop.ready()
        assert (ready["status"], ready["reason"]) == ("False", "SliceMissing")
        assert shop.harness.service.topic(POOL, ORDERS) is None
        writes = shop.store.writes
        await shop.sweep()
        assert shop.store.writes == writes

    run(scenario)


def test_nothing_is_decided_any_more_by_a_slice_that_a_sweep_found_missing() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open()
        harness = shop.harness
        leader = harness.brokers[harness.partition().leader]
        shop.delete_slice()
        await shop.sweep()
        await harness.kill(leader)
        await harness.advance(200, *(broker for broker in harness.brokers if broker is not leader))
        assert SLICE not in shop.store.objects
        others = [broker for broker in harness.brokers if broker is not leader]
        assert {broker.reported[0].leader for broker in others} == {leader.broker_id}

    run(scenario)


def test_once_its_name_is_anothers_nobody_is_told_of_it_any_more() -> None:
    """A broker that starts would make room for it in the place of the other one's log."""

    async def scenario() -> None:
        shop = await OrderStore().open()
        harness = shop.harness
        shop.delete_slice()
        await shop.sweep()
        again = TopicState("orders", AGAIN, 1, 3)
        await harness.service.create_topic(
            POOL, again, place(1, 3, [b.broker_id for b in harness.brokers])
        )
        broker = harness.brokers[0]
        broker.controller_epoch, broker.version = ControllerEpoch(-1), -1
        push = (await broker.poll_to_the_end()).push
        assert push is not None
        reported = {entry.topic.topic_id: len(entry.partitions) for entry in push.topics}
        assert reported == {ORDERS: 0, AGAIN: 1}

    run(scenario)


def test_a_slice_that_is_put_back_is_taken_in_again() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open()
        deleted = shop.delete_slice()
        await shop.sweep()
        shop.store.objects[SLICE] = deleted
        await shop.reconciler.reconcile(KEY)  # it comes back every few seconds
        assert (await shop.ready())["status"] == "True"
        assert shop.harness.partition().replicas == (0, 1, 2)

    run(scenario)


def test_a_list_that_lacks_a_slice_which_is_there_changes_nothing() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open(partitions=129)
        shop.store.unlisted = {"orders-0", "orders-1"}
        writes = shop.store.writes
        await shop.sweep()
        assert shop.store.slice_reads == ["list", "get orders-0", "get orders-1"]
        assert (await shop.ready())["status"] == "True"
        assert shop.store.writes == writes
        assert shop.harness.partition(128).replicas == (2, 0, 1)

    run(scenario)


def test_a_sweep_over_an_idle_pool_lists_slices_once_reads_none_and_writes_nothing() -> None:  # I21
    async def scenario() -> None:
        shop = await OrderStore().open(partitions=129)
        writes = shop.store.writes
        await shop.sweep()
        assert shop.store.slice_reads == ["list"]
        assert shop.store.writes == writes

    run(scenario)


def test_of_two_slices_the_one_that_is_there_is_decided_by_and_the_other_one_is_named() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open(partitions=129)
        harness = shop.harness
        shop.delete_slice("orders-0")
        await shop.sweep()
        ready = await shop.ready()
        assert (ready["reason"], "orders-0 are missing" in ready["message"]) == (
            "SliceMissing",
            True,
        )
        leader = harness.brokers[harness.partition(128).leader]
        await harness.kill(leader)
        await harness.advance(200, *(broker for broker in harness.brokers if broker is not leader))
        assert harness.partition(128).leader not in (leader.broker_id, -1)

    run(scenario)


def test_a_slice_put_back_after_its_name_became_another_topics_is_left_alone() -> None:
    """Brokers told of both made room for logs of the former where the other's are."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        key = (PARTITION_SLICE.kind, "shop", "orders-0")
        previous = harness.store.objects.pop(key)
        await successor(harness, 2)
        again = TopicState("orders", AGAIN, 1, 3)
        targets = place(1, 3, [broker.broker_id for broker in harness.brokers])
        await harness.service.create_topic(POOL, again, targets, object_name="orders2")
        present = harness.store.objects[PARTITION_SLICE.kind, "shop", "orders2-0"]
        present["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        previous["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
        harness.store.objects[key] = previous
        await successor(harness, 3)
        broker = harness.brokers[0]
        broker.controller_epoch, broker.version = ControllerEpoch(-1), -1
        push = (await broker.poll_to_the_end()).push
        assert push is not None
        assert [
            (reported.topic.topic_id, len(reported.partitions)) for reported in push.topics
        ] == [(AGAIN, 1)]

    run(scenario)


def test_a_slice_of_that_name_which_is_another_topics_is_not_the_one_that_is_missing() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open()
        shop.store.touch(PARTITION_SLICE, "orders-0", topicId=ORDERS[:-1] + "2")
        await shop.sweep()
        assert (await shop.ready())["reason"] == "SliceMissing"

    run(scenario)


def test_a_read_that_fails_says_nothing_and_is_tried_again() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open()
        shop.delete_slice()
        shop.store.is_deaf = True
        with pytest.raises(StoreError):
            await shop.sweep()
        assert (await shop.ready())["status"] == "True"
        shop.store.is_deaf = False
        await shop.reconciler.reconcile(KEY)  # the queue brings what failed
        assert (await shop.ready())["reason"] == "SliceMissing"

    run(scenario)


def test_a_sweep_that_finds_its_controller_deposed_is_no_failure() -> None:
    async def scenario() -> None:
        shop = await OrderStore().open()
        await shop.harness.service.step_down()
        assert KEY in await shop.reconciler.all_keys(None)

    run(scenario)
