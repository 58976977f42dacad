"""Statuses are written only where they differ, a few at once and then one per interval."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tidemark_operator.api.broker_pool import BrokerPool, PoolStatus
from tidemark_operator.api.kinds import BROKER_POOL, Object, ResourceKind
from tidemark_operator.api.objects import Invalid, ObjectMetadata, parse
from tidemark_operator.api.schemas import apply_defaults
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.reconcile.status import StatusWriter

from tests.support.api_objects import parsed
from tests.support.reconcile_harness import NAMESPACE, CountingStore

INTERVAL_MS = 1000
READY = (Condition("Ready", True, "BrokersActive", "all"),)


class Written:
    """A pool in a store, and a writer of its status with an allowance of two."""

    def __init__(self, directory: Path) -> None:
        self.store = CountingStore(directory / "store.sqlite")
        self.now_ms = 0
        self.seen: list[ObjectMetadata] = []
        self.writer = StatusWriter(
            self.store,
            interval_ms=INTERVAL_MS,
            burst=2,
            now_ms=lambda: self.now_ms,
            now_text=lambda: "2026-11-21T06:02:00Z",
            on_written=self._see,
        )
        self.item: Any = None

    def _see(self, kind: ResourceKind, metadata: ObjectMetadata) -> None:
        assert kind is BROKER_POOL
        self.seen.append(metadata)

    async def create(self, **spec: Any) -> Object:
        metadata = {"namespace": NAMESPACE, "name": "default"}
        item = {
            "apiVersion": BROKER_POOL.api_version, "kind": BROKER_POOL.kind,
            "metadata": metadata, "spec": spec,
        }  # fmt: skip
        stored = await self.store.create(BROKER_POOL, apply_defaults(item))
        self.store.writes = 0
        return stored

    async def write(self, replicas: int, *, at_once: bool = False) -> int | None:
        fields = PoolStatus(replicas=replicas)
        return await self.writer.write(self.item, fields, READY, at_once=at_once)

    async def status(self) -> dict[str, Any]:
        stored = await self.store.get(BROKER_POOL, NAMESPACE, "default")
        assert stored is not None
        status: dict[str, Any] = stored["status"]
        return status


def tell(tmp_path: Path, story: Callable[[Written], Awaitable[None]]) -> None:
    async def told() -> None:
        written = Written(tmp_path)
        written.item = parsed(BrokerPool, await written.create())
        await story(written)
        written.store.close()

    asyncio.run(told())


def test_a_status_that_is_stored_already_is_not_written_again(tmp_path: Path) -> None:
    async def story(written: Written) -> None:
        assert await written.write(3) is None
        assert await written.write(3) is None
        assert written.store.writes == 1
        status = await written.status()
        assert (status["replicas"], status["observedGeneration"]) == (3, 1)
        assert [each["type"] for each in status["conditions"]] == ["Ready"]

    tell(tmp_path, story)


def test_fields_that_are_not_set_stay_as_they_are(tmp_path: Path) -> None:
    async def story(written: Written) -> None:
        await written.write(3)
        await written.writer.write(written.item, PoolStatus(active_brokers=2), READY)
        status = await written.status()
        assert (status["replicas"], status["activeBrokers"]) == (3, 2)

    tell(tmp_path, story)


def test_after_a_few_writes_the_next_waits_for_its_interval(tmp_path: Path) -> None:
    async def story(written: Written) -> None:
        assert [await written.write(count) for count in (1, 2, 3)] == [None, None, INTERVAL_MS]
        written.now_ms += 600
        assert await written.write(3) == 400
        written.now_ms += 400
        assert await written.write(3) is None
        assert (await written.status())["replicas"] == 3

    tell(tmp_path, story)


def test_a_long_pause_earns_no_more_than_the_first_allowance(tmp_path: Path) -> None:
    async def story(written: Written) -> None:
        await written.write(1)
        written.now_ms += 100 * INTERVAL_MS
        assert [await written.write(count) for count in (2, 3, 4)] == [None, None, INTERVAL_MS]

    tell(tmp_path, story)


def test_a_write_that_cannot_wait_does_not(tmp_path: Path) -> None:
    async def story(written: Written) -> None:
        await written.write(1)
        await written.write(2)
        assert await written.write(3, at_once=True) is None
        assert await written.write(4) is not None

    tell(tmp_path, story)


def test_a_forgotten_object_has_its_whole_allowance_again(tmp_path: Path) -> None:
    async def story(written: Written) -> None:
        await written.write(1)
        await written.write(2)
        written.writer.forget(written.item.metadata.uid)
        assert await written.write(3) is None

    tell(tmp_path, story)


def test_the_item_holds_what_is_stored_after_a_write_and_its_version_is_told(
    tmp_path: Path,
) -> None:
    async def story(written: Written) -> None:
        before = written.item.metadata.resource_version
        await written.write(3)
        assert written.item.status.replicas == 3
        (seen,) = written.seen
        assert seen.resource_version == written.item.metadata.resource_version != before

    tell(tmp_path, story)


def test_an_object_that_breaks_a_rule_gets_a_status_too(tmp_path: Path) -> None:
    async def story(written: Written) -> None:
        stored = await written.store.get(BROKER_POOL, NAMESPACE, "default")
        assert stored is not None
        invalid = parse(BrokerPool, {**stored, "spec": {"replicas": "many"}})
        assert isinstance(invalid, Invalid)
        wrong = (Condition("Ready", False, "InvalidSpec", invalid.sentences[0]),)
        await written.writer.write(invalid, PoolStatus(), wrong)
        (ready,) = (await written.status())["conditions"]
        assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")

    tell(tmp_path, story)
