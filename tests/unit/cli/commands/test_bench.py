"""A bench does not fill a topic that somebody else uses."""

import asyncio

import pytest
from tidemark_cli.commands import bench
from tidemark_client.client import TidemarkClient
from tidemark_client.errors import CommandFailed

from tests.support.fake_http_broker import TOPIC, FakeCluster
from tests.unit.cli.fake_controller import FakeController


def test_bench_refuses_a_topic_that_has_records() -> None:
    async def experiment(records: int) -> None:
        async with FakeCluster() as cluster:
            cluster.logs[0] = [b"x"] * records
            async with TidemarkClient(cluster.urls) as client:
                await bench._check_unused(client, TOPIC, 1)

    asyncio.run(experiment(0))
    with pytest.raises(CommandFailed, match="has 3 records; the bench would add"):
        asyncio.run(experiment(3))


def test_bench_makes_a_topic_of_its_own_and_deletes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = FakeController()
    made: list[str] = []

    async def ready(*words: object) -> None:
        made.append(str(words[-1]))

    async def broken(*_: object) -> list[str]:
        raise CommandFailed("The bench failed.")

    monkeypatch.setattr(bench, "until_ready", ready)
    monkeypatch.setattr(bench, "_leader_urls", broken)
    monkeypatch.setattr(bench, "delete_object", lambda *words: delete(str(words[-1])))
    deleted: list[str] = []

    async def delete(name: str) -> None:
        deleted.append(name)

    async def experiment() -> None:
        from aiohttp.test_utils import TestServer
        from tidemark_cli.arguments import parse

        async with TestServer(controller.app()) as server:
            controller.url = f"http://{server.host}:{server.port}"
            await bench._measure(parse(["bench", "http", "--server", controller.url]))

    with pytest.raises(CommandFailed, match="The bench failed"):
        asyncio.run(experiment())
    (topic,) = controller.objects["topics"]
    assert topic["spec"]["deletionPolicy"] == "Delete"
    assert topic["metadata"]["name"].startswith("tidemark-bench-")
    assert made == deleted == [topic["metadata"]["name"]]
