"""`tidemark consume --group`: what is committed, and when a consumer is made again."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tidemark_cli import group_reader, partition_reader
from tidemark_cli.arguments import parse
from tidemark_cli.commands import consume
from tidemark_cli.output import Output
from tidemark_client.errors import CommandFailed

from tests.support.fake_group_coordinator import Coordinator
from tests.support.fake_http_broker import TOPIC, FakeCluster, hang_up, problem
from tests.support.waiting import HANG_SECONDS


@contextmanager
def soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group_reader, "COMMIT_PAUSE_SECONDS", 0.0)
        patched.setattr(group_reader, "PAUSE_SECONDS", 0.005)
        patched.setattr(partition_reader, "GONE_SECONDS", 0.02)
        patched.setattr(partition_reader, "ASK_PAUSE_SECONDS", 0.0)
        yield


def consumed(coordinator: Coordinator, *options: str, cluster: FakeCluster | None = None) -> int:
    async def experiment() -> int:
        async with cluster or FakeCluster() as brokers:
            server = TestServer(coordinator.app(), host="127.0.0.1")
            await server.start_server()
            brokers.urls[1] = str(server.make_url("")).rstrip("/")
            brokers.urls[0], first = brokers.urls[1], brokers.urls[0]
            words = ["consume", TOPIC, "--server", first, "-o", "json", "-G", "readers", *options]
            try:
                return await consume.run(parse(words), Output(is_json=True))
            finally:
                await server.close()

    with soon():
        return asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))


def values(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]


TEN = [b"%d" % number for number in range(10)]


def test_all_is_printed_then_committed_and_the_group_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    coordinator = Coordinator(TEN)
    assert consumed(coordinator, "--until-end") == 0
    assert values(capsys) == [f"{number}" for number in range(10)]
    assert coordinator.requested == ["commit 4", "commit 8", "commit 10"]
    assert (coordinator.ended, coordinator.made) == (
        1,
        [{"format": "binary", "auto.offset.reset": "earliest", "enable.auto.commit": False}],
    )


def test_only_what_was_printed_is_committed(capsys: pytest.CaptureFixture[str]) -> None:
    coordinator = Coordinator(TEN)
    assert consumed(coordinator, "--max", "6") == 0
    assert (len(values(capsys)), coordinator.committed) == (6, 6)
    assert consumed(coordinator, "--max", "1") == 0
    assert values(capsys) == ["6"]


def test_a_poll_that_is_broken_off_goes_on_from_what_is_committed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    coordinator = Coordinator(TEN)

    async def lost(request: web.Request) -> web.StreamResponse:
        coordinator._position = 4  # it was handed out, and did not arrive
        return await hang_up(request)

    coordinator.next_polls = [lost]
    assert consumed(coordinator, "--until-end") == 0
    assert values(capsys) == [f"{number}" for number in range(10)]
    assert len(coordinator.made) == 2


def test_a_consumer_that_its_broker_forgot_is_made_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def unknown(request: web.Request) -> web.StreamResponse:
        return problem(404, "UNKNOWN_MEMBER_ID", outcome=None)

    coordinator = Coordinator(TEN, next_polls=[unknown])
    assert consumed(coordinator, "--max", "1") == 0
    assert (values(capsys), len(coordinator.made)) == (["0"], 2)


def test_a_group_that_refuses_is_not_asked_for_ever() -> None:
    async def refused(request: web.Request) -> web.StreamResponse:
        return problem(403, "GROUP_AUTHORIZATION_FAILED", outcome=None)

    coordinator = Coordinator(TEN, next_polls=[refused] * 10)
    with pytest.raises(CommandFailed, match="GROUP_AUTHORIZATION_FAILED"):
        consumed(coordinator)
    assert len(coordinator.made) == 3


def test_a_commit_that_fails_is_tried_again_then_told(capsys: pytest.CaptureFixture[str]) -> None:
    async def busy(request: web.Request) -> web.StreamResponse:
        return problem(503, "COORDINATOR_NOT_AVAILABLE", outcome=None, retriable=True)

    async def taken(request: web.Request) -> web.StreamResponse:
        return problem(409, "ILLEGAL_GENERATION", outcome=None)

    coordinator = Coordinator(TEN, next_commits=[busy, busy])
    assert consumed(coordinator, "--max", "1") == 0
    assert coordinator.committed == 1
    coordinator.next_commits = [taken]
    assert consumed(coordinator, "--max", "1") == 0
    assert coordinator.committed == 1
    assert (
        "orders-0: offsets not committed, records may be read again: ILLEGAL"
        in capsys.readouterr().err
    )


def test_a_topic_that_is_deleted_meanwhile_ends_it() -> None:
    cluster = FakeCluster()

    async def deleted(request: web.Request) -> web.StreamResponse:
        cluster.is_deleted = True
        return web.json_response([])

    coordinator = Coordinator([], next_polls=[deleted])
    with pytest.raises(CommandFailed, match="deleted meanwhile"):
        consumed(coordinator, cluster=cluster)
    assert coordinator.ended == 1


def test_records_of_another_topic_of_that_name_are_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def of_another(request: web.Request) -> web.StreamResponse:
        response = await coordinator.next_page(request)
        response.headers["Tidemark-Topic-Ids"] = f"{TOPIC}=second"
        return response

    coordinator = Coordinator(TEN, next_polls=[of_another])
    with pytest.raises(CommandFailed, match="another topic has its name"):
        consumed(coordinator)
    assert (capsys.readouterr().out, coordinator.requested, coordinator.ended) == ("", [], 1)


@pytest.mark.parametrize(
    "options",
    [["--from", "-1h"], ["--from", "5"], ["-p", "0"], ["--tail", "1"], ["--rack", "east"]],
)
def test_a_group_gives_the_places_itself(options: list[str]) -> None:
    with pytest.raises(CommandFailed) as failed:
        consumed(Coordinator([]), *options)
    assert failed.value.exit_code == 2
