"""Topics that clients ask for and that there are not: made only where the pool wants it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tidemark_broker.kafka.apis import auto_create_topics
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import (
    AppliedVersionRequest,
    CreateTopicsRequest,
    TopicResult,
    TopicsRequest,
    TopicsResponse,
)
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import Client, KafkaTestClient, with_kafka_client
from tests.support.waiting import eventually

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Controller:
    """Makes what it is asked for, unless it refuses that."""

    def __init__(self, kafka_client: KafkaTestClient) -> None:
        self.requested: list[str] = []
        self.rejects: dict[str, ErrorCode] = {}
        self.may_response = asyncio.Event()
        self.may_response.set()
        self._kafka_client = kafka_client
        kafka_client.controller.ask = self._ask

    async def _ask(self, path: str, request: TopicsRequest, timeout_ms: int) -> TopicsResponse:
        if isinstance(request, AppliedVersionRequest):
            return TopicsResponse(ErrorCode.NONE, applied_version=1_000_000)
        assert isinstance(request, CreateTopicsRequest)
        names = [each.topic for each in request.topics]
        self.requested += names
        await self.may_response.wait()
        self._kafka_client.push(others=tuple(name for name in names if name not in self.rejects))
        results = (TopicResult(name, self.rejects.get(name, ErrorCode.NONE)) for name in names)
        return TopicsResponse(ErrorCode.NONE, results=tuple(results))


Scenario = Callable[[KafkaTestClient, Controller], Awaitable[None]]


def run(path: Path, scenario: Scenario, *, creates_topics: bool = True) -> None:
    async def with_controller(kafka_client: KafkaTestClient) -> None:
        kafka_client.context.creates_topics = creates_topics
        await scenario(kafka_client, Controller(kafka_client))

    with_kafka_client(path, with_controller)


async def metadata(
    kafka_client: KafkaTestClient, *names: str, allows: bool = True, version: int = 12
) -> list[Values]:
    client = await Client.connect(kafka_client)
    topics = tuple({"topic": name} for name in names)
    requested = {"topics": topics, "allow_auto_topic_creation": allows}
    client.send(METADATA_API.encode_request(7, version, "test", requested))
    size = int.from_bytes(await client.reader.readexactly(4), "big")
    _, values = METADATA_API.decode_response(await client.reader.readexactly(size), version)
    client.close()
    return list(values["topics"])


@pytest.mark.parametrize("version", [3, 12])
def test_a_topic_that_a_client_asks_for_is_made_and_told(tmp_path: Path, version: int) -> None:
    """Clients before v4 could not forbid it: they want it."""

    async def scenario(kafka_client: KafkaTestClient, controller: Controller) -> None:
        known, made = await metadata(kafka_client, TOPIC, "new", version=version)
        assert (known["error"], made["error"]) == (ErrorCode.NONE, ErrorCode.NONE)
        assert [each["leader"] for each in made["partitions"]] == [1]
        assert controller.requested == ["new"]

    run(tmp_path, scenario)


def test_by_default_nothing_is_made(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient, controller: Controller) -> None:
        (found,) = await metadata(kafka_client, "new")
        assert (found["error"], controller.requested) == (UNKNOWN, [])

    run(tmp_path, scenario, creates_topics=False)


def test_what_cannot_be_or_is_forbidden_is_not_asked_of_the_controller(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient, controller: Controller) -> None:
        kafka_client.push(retained=("kept",))
        found = await metadata(kafka_client, "not a name", OFFSETS_TOPIC, "kept")
        assert [each["error"] for each in found] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            UNKNOWN,
            UNKNOWN,
        ]
        (forbidden,) = await metadata(kafka_client, "new", allows=False)
        assert (forbidden["error"], controller.requested) == (UNKNOWN, [])

    run(tmp_path, scenario)


def test_many_who_want_the_same_ask_once(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient, controller: Controller) -> None:
        controller.may_response.clear()
        requesting = [asyncio.ensure_future(metadata(kafka_client, "new")) for _ in range(5)]
        await eventually(
            lambda: len(kafka_client.listener.connections) == 5 and controller.requested
        )
        controller.may_response.set()
        for found in await asyncio.gather(*requesting):
            assert [each["error"] for each in found] == [ErrorCode.NONE]
        assert controller.requested == ["new"]

    run(tmp_path, scenario)


def test_what_the_controller_refuses_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_create_topics, "CREATION_LIMIT_MS", 600_000)

    async def scenario(kafka_client: KafkaTestClient, controller: Controller) -> None:
        controller.rejects["new"] = ErrorCode.POLICY_VIOLATION
        (found,) = await metadata(kafka_client, "new")
        assert (found["error"], controller.requested) == (UNKNOWN, ["new"])

    run(tmp_path, scenario)


def test_what_does_not_come_in_time_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_create_topics, "CREATION_LIMIT_MS", 50)

    async def scenario(kafka_client: KafkaTestClient, controller: Controller) -> None:
        controller.rejects["new"] = ErrorCode.TOPIC_ALREADY_EXISTS  # another broker asked first
        (found,) = await metadata(kafka_client, "new")
        assert found["error"] == UNKNOWN
        kafka_client.push(others=("new",))
        (found,) = await metadata(kafka_client, "new")
        assert (found["error"], controller.requested) == (ErrorCode.NONE, ["new"])

    run(tmp_path, scenario)
