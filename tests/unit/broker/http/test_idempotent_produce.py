"""Plain HTTP clients that number their requests: sent again, written once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tidemark_protocol.controller_messages import AllocateProducerIdsResponse
from tidemark_protocol.error_codes import ErrorCode

from tests.unit.broker.http.fake_broker import Client, Response, fake_broker
from tests.unit.broker.http.test_with_partitions import client_of, led_alone

PARTITION = "/topics/orders/partitions/0"
TOPIC = "/topics/orders"
BINARY = "application/vnd.kafka.binary.v2+json"


def numbered(sequence: int, *values: Any, producer_id: int = 7, epoch: int = 0) -> dict[str, Any]:
    return {
        "records": [{"value": value} for value in values],
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "base_sequence": sequence,
    }


def with_client(path: Path, scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(await client_of(path / "logs", led_alone()))

    asyncio.run(run())


def offsets_of(response: Response) -> list[int]:
    assert response.status == 200, response.body
    return [entry["offset"] for entry in response.json()["offsets"]]


def reported(response: Response) -> tuple[int, str, str]:
    problem = response.json()
    return response.status, problem["error"], problem["outcome"]


@pytest.mark.parametrize("content_type", ["application/json", BINARY])
def test_a_request_sent_again_is_answered_200_with_the_same_offsets(
    tmp_path: Path, content_type: str
) -> None:
    async def scenario(client: Client) -> None:
        first = await client.post(PARTITION, numbered(0, "YQ==", "Yg=="), content_type)
        other = await client.post(PARTITION, {"records": [{"value": "Yw=="}]}, content_type)
        again = await client.post(PARTITION, numbered(0, "YQ==", "Yg=="), content_type)
        following = await client.post(PARTITION, numbered(2, "ZA=="), content_type)
        found = [offsets_of(response) for response in (first, other, again, following)]
        assert found == [[0, 1], [2], [0, 1], [3]]

    with_client(tmp_path, scenario)


def test_refusals_name_kafkas_errors_and_what_is_known(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        unknown = await client.post(PARTITION, numbered(4, 1))
        assert reported(unknown) == (409, "UNKNOWN_PRODUCER_ID", "not_written")
        await client.post(PARTITION, numbered(0, 1, epoch=3))
        gap = await client.post(PARTITION, numbered(2, 1, epoch=3))
        assert reported(gap) == (409, "OUT_OF_ORDER_SEQUENCE_NUMBER", "unknown")
        assert "expected base sequence 1, found 2" in gap.json()["detail"]
        fenced = await client.post(PARTITION, numbered(0, 1, epoch=2))
        assert reported(fenced) == (409, "INVALID_PRODUCER_EPOCH", "unknown")
        assert offsets_of(await client.post(PARTITION, numbered(0, 1, epoch=4))) == [1]

    with_client(tmp_path, scenario)


def test_on_the_topic_all_records_must_name_one_partition(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        body = numbered(0, 1, 2)
        keyless = await client.post(TOPIC, body)
        assert reported(keyless) == (422, "INVALID_RECORD", "not_written")
        body["records"] = [{"value": 1, "partition": 0}, {"value": 2, "partition": 0}]
        assert offsets_of(await client.post(TOPIC, body)) == [0, 1]
        assert offsets_of(await client.post(TOPIC, body)) == [0, 1]

    with_client(tmp_path, scenario)


def test_a_numbered_request_for_another_leader_is_redirected_whole() -> None:
    async def scenario() -> None:
        broker = fake_broker(leaders=(1,))
        body = numbered(0, 1)
        body["records"] = [{"value": 1, "partition": 0}]
        response = await broker.client.post(TOPIC, body)
        assert (response.status, response.headers["location"]) == (
            307,
            f"http://broker-1.example:8080{TOPIC}",
        )

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "change",
    [
        {"producer_id": None},
        {"base_sequence": None},
        {"producer_epoch": 2**15},
        {"base_sequence": 2**31},
        {"producer_id": -1},
        {"producer_id": "7"},
    ],
    ids=str,
)
def test_half_a_number_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    async def scenario(client: Client) -> None:
        refused = await client.post(PARTITION, numbered(0, 1) | change)
        assert reported(refused) == (422, "INVALID_RECORD", "not_written")
        assert offsets_of(await client.post(PARTITION, {"records": [{"value": 1}]})) == [0]

    with_client(tmp_path, scenario)


def test_what_would_be_several_batches_is_refused(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        body = numbered(0, 1, 2)
        body["records"][1]["timestamp"] = 5
        refused = await client.post(PARTITION, body)
        assert reported(refused) == (413, "MESSAGE_TOO_LARGE", "not_written")
        large = await client.post(PARTITION, numbered(0, "x" * 700_000, "y" * 700_000))
        assert reported(large) == (413, "MESSAGE_TOO_LARGE", "not_written")
        assert offsets_of(await client.post(PARTITION, numbered(0, 1))) == [0]

    with_client(tmp_path, scenario)


def test_producers_are_handed_out_and_go_on_in_the_next_epoch() -> None:
    async def allocate() -> AllocateProducerIdsResponse:
        return AllocateProducerIdsResponse(ErrorCode.NONE, first_producer_id=4000, count=1000)

    async def scenario() -> None:
        broker = fake_broker(allocate=allocate)
        first = await broker.client.post("/producers", b"")
        second = await broker.client.post("/producers", b"")
        assert (first.status, first.json()) == (200, {"producer_id": 4000, "producer_epoch": 0})
        assert second.json() == {"producer_id": 4001, "producer_epoch": 0}
        bumped = await broker.client.post("/producers", first.json())
        assert bumped.json() == {"producer_id": 4000, "producer_epoch": 1}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"producer_id":1}', b'{"producer_id":1,"producer_epoch":40000}'],
)
def test_a_malformed_question_for_a_producer_is_a_problem(body: bytes) -> None:
    async def scenario() -> None:
        response = await fake_broker().client.post("/producers", body)
        assert (response.status, response.json()["error"]) == (400, "INVALID_REQUEST")

    asyncio.run(scenario())


def test_without_a_controller_the_problem_invites_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemark_broker.metadata.producer_id_manager.WAIT_LIMIT_SECONDS", 0.01)

    async def scenario() -> None:
        response = await fake_broker().client.post("/producers", b"")
        assert response.status == 503
        assert response.json()["error"] == "COORDINATOR_LOAD_IN_PROGRESS"
        assert response.headers["retry-after"] == "1"

    asyncio.run(scenario())
