"""The controller on Kubernetes is reached through kubectl: each pod is asked until one leads."""

import argparse
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tidemark_client import controller_api
from tidemark_client.controller_api import EVENTS_PATH, open_controller
from tidemark_client.errors import CommandFailed
from tidemark_client.targets import STATUS_PATH, Target, controller_status

# Forwards nothing: the test's servers listen on this machine, one for each pod.
KUBECTL = """#!/bin/sh
for word in "$@"; do case $word in pod/*) pod=${word#pod/};; esac; done
echo "$@" >> %(words)s
echo "Forwarding from 127.0.0.1:$(cat %(ports)s/$pod) -> 8081"
exec sleep 9
"""


class TwoPods:
    @classmethod
    async def connect(cls, context: str | None, namespace: str | None) -> Self:
        return cls()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def operator_pods(self) -> tuple[tuple[str, str], ...]:
        return ("tidemark-system", "standby"), ("tidemark-system", "leading")


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    words = tmp_path / "words"
    script = tmp_path / "kubectl"
    script.write_text(KUBECTL % {"words": words, "ports": tmp_path})
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(controller_api, "KubernetesObjects", TwoPods)

    async def found(_: object) -> Target:
        return Target(kube_context="kind-tidemark")

    monkeypatch.setattr(controller_api, "find_target", found)
    yield words


def asked(path: Path, *leads: bool, times: int = 1, status: int = 200) -> list[dict[str, Any]]:
    """What the controller says, with pods that lead or not."""

    async def scenario() -> list[dict[str, Any]]:
        servers = []
        for name, is_leading in zip(("standby", "leading"), leads, strict=True):
            server = TestServer(operator(leads=is_leading, status=status))
            await server.start_server()
            servers.append(server)
            (path / name).write_text(str(server.port))
        controller = await open_controller(argparse.Namespace(namespace="shop"))
        try:
            return [await controller.get(EVENTS_PATH, pool="shop/default") for _ in range(times)]
        finally:
            await controller.close()
            for server in servers:
                await server.close()

    return asyncio.run(asyncio.wait_for(scenario(), 20))


def operator(*, leads: bool, status: int = 200) -> web.Application:
    async def events(request: web.Request) -> web.Response:
        if status != 200:
            return web.json_response({"problems": ["a sentence"]}, status=status)
        if not leads:
            return web.json_response({"problems": ["this operator is on standby"]}, status=503)
        return web.json_response({"pool": request.query["pool"]})

    app = web.Application()
    app.router.add_get(EVENTS_PATH, events)
    return app


def test_the_pod_that_leads_is_found_and_stays_connected(words: Path) -> None:
    assert asked(words.parent, False, True, times=3) == [{"pool": "shop/default"}] * 3
    forwarded = words.read_text().splitlines()
    assert forwarded == [
        f"--context kind-tidemark -n tidemark-system port-forward pod/{pod} :8081"
        for pod in ("standby", "leading")
    ]


def test_without_a_leader_the_standbys_words_are_told(words: Path) -> None:
    with pytest.raises(CommandFailed, match="on standby"):
        asked(words.parent, False, False)


def test_a_controller_that_rejects_the_reader_is_told_by_its_own_words() -> None:
    async def status_of(body: dict[str, str]) -> object:
        async def rejected(_: web.Request) -> web.Response:
            return web.json_response(body, status=401)

        app = web.Application()
        app.router.add_get(STATUS_PATH, rejected)
        async with TestServer(app) as server:
            return await controller_status(f"http://127.0.0.1:{server.port}")

    with pytest.raises(CommandFailed) as caught:
        asyncio.run(status_of({"problem": "a token is needed: use kubectl"}))
    assert caught.value.found == "a token is needed: use kubectl"
    assert asyncio.run(status_of({"error": "another server"})) is None


@pytest.mark.parametrize(("status", "exit_code"), [(400, 2), (404, 1), (503, 1)])
def test_what_is_not_found_and_wrong_usage_have_their_exit_codes(
    words: Path, status: int, exit_code: int
) -> None:
    with pytest.raises(CommandFailed, match="a sentence") as failed:
        asked(words.parent, True, True, status=status)
    assert failed.value.exit_code == exit_code
