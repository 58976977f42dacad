"""Calls of the API server from a pod, against a server that answers as Kubernetes does."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tidemark_chaos.environments.pods_api import PodsApi
from tidemark_client.errors import CommandFailed

TOPICS = "/apis/tidemark.dev/v1alpha1/namespaces/shop/topics"
EXPERIMENTS = "/apis/tidemark.dev/v1alpha1/namespaces/shop/chaosexperiments"
PODS = "/api/v1/namespaces/shop/pods"


class ApiServer:
    """Keeps what it is asked; `printed` is what a command in a container prints."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.tokens: set[str] = set()
        self.objects: dict[str, Any] = {}
        self.watched: list[Any] = []
        self.printed: list[bytes] = []
        self.pods = {"default-0"}

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get(f"{PODS}/{{name}}/exec", self._execute)
        app.router.add_route("*", "/{path:.*}", self._call)
        return app

    async def _call(self, request: web.Request) -> web.StreamResponse:
        self.tokens.add(request.headers["Authorization"])
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path_qs, body))
        if request.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(request)
            for event in self.watched:
                await response.write(json.dumps(event).encode() + b"\n")
            return response
        if request.method in ("POST", "PATCH"):
            return web.json_response(body)
        if request.path not in self.objects:
            return web.json_response({"message": "it is not there"}, status=404)
        found = self.objects[request.path]
        return web.json_response(found, status=found.get("code", 200))

    async def _execute(self, request: web.Request) -> web.WebSocketResponse:
        if request.match_info["name"] not in self.pods:
            raise web.HTTPNotFound
        self.asked.append(("EXEC", request.path, request.query.getall("command")))
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        for message in self.printed:
            await socket.send_bytes(message)
        await socket.close()
        return socket


def ask(
    tmp_path: Path, server: ApiServer, work: Callable[[PodsApi], Awaitable[Any]], token: str = "t1"
) -> Any:
    async def scenario() -> Any:
        (tmp_path / "token").write_text(f"{token}\n")
        async with TestServer(server.app()) as running:
            url = str(running.make_url("/"))
            async with PodsApi(url, "shop", account=tmp_path, tls=None) as api:
                return await work(api)

    return asyncio.run(scenario())


def test_a_missing_object_is_none_and_deleting_it_no_error(tmp_path: Path) -> None:
    server = ApiServer()
    assert ask(tmp_path, server, lambda api: api.get("topics", "chaos")) is None
    ask(tmp_path, server, lambda api: api.delete("topics", "chaos"))
    assert [each[:2] for each in server.asked] == [
        ("GET", f"{TOPICS}/chaos"),
        ("DELETE", f"{TOPICS}/chaos"),
    ]


def test_a_status_is_patched_by_a_merge_and_the_token_is_read_for_each_call(tmp_path: Path) -> None:
    server = ApiServer()
    for token in ("t1", "t2"):  # the kubelet renews it
        ask(
            tmp_path,
            server,
            lambda api: api.patch_status("chaosexperiments", "one", {"rounds": 2}),
            token,
        )
    assert server.asked[0] == ("PATCH", f"{EXPERIMENTS}/one/status", {"status": {"rounds": 2}})
    assert server.tokens == {"Bearer t1", "Bearer t2"}


def test_a_rejected_call_tells_the_servers_sentence(tmp_path: Path) -> None:
    server = ApiServer()
    server.objects[f"{TOPICS}/chaos"] = {"code": 403, "message": "topics is forbidden"}
    with pytest.raises(CommandFailed, match="403 topics is forbidden"):
        ask(tmp_path, server, lambda api: api.get("topics", "chaos"))


def test_a_watch_begins_with_a_list_and_follows_it(tmp_path: Path) -> None:
    server = ApiServer()
    server.objects[TOPICS] = {"items": [{"n": 1}], "metadata": {"resourceVersion": "7"}}
    server.watched = [{"type": "MODIFIED", "object": {"n": 2}}, {"type": "ERROR", "object": {}}]

    async def watched(api: PodsApi) -> list[tuple[str, Any]]:
        return [each async for each in api.watch("topics")]

    assert ask(tmp_path, server, watched) == [
        ("ADDED", {"n": 1}),
        ("MODIFIED", {"n": 2}),
        ("ERROR", {}),
    ]
    assert "resourceVersion=7" in server.asked[1][1]


def test_a_command_returns_what_it_printed_without_the_other_channels(tmp_path: Path) -> None:
    server = ApiServer()
    server.printed = [b"\x011234", b"\x02not this", b"\x01 56\n", b'\x03{"status": "Success"}']
    command = ("sh", "-c", "kill -9 7", "sh")
    assert ask(tmp_path, server, lambda api: api.execute("default-0", command)) == "1234 56\n"
    assert server.asked == [("EXEC", f"{PODS}/default-0/exec", list(command))]


def test_a_command_in_a_pod_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="a command in pod default-9"):
        ask(tmp_path, ApiServer(), lambda api: api.execute("default-9", ("sh",)))


def test_pods_are_deleted_by_force_without_grace(tmp_path: Path) -> None:
    server = ApiServer()
    server.objects[f"{PODS}/default-0"] = {}
    ask(tmp_path, server, lambda api: api.delete_pod("default-0", is_forced=True))
    assert server.asked == [("DELETE", f"{PODS}/default-0", {"gracePeriodSeconds": 0})]


def test_the_leading_operator_is_the_holder_of_the_lease(tmp_path: Path) -> None:
    server = ApiServer()
    path = "/apis/coordination.k8s.io/v1/namespaces/system/leases/tidemark-controller"
    server.objects[path] = {"spec": {"holderIdentity": "operator-1/uid"}}
    assert ask(tmp_path, server, lambda api: api.leading_operator("system")) == "operator-1"
