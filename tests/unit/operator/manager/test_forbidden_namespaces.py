"""A watched namespace without rights, maybe gone: the others go on, none counts as empty."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client
from tidemark_operator import main
from tidemark_operator.api.kinds import BROKER, BROKER_POOL, TOPIC
from tidemark_operator.manager.forbidden_namespaces import (
    NamespaceAccessRestored,
    find_forbidden,
    wait_until_open,
)
from tidemark_operator.manager.lease_thread import LeaseThread
from tidemark_operator.store import kubernetes
from tidemark_operator.store.kubernetes import KubernetesStore
from tidemark_operator.store.object_store import Forbidden
from tidemark_protocol.loop_lag import LoopLag

from tests.support.waiting import eventually
from tests.unit.operator.store.test_kubernetes import ask
from tests.unit.operator.store.test_lease import FakeLeader

BOTH = ("shop", "gone")


class Rights:
    """An API server that knows who may read what; `opens_after`: looks at the closed one."""

    def __init__(self, opens_after: int = 1000) -> None:
        self.opens_after = opens_after
        self.looks = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        namespace = request.path.split("/namespaces/")[1].split("/")[0]
        self.looks += namespace == "gone"
        if namespace == "gone" and self.looks <= self.opens_after:
            return web.json_response({"reason": "Forbidden", "message": "no"}, status=403)
        item = {"metadata": {"name": "a", "namespace": namespace}}
        return web.json_response({"items": [item], "metadata": {}})


def test_the_others_are_read_and_it_is_refused_by_ourselves() -> None:
    rights = Rights()

    async def story(store: KubernetesStore) -> None:
        with pytest.raises(Forbidden):
            await store.list(BROKER, None)
        closed = await find_forbidden(store, BOTH, pause_s=0)
        assert closed == {"gone"}
        without = store.without(closed)
        rights.opens_after = 0  # half a process must not begin with what it has not read
        found = await without.list(BROKER, None)
        assert [item["metadata"]["namespace"] for item in found] == ["shop"]
        item = {"metadata": {"name": "a", "namespace": "gone", "resourceVersion": "1"}}
        for call in (
            without.list(BROKER, "gone"),
            without.get(TOPIC, "gone", "a"),
            without.create(BROKER, item),
            without.replace(BROKER, item),
            without.replace_status(TOPIC, item),
            without.delete(TOPIC, "gone", "a"),
        ):
            with pytest.raises(Forbidden, match="not read"):
                await call

    ask(rights.answer, story, namespaces=BOTH)


def test_the_lease_asks_for_epochs_where_there_are_rights_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked for in the whole cluster they are refused, and nobody ever leads."""
    monkeypatch.setattr(main, "find_forbidden", partial(find_forbidden, pause_s=0))

    async def answer(request: web.Request) -> web.StreamResponse:
        if "/namespaces/" in request.path:
            return await Rights().answer(request)
        return web.json_response({"reason": "Forbidden", "message": "a Role"}, status=403)

    async def story(store: KubernetesStore) -> None:
        async def connect(**given: Any) -> KubernetesStore:
            return KubernetesStore(store._api, namespaces=given.get("namespaces", ()))

        monkeypatch.setattr(kubernetes, "connect", connect)
        stores = await main.connect_stores(None, BOTH)
        assert (stores.closed, stores.watched) == ({"gone"}, ("shop",))
        settings = main.OperatorSettings("tidemark", "one", "uid", "10.0.0.1", "", stores.watched)
        async with main.open_lease(settings, FakeLeader()) as lease:
            for each in (stores.open, lease._store):
                assert len(await each.list(BROKER, None)) == 1

    ask(answer, story, namespaces=BOTH)


def test_rights_that_only_came_late_close_nothing() -> None:
    async def story(store: KubernetesStore) -> None:
        assert await find_forbidden(store, BOTH, pause_s=0) == frozenset()

    ask(Rights(opens_after=3).answer, story, namespaces=BOTH)


def test_when_it_may_be_read_again_that_is_told() -> None:
    rights = Rights(opens_after=2)

    async def story(store: KubernetesStore) -> None:
        waiting = wait_until_open(store, frozenset({"gone"}), pause_s=0)
        assert isinstance(await asyncio.wait_for(waiting, 5), NamespaceAccessRestored)

    ask(rights.answer, story, namespaces=BOTH)
    assert rights.looks == 3


def test_who_does_not_answer_is_not_closed() -> None:
    async def broken(_: web.Request) -> web.StreamResponse:
        return web.json_response({}, status=500)

    async def story(store: KubernetesStore) -> None:
        assert await find_forbidden(store, BOTH, pause_s=0) == frozenset()
        assert await find_forbidden(store, ()) == frozenset()
        with pytest.raises(Exception, match="500"):
            await store.list(BROKER_POOL, None)

    ask(broken, story, namespaces=BOTH)


class LeaseServer:
    """An API server that keeps one Lease, and knows of nothing else."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method in ("POST", "PUT"):
            self.writes += 1
            item = await request.json()
            item["metadata"]["resourceVersion"] = str(self.writes)
            self.lease = item
            return web.json_response(item)
        if "/leases/" not in request.path:
            return web.json_response({"items": [], "metadata": {}})
        if self.lease is None:
            return web.json_response({"reason": "NotFound"}, status=404)
        return web.json_response(self.lease)


def test_the_leases_thread_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made, used and closed on its loop, which is no loop of the operator's."""
    server = LeaseServer()
    threads: list[str] = []

    async def story(store: KubernetesStore) -> None:
        host = store._api.configuration.host

        async def connect(**given: Any) -> KubernetesStore:
            threads.append(threading.current_thread().name)
            configuration = client.Configuration()
            configuration.host = host
            return KubernetesStore(client.ApiClient(configuration))

        monkeypatch.setattr(kubernetes, "connect", connect)
        leader = FakeLeader()
        settings = main.OperatorSettings("tidemark", "one", "uid", "10.0.0.1", "")
        thread = LeaseThread(
            leader, lambda requested: main.open_lease(settings, requested), LoopLag()
        )
        leading = asyncio.create_task(thread.run())
        await eventually(lambda: leader.is_leading)
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        assert threads == ["lease"]
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == ""

    ask(server.answer, story)
