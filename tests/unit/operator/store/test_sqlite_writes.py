"""Writes of the SQLite store share commits, and each keeps its own outcome: counted, not timed."""

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import TOPIC, Object
from tidemark_operator.store.object_store import AlreadyExists, Conflict, StoreError
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_operator.store.sqlite_writes import WRITES_AT_ONCE

from tests.support.waiting import run


class Later(Executor):
    """Runs what it was given when it is told to: the disk, as slow as a test wants it."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        self.given.append((done, fn, args))
        return done

    def run_all(self) -> None:
        given, self.given = self.given, []
        for done, work, arguments in given:
            done.set_result(work(*arguments))


class Disk:
    def __init__(self, path: Path) -> None:
        self.executor = Later()
        self.store = SqliteStore(path / "objects.db", executor=self.executor)
        self.commits = 0
        self.is_full = False
        writing = self.store._writes._connection
        writing.set_trace_callback(self._record)
        self._connection = writing

    def _record(self, statement: str) -> None:
        self.commits += statement == "COMMIT"

    async def work(self) -> None:
        """Until nothing waits."""
        await asyncio.sleep(0.001)
        while self.executor.given:
            self.executor.run_all()
            await asyncio.sleep(0.001)

    def fill(self) -> None:
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        self._connection.execute(f"PRAGMA max_page_count = {pages}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.store.close()


def topic(name: str, **spec: Any) -> Object:
    return {"metadata": {"namespace": "shop", "name": name}, "spec": spec}


def creating(disk: Disk, *names: str) -> list["asyncio.Task[Object]"]:
    return [asyncio.create_task(disk.store.create(TOPIC, topic(name))) for name in names]


def test_what_waits_goes_with_one_commit(disk: Disk) -> None:
    async def scenario() -> None:
        made = creating(disk, *(f"t{number}" for number in range(100)))
        await disk.work()
        assert disk.commits == 1
        versions = [int((await each)["metadata"]["resourceVersion"]) for each in made]
        assert versions == list(range(1, 101))
        assert disk.store.resource_version() == 100

    run(scenario)


def test_a_commit_has_an_end_and_the_next_begins_at_once(disk: Disk) -> None:
    async def scenario() -> None:
        made = creating(disk, *(f"t{number}" for number in range(WRITES_AT_ONCE + 1)))
        await disk.work()
        assert disk.commits == 2
        assert all(each.done() for each in made)

    run(scenario)


def test_nothing_is_seen_before_it_is_committed(disk: Disk) -> None:
    async def scenario() -> None:
        (made,) = creating(disk, "orders")
        await asyncio.sleep(0.001)
        assert await disk.store.get(TOPIC, "shop", "orders") is None
        assert disk.store.changes_after(0) == ()
        assert not made.done()
        await disk.work()
        assert await disk.store.get(TOPIC, "shop", "orders") == await made

    run(scenario)


def test_one_refused_write_leaves_the_others_of_its_commit_alone(disk: Disk) -> None:
    async def scenario() -> None:
        (first,) = creating(disk, "orders")
        await disk.work()
        stored = await first
        changed = {**stored, "spec": {"partitions": 2}}
        writes = [
            *creating(disk, "orders", "other"),
            asyncio.create_task(disk.store.replace(TOPIC, changed)),
            asyncio.create_task(disk.store.replace(TOPIC, changed)),
        ]
        await disk.work()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(each) for each in outcomes] == [AlreadyExists, dict, dict, Conflict]
        assert disk.commits == 2

    run(scenario)


def test_a_commit_that_fails_fails_all_of_its_writes_and_leaves_none(disk: Disk) -> None:
    async def scenario() -> None:
        disk.fill()
        blob = "x" * 100_000
        made = [
            asyncio.create_task(disk.store.create(TOPIC, topic(name, blob=blob)))
            for name in ("orders", "other")
        ]
        await disk.work()
        outcomes = await asyncio.gather(*made, return_exceptions=True)
        assert [type(each) for each in outcomes] == [StoreError, StoreError]
        assert disk.store.resource_version() == 0
        disk._connection.execute("PRAGMA max_page_count = 1000000")
        (again,) = creating(disk, "orders")
        await disk.work()
        assert (await again)["metadata"]["resourceVersion"] == "1"

    run(scenario)


def test_who_gave_up_before_the_commit_writes_nothing(disk: Disk) -> None:
    async def scenario() -> None:
        given_up, made = creating(disk, "given-up", "made")
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        await disk.work()
        assert made.done()
        assert await disk.store.get(TOPIC, "shop", "given-up") is None

    run(scenario)


def test_changes_of_some_kinds_are_read_without_the_others(disk: Disk) -> None:
    async def scenario() -> None:
        (made,) = creating(disk, "orders")
        await disk.work()
        await made
        assert [each.item for each in disk.store.changes_after(0, kinds=(TOPIC,))] == [
            made.result()
        ]
        assert disk.store.changes_after(0, kinds=()) == ()

    run(scenario)


def test_the_store_is_an_sqlite_file_that_was_synced(disk: Disk) -> None:
    assert isinstance(disk._connection, sqlite3.Connection)
    assert disk._connection.execute("PRAGMA synchronous").fetchone() == (2,)
