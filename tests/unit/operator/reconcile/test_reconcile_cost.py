"""The cost of one changed Topic: the same whether there are ten others or a thousand."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tidemark_operator.api.kinds import BROKER_POOL, PARTITION_SLICE, TOPIC, Object, ResourceKind
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.reconciler import Reconciler
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.work_queue import WorkKey, WorkQueue

from tests.support.controller_harness import FakeStore
from tests.support.reconcile_harness import (
    NAMESPACE,
    POOL,
    KeepingController,
    KeepingRuntime,
)
from tests.support.waiting import eventually, run

NEW = WorkKey(TOPIC.kind, NAMESPACE, "new")
OTHERS = pytest.mark.parametrize("others", [10, 100, 1000])


class CallStore(FakeStore):
    """Counts calls by what they are and of which kind, and the objects that lists returned."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.most_at_once = 0
        self._at_once = 0
        self._gates: dict[str, list[asyncio.Event | None]] = {}
        self._put: set[tuple[str, str]] = set()

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        await self._count(f"get {kind.kind}")
        found = await super().get(kind, namespace, name)
        await self._pass_gate(f"get {kind.kind} {name}")
        return found

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        found = await super().list(kind, namespace, labels)
        self.calls[f"listed {kind.kind}"] += len(found)
        return found

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        await self._count(f"create {kind.kind}")
        await self._pass_gate(f"create {kind.kind} {item['metadata']['name']}")
        return await super().create(kind, item)

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        await self._count(f"replace {kind.kind}")
        return await super().replace(kind, item)

    async def delete(self, kind: ResourceKind, namespace: str, name: str, **given: Any) -> None:
        await self._count(f"delete {kind.kind}")
        await super().delete(kind, namespace, name, **given)

    async def _count(self, call: str) -> None:
        self.calls[call] += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0)  # as over a network: other turns go on meanwhile
        self._at_once -= 1

    def hold(self, call: str, *, after: int = 0) -> asyncio.Event:
        """One such call, after some others, waits for that event: a read has its answer by then,
        a create has not happened."""
        event = asyncio.Event()
        self._gates[call] = [*[None] * after, event]
        return event

    def is_holding(self, call: str) -> bool:
        return self._gates.get(call) == []

    async def _pass_gate(self, call: str) -> None:
        gates = self._gates.get(call)
        if gates and (event := gates.pop(0)) is not None:
            await event.wait()

    def put(self, kind: ResourceKind, name: str, **fields: Any) -> Object:
        """Somebody else's write: a new object."""
        self.version += 1
        first = (kind.kind, name) not in self._put
        self._put.add((kind.kind, name))
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}" if first else f"uid-{name}-{self.version}",
            "resourceVersion": str(self.version),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        item = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        self.objects[kind.kind, NAMESPACE, name] = item
        return item


class OrderStore:
    """Some Topics that are served already, all known to the operator."""

    def __init__(self, others: int, store: CallStore | None = None, **settings: Any) -> None:
        self.store = store or CallStore()
        self.indexed = IndexedStore(self.store)
        self.controller = KeepingController(self.indexed)
        self.controller.active = {0, 1, 2}
        self.queue = WorkQueue()
        self.reconciler = Reconciler(
            self.indexed,
            cast(ControllerService, self.controller),
            KeepingRuntime(),
            settings=ReconcilerSettings(**settings),
            add=self.queue.add,
            now_ms=lambda: time.monotonic_ns() // 1_000_000,
            now_text=lambda: "2026-01-01T00:00:00Z",
        )
        security = {"tls": {"mode": "Disabled"}, "authentication": "none"}
        self.store.put(BROKER_POOL, "default", spec={"replicas": 3, "security": security})
        for number in range(others):
            name = f"t{number}"
            self.store.put(TOPIC, name, spec={"partitions": 3}, status={"topicId": f"uid-{name}"})
            self.store.put(
                PARTITION_SLICE,
                f"{name}-0",
                pool=POOL,
                topicName=name,
                topicId=f"uid-{name}",
                deletionPolicy="Retain",
                retained=False,
            )

    async def open(self) -> "OrderStore":
        await self.reconciler.all_keys(None)
        self.store.calls.clear()
        return self

    def user_puts(self, name: str, **spec: Any) -> None:
        self.tell(self.store.put(TOPIC, name, spec={"partitions": 3, **spec}), is_deleted=False)

    def user_deletes(self, name: str) -> None:
        self.tell(self.store.objects.pop((TOPIC.kind, NAMESPACE, name)), is_deleted=True)

    def tell(self, item: Object, *, is_deleted: bool) -> None:
        key = self.reconciler.on_event(TOPIC, item, is_deleted=is_deleted)
        if key is not None:
            self.queue.add(key)

    async def work(self, is_done: Callable[[], object]) -> None:
        async with self.working():
            await eventually(lambda: is_done() and len(self.queue) == 0)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.queue.work(self.reconciler.reconcile))
        yield
        task.cancel()
        await asyncio.wait((task,))

    def ready(self, name: str) -> str:
        item = self.store.objects[TOPIC.kind, NAMESPACE, name]
        conditions = item.get("status", {}).get("conditions", ())
        return next((each["reason"] for each in conditions if each["type"] == "Ready"), "")


@OTHERS
def test_new_topic_costs_four_calls_until_it_is_ready(others: int) -> None:
    async def scenario() -> None:
        shop = await OrderStore(others).open()
        shop.user_puts("new")
        await shop.work(lambda: shop.ready("new") == "AllPartitionsLed")
        assert shop.store.calls == {
            "get Topic": 1,
            "get BrokerPool": 1,
            "create PartitionSlice": 1,
            "replace Topic": 1,
        }

    run(scenario)


def test_event_of_an_own_status_write_costs_nothing() -> None:
    async def scenario() -> None:
        shop = await OrderStore(1).open()
        shop.user_puts("new")
        await shop.work(lambda: shop.ready("new"))
        shop.store.calls.clear()
        written = shop.store.objects[TOPIC.kind, NAMESPACE, "new"]
        assert shop.reconciler.on_event(TOPIC, written, is_deleted=False) is None
        assert shop.reconciler.on_event(TOPIC, written, is_deleted=True) == NEW

    run(scenario)


@OTHERS
def test_deleted_topic_costs_reads_of_its_own_objects_alone(others: int) -> None:
    async def scenario() -> None:
        shop = await OrderStore(others).open()
        shop.user_deletes("t7")
        await shop.work(lambda: shop.store.calls["replace BrokerPool"])
        assert shop.controller.calls == ["delete uid-t7 retain=True"]
        # The Topic again once nobody else may give its data to another one; the pool tells of it.
        assert shop.store.calls == {
            "get Topic": 2,
            "get PartitionSlice": 1,
            "get BrokerPool": 1,
            "replace BrokerPool": 1,
        }

    run(scenario)


@OTHERS
def test_topic_of_a_taken_name_costs_a_read_of_the_other_one(others: int) -> None:
    async def scenario() -> None:
        shop = await OrderStore(others).open()
        shop.user_puts("a-late-one", topicName="t7")
        await shop.work(lambda: shop.ready("a-late-one") == "TopicNameTaken")
        assert shop.store.calls == {"get Topic": 2, "get BrokerPool": 1, "replace Topic": 1}
        assert shop.controller.calls == []

    run(scenario)
