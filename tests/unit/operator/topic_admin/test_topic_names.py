"""Which Topic objects may have a topicName, without reading them all for each request."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tidemark_operator.api.kinds import TOPIC, Object
from tidemark_operator.store.object_store import StoreError
from tidemark_operator.topic_admin.topic_names import RELIST_SECONDS, TopicNames
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_names import object_names

from tests.support.controller_harness import POOL
from tests.support.waiting import HANG_SECONDS
from tests.unit.operator.topic_admin.topic_admin_harness import NAMESPACE, AdminHarness


def named(name: str, topic: str, *, namespace: str = NAMESPACE) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"topicName": topic}}


class Names:
    """Topic objects in a store, and who looks for them at `now_s`."""

    def __init__(self, harness: AdminHarness) -> None:
        self.harness = harness
        self.store = harness.store
        self.now_s = 0.0
        self.names = TopicNames(self.store, harness.harness.service, now_s=lambda: self.now_s)

    def beside_its_own(self, topic: str, pool: str = POOL) -> list[str]:
        """Return the names that are not the ones derived from the topicName."""
        found = self.names.objects_named(pool, topic)
        derived = object_names(pool, topic)
        assert found[: len(derived)] == derived
        return list(found[len(derived) :])


def run(tmp_path: Path, scenario: Callable[[Names], Awaitable[None]]) -> None:
    async def ran() -> None:
        harness = AdminHarness(tmp_path)
        try:
            await harness.start(3)
            await scenario(Names(harness))
        finally:
            await harness.harness.service.step_down()
            harness.store.close()

    asyncio.run(asyncio.wait_for(ran(), HANG_SECONDS))


def test_an_object_of_any_name_is_found_by_its_topic_name(tmp_path: Path) -> None:
    async def scenario(names: Names) -> None:
        for item in (named("by-hand", "Orders"), named("other", "payments")):
            await names.store.create(TOPIC, item)
        assert names.beside_its_own("Orders") == []
        await names.names.read(POOL)
        assert names.beside_its_own("Orders") == ["by-hand"]
        assert names.beside_its_own("orders") == []

    run(tmp_path, scenario)


def test_a_list_is_used_for_a_few_seconds(tmp_path: Path) -> None:
    async def scenario(names: Names) -> None:
        await names.names.read(POOL)
        await names.store.create(TOPIC, named("by-hand", "Orders"))
        names.store.lists = 0
        names.now_s = RELIST_SECONDS - 0.1
        await names.names.read(POOL)
        assert (names.store.lists, names.beside_its_own("Orders")) == (0, [])
        names.now_s = RELIST_SECONDS
        await asyncio.gather(*(names.names.read(POOL) for _ in range(3)))
        assert (names.store.lists, names.beside_its_own("Orders")) == (1, ["by-hand"])

    run(tmp_path, scenario)


def test_an_object_that_is_created_here_is_known_at_once(tmp_path: Path) -> None:
    async def scenario(names: Names) -> None:
        await names.names.read(POOL)
        names.names.note(named("by-hand", "Orders"))
        names.names.note(named("elsewhere", "Orders", namespace="other"))
        assert names.beside_its_own("Orders") == ["by-hand"]
        assert names.beside_its_own("Orders", "other/default") == []

    run(tmp_path, scenario)


def test_an_object_that_is_created_while_a_list_is_read_is_not_lost(tmp_path: Path) -> None:
    async def scenario(names: Names) -> None:
        names.store.lists = 0
        reading = asyncio.ensure_future(names.names.read(POOL))
        await asyncio.sleep(0)
        assert names.store.lists == 1  # it has begun
        names.names.note(named("by-hand", "Orders"))
        await reading
        assert names.beside_its_own("Orders") == ["by-hand"]

    run(tmp_path, scenario)


def test_a_topic_that_has_slices_is_found_by_them_without_a_list(tmp_path: Path) -> None:
    async def scenario(names: Names) -> None:
        controlled = names.harness.harness
        await controlled.service.create_topic(
            POOL, controlled.topic_state(), ((BrokerId(0), BrokerId(1)),), object_name="by-hand"
        )
        assert names.beside_its_own("orders") == ["by-hand"]
        await names.store.create(TOPIC, named("by-hand", "orders"))
        await names.names.read(POOL)
        assert names.beside_its_own("orders") == ["by-hand"]  # once

    run(tmp_path, scenario)


def test_a_list_that_fails_is_read_again_by_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(names: Names) -> None:
        async def fails(*_: object, **__: object) -> list[Object]:
            raise StoreError("the store is down")

        with monkeypatch.context() as patch, pytest.raises(StoreError):
            patch.setattr(names.store, "list", fails)
            await names.names.read(POOL)
        await names.store.create(TOPIC, named("by-hand", "Orders"))
        await names.names.read(POOL)
        assert names.beside_its_own("Orders") == ["by-hand"]

    run(tmp_path, scenario)
