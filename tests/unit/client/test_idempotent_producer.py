"""A producer that sends again in doubt: written once, and never a promise too many."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiohttp import web
from tidemark_client import client as client_module
from tidemark_client.client import TidemarkClient
from tidemark_client.idempotent_producer import IdempotentProducer
from tidemark_client.outcomes import Acknowledged, OutgoingRecord, Rejected, Unknown

from tests.support.fake_http_broker import TOPIC, FakeCluster, answering, hang_up, problem
from tests.support.waiting import HANG_SECONDS

ONE, TWO = [OutgoingRecord(b"one")], [OutgoingRecord(b"two")]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, HANG_SECONDS))


def test_an_answer_that_was_lost_is_asked_for_again_and_nothing_is_written_twice() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            producer = IdempotentProducer(client, TOPIC, 0)
            cluster.next_responses += [cluster.append_and_hang_up(), cluster.append_and_hang_up()]
            assert await producer.produce(ONE) == Acknowledged(0, cluster.url(0))
            assert await producer.produce(TWO) == Acknowledged(1, cluster.url(0))
            assert cluster.logs[0] == [b"one", b"two"]

    run(story())


def test_a_request_that_was_lost_is_sent_again() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            cluster.next_responses += [hang_up]
            found = await IdempotentProducer(client, TOPIC, 0).produce(ONE)
            assert (found, cluster.logs[0]) == (Acknowledged(0, cluster.url(0)), [b"one"])

    run(story())


def test_what_stays_in_doubt_is_unknown_and_the_next_batch_goes_on_in_a_new_epoch() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            producer = IdempotentProducer(client, TOPIC, 0)
            await producer.produce(ONE)
            cluster.next_responses += [cluster.append_and_hang_up()] + [
                answering(
                    lambda: problem(
                        503, "NOT_ENOUGH_REPLICAS", outcome="not_written", retriable=True
                    )
                )
            ] * 50
            in_doubt = await producer.produce(TWO, timeout_ms=300)
            assert isinstance(in_doubt, Unknown), in_doubt
            cluster.next_responses.clear()
            assert await producer.produce(ONE) == Acknowledged(2, cluster.url(0))
            assert {epoch for epoch, _, _ in cluster.producers.values()} == {1}
            assert cluster.logs[0] == [b"one", b"two", b"one"]

    run(story())


def test_what_is_certainly_not_written_keeps_its_sequence() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            producer = IdempotentProducer(client, TOPIC, 0)
            cluster.next_responses += [
                answering(lambda: problem(413, "MESSAGE_TOO_LARGE", outcome="not_written"))
            ]
            assert await producer.produce(ONE) == Rejected(
                "MESSAGE_TOO_LARGE", "detail of MESSAGE_TOO_LARGE"
            )
            assert await producer.produce(TWO) == Acknowledged(0, cluster.url(0))
            assert [state[:2] for state in cluster.producers.values()] == [(0, 1)]

    run(story())


def test_a_forgotten_producer_begins_a_new_epoch_by_itself() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            producer = IdempotentProducer(client, TOPIC, 0)
            await producer.produce(ONE)
            cluster.producers.clear()
            assert await producer.produce(TWO) == Acknowledged(1, cluster.url(0))
            assert {epoch for epoch, _, _ in cluster.producers.values()} == {1}

    run(story())


def test_callers_of_one_producer_take_turns() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            producer = IdempotentProducer(client, TOPIC, 0)
            found = await asyncio.gather(*(producer.produce(ONE) for _ in range(8)))
            assert found == [Acknowledged(n, cluster.url(0)) for n in range(8)]
            assert len(cluster.producers) == 1

    run(story())


def test_a_leader_that_hangs_is_left_for_the_one_elected_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "ATTEMPT_SECONDS", 60.0)  # its end is not waited for

    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            arrived, release = asyncio.Event(), asyncio.Event()

            async def hang(request: web.Request) -> web.StreamResponse:
                arrived.set()
                await release.wait()
                return web.Response(status=500)

            cluster.next_responses += [hang]
            sending = asyncio.create_task(
                IdempotentProducer(client, TOPIC, 0).produce(ONE, timeout_ms=60_000)
            )
            await arrived.wait()
            cluster.elect(0, 1)
            assert await sending == Acknowledged(0, cluster.url(1))
            assert cluster.logs[0] == [b"one"]
            release.set()

    run(story())


def test_without_a_producer_id_nothing_is_sent() -> None:
    async def story() -> None:
        async with TidemarkClient(["http://127.0.0.1:1"]) as client:
            found = await IdempotentProducer(client, TOPIC, 0).produce(ONE, timeout_ms=200)
            assert isinstance(found, Rejected)

    run(story())
