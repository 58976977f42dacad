"""Members of a group: what they received is recorded before they commit it."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tidemark_chaos import group_workload
from tidemark_chaos.group_check import check_group
from tidemark_chaos.group_workload import GroupWorkload
from tidemark_chaos.verification import read_positions
from tidemark_chaos.workload_log import (
    ACKNOWLEDGED,
    REFUSED,
    Event,
    GroupCommitted,
    GroupRead,
)
from tidemark_client.client import TidemarkClient

from tests.support.fake_group_coordinator import Coordinator
from tests.support.fake_http_broker import TOPIC, FakeCluster, hang_up, problem
from tests.support.waiting import HANG_SECONDS

TEN = [b"%d" % number for number in range(10)]
LOG = {0: dict(enumerate(range(10)))}


def consumed(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What one member records until it has committed all ten records."""

    async def experiment() -> list[Event]:
        events: list[Event] = []
        async with FakeCluster() as brokers:
            server = TestServer(coordinator.app(), host="127.0.0.1")
            await server.start_server()
            brokers.urls[1] = str(server.make_url("")).rstrip("/")
            brokers.urls[0], first = brokers.urls[1], brokers.urls[0]
            async with TidemarkClient([first]) as client:
                group = GroupWorkload(
                    client,
                    group="readers",
                    topic=TOPIC,
                    members=1,
                    write=events.append,
                    now_ms=lambda: 1.0,
                )
                group.start()
                assert await group.drain({0: 10}) == {}
                await group.stop()
                assert group.positions == {0: 10}
            await server.close()
        return events

    monkeypatch.setattr(group_workload, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(group_workload, "DRAIN_SECONDS", HANG_SECONDS)
    return asyncio.run(asyncio.wait_for(experiment(), 2 * HANG_SECONDS))


def test_each_page_is_recorded_and_then_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(TEN)
    events = consumed(coordinator, monkeypatch)
    assert events == [
        GroupRead(1.0, 0, 0, [0, 1, 2, 3]),
        GroupCommitted(1.0, 0, 0, 4, ACKNOWLEDGED),
        GroupRead(1.0, 0, 0, [4, 5, 6, 7]),
        GroupCommitted(1.0, 0, 0, 8, ACKNOWLEDGED),
        GroupRead(1.0, 0, 0, [8, 9]),
        GroupCommitted(1.0, 0, 0, 10, ACKNOWLEDGED),
    ]
    assert coordinator.ended == 1
    assert check_group(events, LOG, {0: 10}) == ()


def test_a_member_that_is_gone_begins_again_at_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator = Coordinator(TEN)
    coordinator.next_polls = [coordinator.next_page, hang_up]
    events = consumed(coordinator, monkeypatch)
    assert len(coordinator.made) == 2
    assert check_group(events, LOG, {0: 10}) == ()


async def rejected(_: web.Request) -> web.Response:
    return problem(409, "ILLEGAL_GENERATION", outcome="rejected")


def test_a_commit_that_was_rejected_is_recorded_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(TEN)
    coordinator.next_commits = [rejected]
    events = consumed(coordinator, monkeypatch)
    assert events[1] == GroupCommitted(1.0, 0, 0, 4, REFUSED, "ILLEGAL_GENERATION")


def test_a_group_that_does_not_come_to_the_end_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def experiment() -> dict[int, int]:
        async with FakeCluster() as brokers, TidemarkClient(brokers.urls) as client:
            group = GroupWorkload(
                client,
                group="readers",
                topic=TOPIC,
                members=1,
                write=lambda _: None,
                now_ms=lambda: 1.0,
            )
            group.start()
            behind = await group.drain({0: 10, 1: 0})
            await group.stop()
            return behind

    monkeypatch.setattr(group_workload, "DRAIN_SECONDS", 0.1)
    assert asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS)) == {0: 0}


def test_a_page_that_skips_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(TEN)

    async def skipping(request: web.Request) -> web.Response:
        coordinator.seek(6)
        return await coordinator.next_page(request)

    coordinator.next_polls = [coordinator.next_page, skipping]
    (skipped,) = check_group(consumed(coordinator, monkeypatch), LOG, {0: 10})
    assert (skipped.name, skipped.count) == ("group-skipped", 2)


def groups(positions: dict[int, int], *, is_loading: bool = False) -> dict[str, object]:
    offsets = [
        {"topic": TOPIC, "partition": partition, "offset": offset, "committed_ms": 1}
        for partition, offset in positions.items()
    ]
    return {"groups": [{"group": "readers", "offsets": offsets}], "is_loading": is_loading}


def test_positions_are_read_from_whoever_coordinates_the_group() -> None:
    answers: list[Callable[[], web.Response]] = [
        lambda: web.Response(status=503),
        lambda: web.json_response(groups({0: 1}, is_loading=True)),
        lambda: web.json_response(groups({0: 4, 1: 7})),
    ]

    async def experiment() -> dict[int, int]:
        async def answer(_: web.Request) -> web.Response:
            return answers.pop(0)() if len(answers) > 1 else answers[0]()

        app = web.Application()
        app.router.add_get("/groups", answer)
        server = TestServer(app, host="127.0.0.1")
        await server.start_server()
        async with FakeCluster() as brokers:
            first = brokers.urls[0]
            url = str(server.make_url("")).rstrip("/")
            brokers.urls[:] = [url] * len(brokers.urls)
            async with TidemarkClient([first]) as client:
                found = await read_positions(client, "readers", TOPIC)
        await server.close()
        return found

    assert asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS)) == {0: 4, 1: 7}
