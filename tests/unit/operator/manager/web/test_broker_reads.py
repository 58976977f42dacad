"""Offsets and groups are read from brokers by bound, once for all pages."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tidemark_operator.controller.core.views import BrokerView, TopicView
from tidemark_operator.manager.web.broker_reads import (
    MAX_KEPT,
    MAX_REPLICA_BYTES,
    PARTITIONS_PER_READ,
    BrokerReads,
    Follower,
    Replica,
    TooManyReads,
)
from tidemark_protocol.ids import BrokerId

from tests.support.waiting import run as run_scenario
from tests.unit.operator.manager.web.test_pool_feed import broker, partition, topic

GROUPS = {
    "broker_id": 0,
    "groups": [
        {
            "group": "billing",
            "state": "Stable",
            "members": [{"member_id": "a"}],
            "offsets": [
                {"topic": "orders", "partition": 0, "offset": 40, "committed_ms": 1},
                {"topic": "gone", "partition": 0, "offset": 3, "committed_ms": 1},
            ],
        }
    ],
}


class Brokers:
    """One server for all brokers: the page's requests in order, and what they get."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.replica: Any = {"log_start_offset": 0, "high_watermark": 50, "log_end_offset": 60}
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        await self.gate.wait()
        if request.path == "/groups":
            return web.json_response(GROUPS)
        if isinstance(self.replica, bytes):
            return web.Response(body=self.replica)
        return web.json_response(self.replica)


Scenario = Callable[[Brokers, BrokerReads, tuple[BrokerView, ...]], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def served() -> None:
        brokers = Brokers()
        app = web.Application()
        app.router.add_get("/{path:.*}", brokers.answer)
        reads = BrokerReads()
        async with TestServer(app) as server:
            assert server.port is not None
            views = tuple(
                replace(
                    broker(number),
                    endpoints=replace(
                        broker(number).endpoints, host="127.0.0.1", http_port=server.port
                    ),
                )
                for number in range(2)
            )
            try:
                await scenario(brokers, reads, views)
            finally:
                await reads.close()

    run_scenario(served)


def test_pages_share_a_reading() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        view = topic("orders", partition(0), partition(1))
        found = await asyncio.gather(*(reads.replicas("p", view, views, 0) for _ in range(20)))
        assert len(brokers.asked) == 4  # two partitions with two replicas
        assert found[0][0] == {
            "partition": 0,
            "replicas": [
                {"broker": 0, "start": 0, "watermark": 50, "end": 60},
                {"broker": 1, "start": 0, "watermark": 50, "end": 60},
            ],
        }

    run(scenario)


def test_few_partitions_are_read_of_a_large_topic() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        view = topic("orders", *map(partition, range(500)))
        found = await reads.replicas("p", view, views, 480)
        assert [each["partition"] for each in found] == list(range(480, 496))
        assert len(brokers.asked) == 2 * PARTITIONS_PER_READ

    run(scenario)


def test_fenced_brokers_are_not_asked() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        away = (views[0], replace(views[1], state="Fenced"))
        (found,) = await reads.replicas("p", topic("orders", partition(0)), away, 0)
        assert len(brokers.asked) == 1
        assert [each["broker"] for each in found["replicas"]] == [0]  # type: ignore[attr-defined]

    run(scenario)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"high_watermark":"x"}', b"x" * 10**6])
def test_malformed_answers_are_no_answers(body: bytes) -> None:
    assert len(body) < MAX_REPLICA_BYTES or len(body) == 10**6

    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        brokers.replica = body
        (found,) = await reads.replicas("p", topic("orders", partition(0)), views, 0)
        assert found == {"partition": 0, "replicas": []}

    run(scenario)


def test_hostile_name_stays_in_its_path() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        await reads.replicas("p", topic("../x?y=1#z", partition(0)), views[:1], 0)
        assert brokers.asked == ["/topics/../x?y=1#z/partitions/0/replica"]  # decoded by the server

    run(scenario)


def test_different_readings_are_bounded() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        brokers.gate.clear()
        names = [topic(f"t{number}", partition(0)) for number in range(MAX_KEPT + 1)]
        reading = [asyncio.create_task(reads.replicas("p", view, views, 0)) for view in names[:-1]]
        await asyncio.sleep(0)
        with pytest.raises(TooManyReads, match="no more are"):
            await reads.replicas("p", names[-1], views, 0)
        brokers.gate.set()
        await asyncio.gather(*reading)

    run(scenario)


def test_groups_have_the_end_of_what_they_committed() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        view = topic("orders", partition(0))

        def find(name: str) -> TopicView | None:
            return view if name == "orders" else None

        (found,) = await reads.groups("p", find, views, "")
        assert (found["group"], found["members"]) == ("billing", 1)
        assert found["offsets"] == [("orders", 0, 40, 50), ("gone", 0, 3, None)]
        (of_topic,) = await reads.groups("p", find, views, "orders")
        assert of_topic["offsets"] == [("orders", 0, 40, 50)]

    run(scenario)


def test_leaders_say_how_far_their_followers_are() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        brokers.replica = brokers.replica | {
            "followers": [{"broker_id": 1, "log_end_offset": 30}],
            "of_a_newer_version": 1,
        }
        away = replace(partition(2), leader=BrokerId(9))
        found = await reads.leaders("p", [("orders", partition(0)), ("orders", away)], views)
        assert found == [Replica(0, 50, 60, [Follower(1, 30)]), None]
        assert brokers.asked == ["/topics/orders/partitions/0/replica"]

    run(scenario)


def test_leader_of_an_earlier_version_says_nothing_about_followers() -> None:
    async def scenario(brokers: Brokers, reads: BrokerReads, views: Any) -> None:
        (found,) = await reads.leaders("p", [("orders", partition(0))], views)
        assert found == Replica(0, 50, 60, [])

    run(scenario)
