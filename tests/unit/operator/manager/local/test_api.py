"""What local mode adds to the controller's API, over a real store."""

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tidemark_operator.manager.local.api import add_local_routes
from tidemark_operator.store.object_store import StoreError
from tidemark_operator.store.sqlite import SqliteStore

ORDERS = "{apiVersion: tidemark.dev/v1alpha1, kind: Topic, metadata: {name: orders}, spec: {}}"


class FullDisk(SqliteStore):
    async def create(self, kind: Any, item: Any) -> Any:
        raise StoreError("SQLite store: database or disk is full")


def exchange(store: SqliteStore, *requests: tuple[str, str, str]) -> list[tuple[int, Any]]:
    async def scenario() -> list[tuple[int, Any]]:
        app = web.Application()
        add_local_routes(app, store, secret_file=Path("controller.secret"))
        responses = []
        async with TestClient(TestServer(app)) as client:
            for method, path, body in requests:
                response = await client.request(method, path, data=body)
                responses.append((response.status, await response.json()))
        return responses

    return asyncio.run(scenario())


def test_all_objects_of_a_kind_are_listed(tmp_path: Path) -> None:
    _, (status, topics), (_, pools) = exchange(
        SqliteStore(tmp_path / "objects.db"),
        ("POST", "/v1/apply", ORDERS),
        ("GET", "/v1/topics", ""),
        ("GET", "/v1/brokerpools", ""),
    )
    assert status == 200
    assert [item["metadata"]["name"] for item in topics["items"]] == ["orders"]
    assert pools == {"items": []}


def test_what_the_store_cannot_do_is_told_in_its_words(tmp_path: Path) -> None:
    ((status, body),) = exchange(FullDisk(tmp_path / "objects.db"), ("POST", "/v1/apply", ORDERS))
    assert (status, body) == (503, {"problems": ["SQLite store: database or disk is full"]})


def test_uptime_is_told(tmp_path: Path) -> None:
    ((status, body),) = exchange(SqliteStore(tmp_path / "objects.db"), ("GET", "/v1/local", ""))
    assert status == 200
    assert 0 <= body["uptimeMs"] < 60_000


def test_create_answers_conflict_and_refusal(tmp_path: Path) -> None:
    first, second, third, fourth = exchange(
        SqliteStore(tmp_path / "objects.db"),
        ("POST", "/v1/topics", ORDERS),
        ("POST", "/v1/topics", ORDERS),
        ("POST", "/v1/brokerpools", ORDERS),
        ("POST", "/v1/apply", "[1"),
    )
    assert first[0] == 200
    assert second == (409, {"problems": ["Topic default/orders already exists"]})
    assert third == (422, {"problems": ["expected one BrokerPool, found something else"]})
    assert fourth[0] == 422
