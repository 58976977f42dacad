"""Limits of produce requests, clients that go away, and what fails unexpectedly."""

import asyncio
from typing import Any

import pytest
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.replication.results import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.waiting import eventually
from tests.unit.broker.http.fake_broker import fake_broker
from tests.unit.broker.http.test_produce import PARTITION, post, run


def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    broker = fake_broker(limits=HttpLimits(body_bytes=100))
    response = post(broker, PARTITION, b"", content_length="101")
    assert response.status == 413
    assert response.headers["connection"] == "close"


def test_a_body_that_grows_too_large_is_refused_before_more_is_read() -> None:
    async def scenario() -> Any:
        broker = fake_broker(limits=HttpLimits(body_bytes=100))
        headers = {"content-type": "application/json"}
        return await broker.client.request("POST", PARTITION, [b"x" * 60] * 1000, headers)

    response = run(scenario())
    assert response.status == 413
    assert response.json()["outcome"] == "not_written"


def test_a_body_in_pieces_is_one_body() -> None:
    async def scenario() -> Any:
        pieces = [b'{"records":[', b'{"value":1}', b"]}"]
        headers = {"content-type": "application/json"}
        return await fake_broker().client.request("POST", PARTITION, pieces, headers)

    assert run(scenario()).status == 200


def test_too_many_records_and_headers_are_refused() -> None:
    broker = fake_broker(limits=HttpLimits(records=2, record_headers=1))
    assert post(broker, PARTITION, {"records": [{"value": 1}] * 3}).status == 422
    headers = [{"key": "a"}, {"key": "b"}]
    response = post(broker, PARTITION, {"records": [{"value": 1, "headers": headers}]})
    assert "$.records[0].headers" in response.json()["detail"]


def test_requests_beyond_the_limit_are_told_to_come_back() -> None:
    async def scenario() -> Any:
        broker = fake_broker(limits=HttpLimits(requests_in_flight=1))
        broker.partitions.hold_acks = True
        first = asyncio.create_task(broker.client.post(PARTITION, {"records": [{"value": 1}]}))
        await eventually(lambda: bool(broker.partitions.produced))
        second = await broker.client.post(PARTITION, {"records": [{"value": 2}]})
        broker.partitions.produced[0].done(ProduceResult(ErrorCode.NONE, Offset(0)))
        assert (await first).status == 200
        broker.partitions.hold_acks = False
        third = await broker.client.post(PARTITION, {"records": [{"value": 3}]})
        return second, third

    second, third = run(scenario())
    assert (second.status, second.headers["retry-after"]) == (503, "1")
    assert second.json()["error"] == "THROTTLING_QUOTA_EXCEEDED"
    assert second.json()["outcome"] == "not_written"
    assert third.status == 200


def test_bytes_in_flight_are_bounded() -> None:
    async def scenario() -> Any:
        broker = fake_broker(limits=HttpLimits(bytes_in_flight=30))
        broker.partitions.hold_acks = True
        body = b'{"records":[{"value":1}]}'
        first = asyncio.create_task(broker.client.post(PARTITION, body))
        await eventually(lambda: bool(broker.partitions.produced))
        second = await broker.client.post(PARTITION, body)
        broker.partitions.produced[0].done(ProduceResult(ErrorCode.NONE, Offset(0)))
        await first
        return second.status

    assert run(scenario()) == 503


def test_a_client_gone_before_its_body_gets_no_answer() -> None:
    async def scenario() -> Any:
        broker = fake_broker()
        broker.client.disconnect.set()
        headers = {"content-type": "application/json"}
        return await broker.client.request("POST", PARTITION, [], headers)

    assert run(scenario()) is None


def test_a_body_that_comes_too_slowly_is_408_and_not_written() -> None:
    async def scenario() -> Any:
        broker = fake_broker(limits=HttpLimits(body_seconds=0.01))
        headers = {"content-type": "application/json"}
        return await broker.client.request("POST", PARTITION, [], headers)

    response = run(scenario())
    assert (response.status, response.headers["connection"]) == (408, "close")
    assert response.json()["outcome"] == "not_written"


def test_a_failing_partition_is_a_500_of_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = fake_broker()

    def explode(*args: object, **kwargs: object) -> None:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(broker.partitions, "produce", explode)
    response = post(broker, PARTITION, {"records": [{"value": 1}]})
    assert (response.status, response.json()["outcome"]) == (500, "unknown")
    assert "disk on fire" not in response.body.decode()
    assert "http request failed" in caplog.text
