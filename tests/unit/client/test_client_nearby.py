"""A consumer with a rack: it goes where the leader sends it, and back when that does not serve."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tidemark_client.client import (
    PREFERENCE_SECONDS,
    ClientSettings,
    RackAwareReads,
    TidemarkClient,
)
from tidemark_client.outcomes import OutgoingRecord

from tests.support.fake_http_broker import TOPIC, FakeCluster
from tests.support.waiting import HANG_SECONDS

EAST = ClientSettings(rack="east")


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, HANG_SECONDS))


def test_the_leader_is_asked_once_and_then_the_near_replica() -> None:
    async def story() -> None:
        async with (
            FakeCluster(nearest={"east": 1}) as cluster,
            TidemarkClient(cluster.urls, settings=EAST) as client,
        ):
            await client.produce(TOPIC, 0, [OutgoingRecord(b"a")])
            for _ in range(3):
                assert (await client.fetch(TOPIC, 0, 0)).next_offset == 1
            assert cluster.read_at == [0, 1, 1, 1]

    run(story())


def test_a_leader_in_the_rack_serves_itself() -> None:
    async def story() -> None:
        async with (
            FakeCluster(nearest={"east": 0}) as cluster,
            TidemarkClient(cluster.urls, settings=EAST) as client,
        ):
            await client.fetch(TOPIC, 0, 0)
            await client.fetch(TOPIC, 0, 0)
            assert cluster.read_at == [0, 0]

    run(story())


def test_a_near_replica_that_dies_is_left_for_the_leader_at_once() -> None:
    async def story() -> None:
        async with (
            FakeCluster(nearest={"east": 1}) as cluster,
            TidemarkClient(cluster.urls, settings=EAST) as client,
        ):
            await client.produce(TOPIC, 0, [OutgoingRecord(b"a")])
            await client.fetch(TOPIC, 0, 0)
            await cluster.kill(1)
            assert (await client.fetch(TOPIC, 0, 0)).next_offset == 1
            assert cluster.read_at == [0, 1, 0]

    run(story())


def test_a_near_replica_that_sends_back_ends_the_preference() -> None:
    async def story() -> None:
        async with (
            FakeCluster(broker_count=3, nearest={"east": 1}) as cluster,
            TidemarkClient(cluster.urls, settings=EAST) as client,
        ):
            await client.fetch(TOPIC, 0, 0)
            cluster.nearest["east"] = 2
            await client.fetch(TOPIC, 0, 0)
            await client.fetch(TOPIC, 0, 0)
            assert cluster.read_at == [0, 1, 1, 0, 0, 2]

    run(story())


def test_a_preference_ends_after_a_while() -> None:
    now = [0.0]
    nearby = RackAwareReads(lambda: now[0])
    nearby.note(TOPIC, 0, "http://near")
    now[0] = PREFERENCE_SECONDS - 1
    assert nearby.url(TOPIC, 0) == "http://near"
    assert nearby.url(TOPIC, 1) is None
    now[0] = PREFERENCE_SECONDS
    assert nearby.url(TOPIC, 0) is None
