"""What the client may send again, and what never."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiohttp import web
from tidemark_client import leader_lookup
from tidemark_client.client import TidemarkClient
from tidemark_client.http_session import TimeLimits
from tidemark_client.leader_lookup import NoResponse, UnknownTopic
from tidemark_client.outcomes import (
    Acknowledged,
    BrokerError,
    OffsetRange,
    OutgoingRecord,
    Rejected,
    Unknown,
)

from tests.support.fake_http_broker import TOPIC, FakeCluster, answering, hang_up, problem
from tests.support.waiting import HANG_SECONDS

RECORD = [OutgoingRecord(b"one")]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, HANG_SECONDS))


def test_an_acknowledged_record_has_its_offset() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            first = await client.produce(TOPIC, 0, RECORD)
            second = await client.produce(TOPIC, 0, RECORD)
            assert first == Acknowledged(0, cluster.url(0))
            assert second == Acknowledged(1, cluster.url(0))
            assert await client.offsets(TOPIC, 0) == OffsetRange(0, 2)

    run(story())


def test_a_redirect_is_followed_and_the_leader_learnt() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            await client.produce(TOPIC, 0, RECORD)
            cluster.elect(0, 1)
            assert await client.produce(TOPIC, 0, RECORD) == Acknowledged(1, cluster.url(1))
            while client.lookup.metadata.leader_url(TOPIC, 0) != cluster.url(1):
                await client.lookup.wait_for_change(0.02)

    run(story())


def test_a_refused_connection_leads_to_the_new_leader() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            await client.produce(TOPIC, 0, RECORD)
            await cluster.kill(0)
            sending = asyncio.create_task(client.produce(TOPIC, 0, RECORD))
            await asyncio.sleep(0)
            cluster.elect(0, 1)
            assert await sending == Acknowledged(1, cluster.url(1))
            assert cluster.logs[0] == [b"one", b"one"]

    run(story())


def test_a_cut_connection_is_unknown_and_never_sent_again() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            await client.topic(TOPIC)
            cluster.next_responses = [hang_up]
            assert isinstance(await client.produce(TOPIC, 0, RECORD), Unknown)
            assert cluster.produced_at == [0]

    run(story())


@pytest.mark.parametrize(
    ("status", "error", "outcome", "retriable"),
    [
        (504, "REQUEST_TIMED_OUT", "unknown", True),
        (500, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "unknown", True),
        (500, "NOT_LEADER_OR_FOLLOWER", "unknown", True),
        (503, "NOT_ENOUGH_REPLICAS", None, True),
    ],
)
def test_only_what_is_said_to_be_not_written_is_sent_again(
    status: int, error: str, outcome: str | None, retriable: bool
) -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            response = answering(
                lambda: problem(status, error, outcome=outcome, retriable=retriable)
            )
            cluster.next_responses = [response]
            result = await client.produce(TOPIC, 0, RECORD)
            assert result == Unknown(error, f"detail of {error}")
            assert cluster.produced_at == [0]

    run(story())


def test_not_written_and_retriable_is_tried_again_until_it_works() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            again = answering(
                lambda: problem(503, "NOT_ENOUGH_REPLICAS", outcome="not_written", retriable=True)
            )
            cluster.next_responses = [again, again]
            assert isinstance(await client.produce(TOPIC, 0, RECORD), Acknowledged)
            assert len(cluster.produced_at) == 3

    run(story())


def test_a_partition_that_a_broker_has_not_heard_of_yet_is_asked_for_again() -> None:
    """It calls that lasting: it cannot know that the partition was added a moment ago."""

    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            unknown = answering(
                lambda: problem(404, "UNKNOWN_TOPIC_OR_PARTITION", outcome="not_written")
            )
            cluster.next_responses = [unknown]
            assert isinstance(await client.produce(TOPIC, 0, RECORD), Acknowledged)
            assert len(cluster.produced_at) == 2

    run(story())


def test_not_written_and_hopeless_is_refused_at_once() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            cluster.next_responses = [
                answering(lambda: problem(413, "MESSAGE_TOO_LARGE", outcome="not_written"))
            ]
            result = await client.produce(TOPIC, 0, RECORD)
            assert result == Rejected("MESSAGE_TOO_LARGE", "detail of MESSAGE_TOO_LARGE")
            assert len(cluster.produced_at) == 1

    run(story())


def test_a_produce_ends_refused_at_its_deadline() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster:
            urls = cluster.urls
            await cluster.kill(0)
            async with TidemarkClient(urls) as client:  # no connection is left from before
                result = await client.produce(TOPIC, 0, RECORD, timeout_ms=100)
            assert isinstance(result, Rejected)
            assert result.error == "NETWORK_EXCEPTION"

    run(story())


@pytest.mark.parametrize("body", ["{}", "[]", "nonsense", '{"offsets":[{}]}', '{"offsets":[7]}'])
def test_a_success_that_cannot_be_read_is_unknown(body: str) -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            cluster.next_responses = [answering(lambda: web.Response(text=body))]
            result = await client.produce(TOPIC, 0, RECORD)
            assert isinstance(result, Unknown)
            assert result.error == "UNREADABLE_ANSWER"

    run(story())


def test_a_fetch_gives_records_and_where_to_go_on() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            await client.produce(TOPIC, 0, [OutgoingRecord(b"a"), OutgoingRecord(b"b")])
            page = await client.fetch(TOPIC, 0, 1)
            assert [(record.offset, record.value) for record in page.records] == [(1, b"b")]
            assert (page.high_watermark, page.next_offset) == (2, 2)

    run(story())


def test_a_fetch_from_a_dead_leader_says_that_it_may_be_tried_again() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            await client.topic(TOPIC)
            await cluster.kill(0)
            with pytest.raises(BrokerError) as refused:
                await client.fetch(TOPIC, 0, 0)
            assert refused.value.is_retriable

    run(story())


def test_an_unknown_topic_and_a_silent_cluster_are_told_apart() -> None:
    async def story() -> None:
        async with FakeCluster() as cluster:
            async with TidemarkClient(cluster.urls) as client:
                with pytest.raises(UnknownTopic):
                    await client.topic("nothing")
            urls = cluster.urls
            await cluster.kill(0)
            await cluster.kill(1)
            async with TidemarkClient(urls) as client:
                with pytest.raises(NoResponse):
                    await client.topic(TOPIC)

    run(story())


def test_a_broker_that_hangs_does_not_hold_up_the_news_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_lookup, "ASK_LIMITS", TimeLimits(60))

    async def story() -> None:
        async with (
            FakeCluster(broker_count=3) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            await client.brokers()
            await client.topic(TOPIC)
            cluster.silent = {0}
            for turn in range(10):  # whoever is asked first: the order is random
                cluster.elect(0, 1 + turn % 2)
                for url in cluster.urls:
                    client.lookup.suspect(url)
                while client.lookup.metadata.leader_url(TOPIC, 0) != cluster.url(1 + turn % 2):
                    await client.lookup.wait_for_change(0.1)
                    client.lookup.suspect("")

    run(story())
