"""OffsetFetch of many groups: each is told once, others have their turns, an answer has a size."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.requests import (
    GroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
)
from tidemark_broker.kafka.apis.group_offsets import RESPONSE_BYTES
from tidemark_broker.kafka_wire.messages.group_offsets import OFFSET_COMMIT_API, OFFSET_FETCH_API
from tidemark_broker.kafka_wire.messages.primitives import INT32, MAX_ELEMENTS
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC, TOPIC_ID
from tests.support.kafka_test_client import (
    Client,
    KafkaTestClient,
    responded_beside,
    with_kafka_client,
)
from tests.support.waiting import eventually
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at

METADATA = "m" * GroupSettings().max_offset_metadata
ALL = None
NO_ID = "00000000-0000-4000-8000-000000000001"


def offsets_of(*groups: tuple[str, tuple[int, ...] | None]) -> bytes:
    entries = tuple(
        {
            "group_id": group_id,
            "member_id": None,
            "topics": ALL if numbers is None else ({"topic": TOPIC, "partitions": numbers},),
        }
        for group_id, numbers in groups
    )
    return OFFSET_FETCH_API.encode_request(7, 9, "test", {"groups": entries})


def groups_in(answer: bytes) -> list[dict[str, Any]]:
    _, values = OFFSET_FETCH_API.decode_response(INT32.pack(7) + answer, 9)
    return list(values["groups"])


def reported(answer: bytes) -> list[tuple[str, ErrorCode, list[tuple[int, int]]]]:
    """(group, error, (partition, offset) of each)."""
    return [
        (
            group["group_id"],
            ErrorCode(group["error"]),
            [
                (entry["partition"], entry["offset"])
                for topic in group["topics"]
                for entry in topic["partitions"]
            ],
        )
        for group in groups_in(answer)
    ]


async def commit(
    kafka_client: KafkaTestClient, group_id: str, partitions: range, metadata: str = ""
) -> None:
    """Offset 100 to partition 0, 101 to 1, ..."""
    named = (OffsetToCommit(TOPIC, n, 100 + n, metadata=metadata) for n in partitions)
    await commit_all(kafka_client, group_id, *named)


async def commit_all(
    kafka_client: KafkaTestClient, group_id: str, *offsets: OffsetToCommit
) -> None:
    responses: list[GroupResponse] = []
    kafka_client.context.groups.send(OffsetCommit(group_id, tuple(offsets)), responses.append)
    await eventually(lambda: responses)
    (response,) = responses
    assert isinstance(response, OffsetCommitResponse)
    assert {each.error for each in response.partitions} == {ErrorCode.NONE}


def with_groups(path: Path, scenario: Callable[[KafkaTestClient], Awaitable[None]]) -> None:
    async def main(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True)
        groups = kafka_client.context.groups
        await eventually(lambda: groups.list_groups(frozenset())[0] is ErrorCode.NONE)
        await scenario(kafka_client)

    with_kafka_client(path, main)


def test_a_group_is_told_once_however_often_it_is_named(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        for group_id in ("g", "h"):
            await commit(kafka_client, group_id, range(2))
        client = await Client.connect(kafka_client)
        requested = offsets_of(
            ("g", (0, 0, 1)), ("h", (0, 7)), ("g", (1, 0)), ("h", ALL), ("h", (7,))
        )
        assert reported(await client.ask(requested)) == [
            ("g", ErrorCode.NONE, [(0, 100), (1, 101)]),
            ("h", ErrorCode.NONE, [(0, 100), (1, 101)]),
        ]
        once = await client.ask(offsets_of(("g", ALL)))
        assert await client.ask(offsets_of(*[("g", ALL)] * 5000)) == once

    with_groups(tmp_path, scenario)


def test_others_are_answered_while_offsets_of_many_groups_are_told(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        frame = offsets_of(*((f"g{n}", ALL) for n in range(MAX_ELEMENTS - 10)))
        times, response = await responded_beside(kafka_client, frame)
        assert len(response) > 1000
        assert times >= 3

    with_groups(tmp_path, scenario)


def test_groups_beyond_the_size_of_an_answer_are_asked_for_again(tmp_path: Path) -> None:
    of_a_commit = 200  # which must fit into a batch
    count = RESPONSE_BYTES // (2 * len(METADATA)) + of_a_commit

    async def scenario(kafka_client: KafkaTestClient) -> None:
        for group_id in ("a", "b"):
            for first in range(0, count, of_a_commit):
                await commit(kafka_client, group_id, range(first, first + of_a_commit), METADATA)
        await commit(kafka_client, "c", range(1))
        client = await Client.connect(kafka_client)
        response = await client.ask(offsets_of(("a", ALL), ("b", ALL), ("c", ALL)))
        late = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert [
            (group_id, error, len(found) >= count) for group_id, error, found in reported(response)
        ] == [
            ("a", ErrorCode.NONE, True),
            ("b", ErrorCode.NONE, True),
            ("c", late, False),
        ]
        assert reported(await client.ask(offsets_of(("c", ALL)))) == [
            ("c", ErrorCode.NONE, [(0, 100)])
        ]

    with_groups(tmp_path, scenario)


@pytest.mark.parametrize("topics", [None, (TOPIC_ID, NO_ID)])
def test_offsets_are_fetched_by_the_ids_of_their_topics(
    tmp_path: Path, topics: tuple[str, ...] | None
) -> None:
    """v10. Of a topic that is gone nothing is told: groups keep names."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True)
        groups = kafka_client.context.groups
        await eventually(lambda: groups.list_groups(frozenset())[0] is ErrorCode.NONE)
        await commit_all(
            kafka_client, "g", OffsetToCommit("gone", 0, 7), OffsetToCommit(TOPIC, 0, 7)
        )
        named = [{"topic_id": each, "partitions": (0, 0, 1)} for each in topics or ()]
        group: Values = {"group_id": "g", "topics": ALL if topics is None else named}
        group |= {"member_id": None, "member_epoch": -1}
        found = await requested_at(kafka_client.port, OFFSET_FETCH_API, 10, {"groups": (group,)})
        reported = {
            topic["topic_id"]: [
                (each["partition"], each["offset"], each["error"]) for each in topic["partitions"]
            ]
            for topic in found["groups"][0]["topics"]
        }
        none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID
        if topics is None:
            assert reported == {TOPIC_ID: [(0, 7, none)]}
        else:
            assert reported == {
                TOPIC_ID: [(0, 7, none), (1, -1, none)],
                NO_ID: [(0, -1, unknown), (1, -1, unknown)],
            }

    with_kafka_client(tmp_path, scenario)


def test_offsets_are_committed_by_the_ids_of_their_topics(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True)
        groups = kafka_client.context.groups
        await eventually(lambda: groups.list_groups(frozenset())[0] is ErrorCode.NONE)
        partitions = [{"partition": number, "offset": 5, "metadata": None} for number in (0, 3)]
        topics = [{"topic_id": each, "partitions": partitions} for each in (TOPIC_ID, NO_ID)]
        requested = {"group_id": "g", "topics": topics, "group_instance_id": None}
        found = await requested_at(kafka_client.port, OFFSET_COMMIT_API, 10, requested)
        reported = {
            topic["topic_id"]: [each["error"] for each in topic["partitions"]]
            for topic in found["topics"]
        }
        absent, unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
        assert reported == {TOPIC_ID: [ErrorCode.NONE, absent], NO_ID: [unknown, unknown]}

    with_kafka_client(tmp_path, scenario)
