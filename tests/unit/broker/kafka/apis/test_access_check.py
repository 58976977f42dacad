"""Requests that wait for a review: their order, their end, and what is logged of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages import logs
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.kafka_wire.records.record_batch import (
    NewRecord,
    build_batch,
    read_records,
    split_batches,
)
from tidemark_broker.security.authorizer import Authorizer
from tidemark_protocol.access_messages import Access, Principal, ReviewAccessResponse
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.access import ALICE, POOL, Reviews
from tests.support.in_process_pool import TOPIC, TOPIC_ID
from tests.support.kafka_test_client import (
    Client,
    KafkaTestClient,
    fetch,
    produce,
    with_kafka_client,
)
from tests.unit.broker.kafka.apis.test_required_access import asked, place, topic_rule

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big")
Scenario = Callable[[KafkaTestClient, Client], Awaitable[None]]


class HeldReviews(Reviews):
    """Reviews that wait until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()

    async def review(
        self, principal: Principal, accesses: tuple[Access, ...]
    ) -> ReviewAccessResponse:
        await self.may_go.wait()
        return await super().review(principal, accesses)


class OneReview(Reviews):
    """Reviews of which only the first one is answered."""

    async def review(
        self, principal: Principal, accesses: tuple[Access, ...]
    ) -> ReviewAccessResponse:
        response = await super().review(principal, accesses)
        if len(self.asked) > 1:
            await asyncio.Event().wait()
        return response


class Time:
    def __init__(self) -> None:
        self.added_ms = 0

    def __call__(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000) + self.added_ms


def run(path: Path, reviews: Reviews, scenario: Scenario, time: Time | None = None) -> None:
    async def main(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await asyncio.sleep(0.01)
        kafka_client.authenticate(ALICE)
        await scenario(kafka_client, client)
        client.close()

    with_kafka_client(
        path, main, authorizer=lambda: Authorizer(reviews.review, pool=POOL, clock=time or Time())
    )


def batch_of(value: bytes) -> bytes:
    return build_batch([NewRecord(None, value)], timestamp_ms=1)


def test_batches_keep_their_order_while_the_first_one_waits(tmp_path: Path) -> None:
    reviews = HeldReviews()
    reviews.grant(topic_rule("produce"))

    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        for number in range(5):
            client.send(produce(batch_of(b"%d" % number)))
        await asyncio.sleep(0.05)
        assert not reviews.asked
        reviews.may_go.set()
        for _ in range(5):
            assert DENIED not in await client.answer()
        replica = kafka_client.partitions.find_leading(TOPIC, 0)
        assert not isinstance(replica, ErrorCode)
        assert replica.log.log_end_offset == 5
        end = replica.log.log_end_offset
        data = replica.log.read(Offset(0), max_bytes=10_000, end_offset=end)
        batches = split_batches(memoryview(data), max_batch_bytes=10_000)
        records = [record for batch in batches for record in read_records(batch.data)]
        assert [record.value for record in records] == [b"%d" % number for number in range(5)]
        assert len(reviews.asked) == 1

    run(tmp_path, reviews, scenario)


def test_a_client_that_leaves_during_a_review_leaves_nothing(tmp_path: Path) -> None:
    reviews = HeldReviews()
    reviews.grant(topic_rule("produce"))

    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        client.send(produce(batch_of(b"v")))
        await asyncio.sleep(0.05)
        client.close()
        await asyncio.sleep(0.05)
        reviews.may_go.set()
        await asyncio.sleep(0.05)
        assert not kafka_client.listener.connections
        replica = kafka_client.partitions.find_leading(TOPIC, 0)
        assert not isinstance(replica, ErrorCode)
        assert replica.log.log_end_offset == 0

    run(tmp_path, reviews, scenario)


def test_a_session_is_checked_again_when_its_review_is_stale(tmp_path: Path) -> None:
    reviews, time = Reviews(), Time()
    reviews.grant(topic_rule("consume"), topic_rule("produce"))
    partition = FetchPartition(0, -1, 0, -1, -1, 10_000)
    first = FetchRequest(0, 1, 10_000, (FetchTopic(TOPIC_ID, (partition,)),), session_epoch=0)

    async def fetched(client: Client, request: FetchRequest) -> Any:
        client.send(encode_fetch_request(request, correlation_id=7, client_id="test"))
        return decode_fetch_response(b"\x00\x00\x00\x07" + await client.answer())

    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        await client.ask(produce(batch_of(b"v")))
        response = await fetched(client, first)
        assert response.session_id and bytes(response.topics[0].partitions[0].records)
        reviews.grant()
        time.added_ms += 30_000
        later = first._replace(topics=(), session_id=response.session_id, session_epoch=1)
        response = await fetched(client, later)
        (answer,) = response.topics[0].partitions
        assert answer.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not bytes(answer.records)

    run(tmp_path, reviews, scenario, time)


def test_a_fetch_waits_no_longer_than_its_review_is_fresh(tmp_path: Path) -> None:
    reviews, time = OneReview(), Time()
    reviews.grant(topic_rule("consume"))

    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        await client.ask(fetch())
        time.added_ms += 29_000  # a second is left of the first review
        began = time()
        await client.ask(fetch(max_wait_ms=60_000))
        assert 500 <= time() - began <= 5_000

    run(tmp_path, reviews, scenario, time)


def test_denials_and_admin_actions_are_logged_without_payload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reviews = Reviews()
    reviews.grant(topic_rule("delete"))
    caplog.set_level(logging.INFO, "tidemark_broker.security.access_log")

    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        await client.ask(produce(batch_of(b"secret")))
        deleted = {"topics": place(offset=0), "timeout_ms": 0}
        await asked(client, logs.DELETE_RECORDS_API, None, deleted)
        absent = ({"topic": "absent", "partitions": ({"partition": 0, "offset": 0},)},)
        await asked(client, logs.DELETE_RECORDS_API, None, {"topics": absent, "timeout_ms": 0})

    run(tmp_path, reviews, scenario)
    lines = [(line.getMessage(), vars(line)) for line in caplog.records if hasattr(line, "verb")]
    assert [(text, line["verb"], line["resource_name"]) for text, line in lines] == [
        ("access denied", "produce", TOPIC),
        ("admin action", "delete", TOPIC),
        ("access denied", "delete", "absent"),
    ]
    assert lines[0][1]["operation"] == "Produce"
    assert lines[0][1]["correlation"] == "7"
    assert not any("secret" in str(line) for _, line in lines)
