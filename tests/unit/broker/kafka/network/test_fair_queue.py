"""Requests of very many elements: done in slices of counted steps, so others have their turns."""

import asyncio
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from tidemark_broker.kafka.apis.produce import ProduceHandler
from tidemark_broker.kafka.network.fair_queue import STEPS_OF_A_SLICE, FairQueue
from tidemark_broker.kafka.network.request import KafkaRequest
from tidemark_broker.kafka_wire.messages.configs import DESCRIBE_CONFIGS_API
from tidemark_broker.kafka_wire.messages.cooperative_steps import Steps
from tidemark_broker.kafka_wire.messages.frames import Buffers, RequestHeader
from tidemark_broker.kafka_wire.messages.group_admin import DESCRIBE_GROUPS_API
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_broker.kafka_wire.messages.offsets import LIST_OFFSETS_API
from tidemark_broker.kafka_wire.messages.primitives import (
    INT16,
    INT32,
    MAX_ELEMENTS,
    MalformedFrame,
    Reader,
    nullable_string,
)
from tidemark_broker.kafka_wire.messages.produce import ProducePartition, ProduceRequest
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Api, Values
from tidemark_broker.replication.follower_fetch import FollowerSession

from tests.support.in_process_pool import TOPIC, a_batch
from tests.support.kafka_test_client import (
    PRODUCE,
    Client,
    KafkaTestClient,
    fetch,
    produce,
    request,
    responded_beside,
    with_kafka_client,
)

MANY = MAX_ELEMENTS - 10
INVALID_REQUEST = 42


def a_request(fail: Callable[[object], None]) -> KafkaRequest:
    header = RequestHeader(0, 0, 1, "test")
    return KafkaRequest(header, Reader(b""), FollowerSession(), lambda buffers: None, fail)


def counting(name: str, count: int, seen: list[str]) -> Steps[str]:
    for _ in range(count):
        seen.append(name)
        yield 1
    return name


def test_what_is_small_is_done_at_once_and_large_work_takes_turns() -> None:
    seen: list[str] = []
    done: list[str] = []

    async def main() -> None:
        turns = FairQueue()
        large = 3 * STEPS_OF_A_SLICE + 1
        for name, count in (("a", large), ("b", large), ("small", 5)):
            turns.take(a_request(pytest.fail), counting(name, count, seen), done.append)
        assert done == ["small"]
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert done == ["small", "a", "b"]
    whole = STEPS_OF_A_SLICE
    assert [(name, len(list(steps))) for name, steps in groupby(seen)] == [
        *(("a", whole), ("b", whole), ("small", 5)),
        *(("a", whole), ("b", whole), ("a", whole), ("b", whole), ("a", 1), ("b", 1)),
    ]


def test_one_turn_of_the_loop_does_one_slice_however_many_wait() -> None:
    seen: list[str] = []

    async def main() -> None:
        turns = FairQueue()
        for name in "abcdefgh":
            turns.take(a_request(pytest.fail), counting(name, 10_000, seen), seen.append)
        before = len(seen)
        for turn in range(1, 20):
            await asyncio.sleep(0)
            assert len(seen) == before + turn * STEPS_OF_A_SLICE

    asyncio.run(main())


def test_cancelled_work_stops_and_failed_work_ends_its_connection() -> None:
    seen: list[str] = []
    failures: list[object] = []

    def io_failure() -> Steps[str]:
        yield from counting("failing", STEPS_OF_A_SLICE + 1, seen)
        raise MalformedFrame("late")

    async def main() -> None:
        turns = FairQueue()
        request = a_request(failures.append)
        cancelled = turns.take(request, counting("cancelled", 10_000, seen), pytest.fail)
        turns.take(request, io_failure(), pytest.fail)
        cancelled.cancel()
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert seen.count("cancelled") == STEPS_OF_A_SLICE
    assert [str(error) for error in failures] == ["late"]


def requested(api: Api, version: int, values: Values) -> bytes:
    return api.encode_request(7, version, "test", values)


def metadata_of(*names: str) -> bytes:
    topics = tuple({"topic": name, "topic_id": ZERO_TOPIC_ID} for name in names)
    values = {"topics": topics, "allow_auto_topic_creation": False}
    return requested(METADATA_API, 12, values | {"include_topic_authorized_operations": False})


def produce_of_many(count: int) -> bytes:
    """v3: as many batches for partition 0, each of one record."""
    batch = a_batch("x")
    body = INT16.pack(-1) + INT16.pack(1) + INT32.pack(5000) + INT32.pack(1)
    body += nullable_string(TOPIC) + INT32.pack(count)
    body += (INT32.pack(0) + INT32.pack(len(batch)) + batch) * count
    return request(PRODUCE, 3, body)


def configs_of(*names: str) -> bytes:
    resources = tuple({"resource_type": 2, "resource": name, "names": None} for name in names)
    return requested(DESCRIBE_CONFIGS_API, 1, {"resources": resources, "include_synonyms": False})


LATEST, SOME_TIME_MS = -1, 1_700_000_000_000


def offsets_at(timestamp_ms: int, *partitions: int) -> bytes:
    requested_of = {"current_leader_epoch": -1, "timestamp": timestamp_ms}
    entries = tuple({"partition": partition} | requested_of for partition in partitions)
    topics = ({"topic": TOPIC, "partitions": entries},)
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    return requested(LIST_OFFSETS_API, 7, values)


NAMES = tuple(f"n{number}" for number in range(MANY))
LARGE = {
    "metadata": metadata_of(*NAMES),
    "configs": configs_of(*NAMES[: MANY // 2]),
    "offsets": offsets_at(LATEST, *range(MANY)),
    "offsets by time": offsets_at(SOME_TIME_MS, *range(STEPS_OF_A_SLICE // 2)),
    "groups": requested(DESCRIBE_GROUPS_API, 0, {"groups": NAMES}),
    "produce": produce_of_many(1000),
}


@pytest.mark.parametrize("frame", LARGE.values(), ids=LARGE)
def test_others_are_answered_while_a_large_request_is_done(tmp_path: Path, frame: bytes) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        times, response = await responded_beside(kafka_client, frame)
        assert len(response) > 1000
        assert times >= 3

    with_kafka_client(tmp_path, scenario)


def test_a_fetch_of_very_many_partitions_waits_and_is_answered_with_news(tmp_path: Path) -> None:
    """A pass over all of them takes longer than the next append comes."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        reader, writer = await Client.connect(kafka_client), await Client.connect(kafka_client)
        reader.send(fetch(max_wait_ms=60_000, times=MANY))
        waits = asyncio.ensure_future(reader.answer())
        while not waits.done():
            await writer.ask(produce(a_batch("news")))
        assert len(await waits) > 50

    with_kafka_client(tmp_path, scenario)


def test_a_later_request_of_the_connection_waits_until_all_batches_are_written(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(produce_of_many(500) + produce(a_batch("last")))
        await client.answer()
        last = await client.answer()
        base_offset = int.from_bytes(last[4 + 2 + len(TOPIC) + 4 + 4 + 2 :][:8], "big")
        assert base_offset == 500

    with_kafka_client(tmp_path, scenario)


def test_what_is_asked_many_times_is_told_once(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        once = await client.ask(metadata_of(TOPIC))
        assert await client.ask(metadata_of(*[TOPIC] * 1000)) == once
        refused = await client.ask(configs_of(*[TOPIC] * 1000))
        assert int.from_bytes(refused[4:8], "big") == 1
        assert int.from_bytes(refused[8:10], "big") == INVALID_REQUEST

    with_kafka_client(tmp_path, scenario)


def test_a_partition_whose_offset_is_asked_for_twice_is_refused(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        response = await client.ask(offsets_at(LATEST, 0, 0))
        _, values = LIST_OFFSETS_API.decode_response(INT32.pack(7) + response, 7)
        (topic,) = values["topics"]
        errors = [entry["error"] for entry in topic["partitions"]]
        assert errors == [INVALID_REQUEST, INVALID_REQUEST]

    with_kafka_client(tmp_path, scenario)


def test_more_elements_than_a_request_may_have_end_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(metadata_of(*NAMES, *(f"more{number}" for number in range(20))))
        assert await client.is_closed()

    with_kafka_client(tmp_path, scenario)
    assert f"expected at most {MAX_ELEMENTS}" in str(caplog.records[-1].__dict__)


def test_a_turn_of_a_produce_ends_after_so_many_bytes_too(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        responses: list[Buffers] = []
        header = RequestHeader(PRODUCE, 9, 1, None)
        requested = KafkaRequest(header, Reader(b""), FollowerSession(), responses.append, print)
        batches = tuple(
            ProducePartition(TOPIC, 0, memoryview(a_batch("x" * kib * 1024)))
            for kib in (1, 900, 500, 900)
        )
        producing = ProduceHandler(
            kafka_client.partitions, requested, ProduceRequest(None, 1, 1000, batches)
        )
        # A step for each, and one more for each quarter of a mebibyte; the last one ends it.
        assert list(producing.start_steps(batches)) == [1, 4, 2, 1]
        assert len(responses) == 1

    with_kafka_client(tmp_path, scenario)
