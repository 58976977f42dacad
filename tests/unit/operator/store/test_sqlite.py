"""SqliteStore keeps the promises of ObjectStore, as the API server does."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import LEASE, PARTITION_SLICE, TOPIC, Object
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    NotFound,
    ObjectStore,
    Rejected,
    StoreError,
)
from tidemark_operator.store.sqlite import SqliteStore

from tests.support.waiting import HANG_SECONDS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "objects.db")
    yield opened
    opened.close()


def topic(name: str = "orders", **spec: Any) -> Object:
    return {"metadata": {"namespace": "shop", "name": name}, "spec": spec}


def test_it_is_an_object_store(store: SqliteStore) -> None:
    seam: ObjectStore = store
    assert asyncio.run(seam.get(TOPIC, "shop", "orders")) is None


def test_create_stamps_identity_and_returns_what_is_stored(store: SqliteStore) -> None:
    async def scenario() -> None:
        created = await store.create(TOPIC, {**topic(partitions=3), "status": {"lie": True}})
        metadata = created["metadata"]
        assert (metadata["generation"], metadata["resourceVersion"]) == (1, "1")
        assert len(metadata["uid"]) == 36
        assert metadata["creationTimestamp"].endswith("Z")
        assert "status" not in created
        assert created["kind"] == "Topic"
        assert await store.get(TOPIC, "shop", "orders") == created
        with pytest.raises(AlreadyExists):
            await store.create(TOPIC, topic())

    asyncio.run(scenario())


def test_replace_is_compare_and_set(store: SqliteStore) -> None:
    async def scenario() -> None:
        first = await store.create(TOPIC, topic(partitions=3))
        second = await store.replace(TOPIC, {**first, "spec": {"partitions": 4}})
        assert second["metadata"]["generation"] == 2
        with pytest.raises(Conflict, match="expected version 1, found 2"):
            await store.replace(TOPIC, {**first, "spec": {"partitions": 5}})
        stored = await store.get(TOPIC, "shop", "orders")
        assert stored == second

    asyncio.run(scenario())


def test_replace_keeps_the_status_and_replace_status_keeps_the_spec(store: SqliteStore) -> None:
    async def scenario() -> None:
        created = await store.create(TOPIC, topic(partitions=3))
        ready = await store.replace_status(
            TOPIC, {**created, "spec": {"partitions": 99}, "status": {"ready": True}}
        )
        assert (ready["spec"], ready["status"]) == ({"partitions": 3}, {"ready": True})
        assert ready["metadata"]["generation"] == 1
        changed = await store.replace(TOPIC, {**ready, "spec": {"partitions": 4}, "status": {}})
        assert (changed["spec"], changed["status"]) == ({"partitions": 4}, {"ready": True})

    asyncio.run(scenario())


def test_kinds_without_a_status_subresource_are_written_whole(store: SqliteStore) -> None:
    async def scenario() -> None:
        created = await store.create(LEASE, {**topic("lease"), "status": {"x": 1}})
        changed = await store.replace(LEASE, {**created, "status": {"x": 2}})
        assert changed["status"] == {"x": 2}

    asyncio.run(scenario())


def test_a_write_that_changes_nothing_writes_nothing(store: SqliteStore) -> None:
    async def scenario() -> None:
        created = await store.create(TOPIC, topic(partitions=3))
        assert await store.replace(TOPIC, created) == created
        assert await store.replace_status(TOPIC, created) == created
        assert store.resource_version() == 1

    asyncio.run(scenario())


def test_identity_cannot_be_written_over(store: SqliteStore) -> None:
    async def scenario() -> None:
        created = await store.create(TOPIC, topic())
        forged = {**created, "metadata": {**created["metadata"], "uid": "mine"}}
        with pytest.raises(Conflict, match="another object has this name"):
            await store.replace(TOPIC, forged)
        unversioned = {"metadata": {"namespace": "shop", "name": "orders"}, "spec": {}}
        with pytest.raises(Rejected, match="resourceVersion is missing"):
            await store.replace(TOPIC, unversioned)
        with pytest.raises(NotFound):
            await store.replace(TOPIC, topic("absent"))

    asyncio.run(scenario())


def test_delete_is_idempotent_and_may_name_the_very_object(store: SqliteStore) -> None:
    async def scenario() -> None:
        created = await store.create(TOPIC, topic())
        with pytest.raises(Conflict, match="expected uid other"):
            await store.delete(TOPIC, "shop", "orders", uid="other")
        with pytest.raises(Conflict, match="expected resourceVersion 0, found"):
            await store.delete(TOPIC, "shop", "orders", resource_version="0")
        await store.delete(TOPIC, "shop", "orders", uid=created["metadata"]["uid"])
        await store.delete(TOPIC, "shop", "orders")
        again = await store.create(TOPIC, topic())
        assert again["metadata"]["uid"] != created["metadata"]["uid"]
        assert int(again["metadata"]["resourceVersion"]) == 3

    asyncio.run(scenario())


def test_lists_are_by_kind_namespace_and_labels_in_name_order(store: SqliteStore) -> None:
    async def scenario() -> None:
        for name in ("b", "a"):
            item = topic(name)
            item["metadata"]["labels"] = {"pool": name}
            await store.create(TOPIC, item)
        await store.create(TOPIC, {"metadata": {"namespace": "other", "name": "c"}})
        await store.create(PARTITION_SLICE, topic("a-0"))

        async def names(namespace: str | None, labels: dict[str, str] | None = None) -> list[str]:
            found = await store.list(TOPIC, namespace, labels)
            return [item["metadata"]["name"] for item in found]

        assert await names("shop") == ["a", "b"]
        assert await names(None) == ["c", "a", "b"]
        assert await names("shop", {"pool": "b"}) == ["b"]

    asyncio.run(scenario())


def test_changes_name_each_object_once_in_its_newest_form_and_deletions(
    store: SqliteStore,
) -> None:
    async def scenario() -> None:
        kept = await store.create(TOPIC, topic("kept"))
        gone = await store.create(TOPIC, topic("gone"))
        start = store.resource_version()
        await store.replace(TOPIC, {**kept, "spec": {"partitions": 2}})
        await store.delete(TOPIC, "shop", "gone")
        found = store.changes_after(start)
        assert [(c.item["metadata"]["name"], c.is_deleted) for c in found] == [
            ("kept", False),
            ("gone", True),
        ]
        assert found[1].item["metadata"]["uid"] == gone["metadata"]["uid"]
        assert store.changes_after(found[-1].resource_version) == ()

    asyncio.run(scenario())


def test_waiting_for_a_change_ends_with_the_next_write(store: SqliteStore) -> None:
    async def scenario() -> None:
        waiting = asyncio.create_task(store.wait_for_change(store.resource_version()))
        await asyncio.sleep(0)
        assert not waiting.done()
        await store.create(TOPIC, topic())
        await asyncio.wait_for(waiting, HANG_SECONDS)
        await asyncio.wait_for(store.wait_for_change(0), HANG_SECONDS)

    asyncio.run(scenario())


def test_a_second_start_finds_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = SqliteStore(tmp_path / "objects.db")
        created = await first.create(TOPIC, topic(partitions=3))
        first.close()
        second = SqliteStore(tmp_path / "objects.db")
        assert await second.get(TOPIC, "shop", "orders") == created
        assert second.resource_version() == 1
        second.close()

    asyncio.run(scenario())


def test_two_processes_cannot_share_one_file(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="in use by another process"):
        SqliteStore(tmp_path / "objects.db")


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "objects.db"
    path.write_bytes(b"not a database, " * 100)
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(path)


def test_writes_are_synced_in_full(store: SqliteStore) -> None:
    """S26: WAL with synchronous=FULL (2)."""
    connections: list[sqlite3.Connection] = store._connections
    for connection in connections:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_oversized_object_is_refused_and_leaves_no_trace(store: SqliteStore) -> None:
    async def scenario() -> None:
        with pytest.raises(Rejected, match="bytes"):
            await store.create(TOPIC, topic(blob="x" * 5_000_000))
        assert store.resource_version() == 0
        assert await store.list(TOPIC, None) == []

    asyncio.run(scenario())
