"""A rig with many topics, and a store that says what it was asked for and can hold its answers."""

import asyncio
from typing import Any

from tidemark_operator.api.kinds import Object, ResourceKind
from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.pool_loop import PoolLoop
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_harness import POOL, FakeStore, Harness


class HeldStore(FakeStore):
    """`log`: names of what was written, in order. While `gate` is closed writes wait there."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.calls: list[str] = []
        self.waiting: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        self.calls.append(f"get {name}")
        return await super().get(kind, namespace, name)

    async def list(self, kind: ResourceKind, *arguments: Any, **options: Any) -> Any:
        self.calls.append(f"list {kind.kind}")
        return await super().list(kind, *arguments, **options)

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        await self._pass(item["metadata"]["name"])
        return await super().create(kind, item)

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        await self._pass(item["metadata"]["name"])
        return await super().replace(kind, item)

    async def delete(self, kind: ResourceKind, namespace: str, name: str, **options: Any) -> None:
        await self._pass(name)
        await super().delete(kind, namespace, name, **options)

    async def _pass(self, name: str) -> None:
        self.calls.append(f"write {name}")
        self.waiting.append(name)
        await self.gate.wait()
        self.waiting.remove(name)
        self.log.append(name)


def topic_id(name: str) -> TopicId:
    return TopicId(f"id-{name}")


def creation(harness: Harness, name: str, partitions: int = 1) -> Any:
    """A coroutine."""
    ids = [broker.broker_id for broker in harness.brokers]
    topic = TopicState(name, topic_id(name), partitions, 3)
    return harness.service.create_topic(
        POOL, topic, place(partitions, 3, ids), deletion_policy="Delete"
    )


async def with_topics(*names: str, partitions: int = 1) -> tuple[Harness, HeldStore]:
    store = HeldStore()
    harness = await Harness(store=store).start(3)
    for name in names:
        await creation(harness, name, partitions)
    await caught_up(harness)
    store.log.clear()
    store.calls.clear()
    return harness, store


async def caught_up(harness: Harness) -> None:
    for broker in harness.brokers:
        await broker.catch_up()


def decisions(harness: Harness) -> PoolLoop:
    return harness.service._pools[POOL].decisions
