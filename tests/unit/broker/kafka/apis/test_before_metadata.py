"""A broker that has just started, and has not heard from its controller: who is answered."""

import asyncio
from pathlib import Path

from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER

from tests.support.in_process_pool import TOPIC, a_batch
from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    ONLY,
    Client,
    KafkaTestClient,
    fetch,
    produce,
    with_kafka_client,
)

ALL_TOPICS = METADATA_API.encode_request(7, 8, "test", {"topics": None})


async def metadata_of(client: Client) -> Values:
    size = int.from_bytes(await client.reader.readexactly(4), "big")
    return METADATA_API.decode_response(await client.reader.readexactly(size), 8)[1]


def test_clients_wait_for_the_first_metadata_instead_of_hearing_that_no_topic_exists(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        requesting, producing, early = [await Client.connect(kafka_client) for _ in range(3)]
        requesting.send(ALL_TOPICS)
        producing.send(produce(a_batch("one")))
        reported = asyncio.create_task(metadata_of(requesting))
        written = asyncio.create_task(producing.answer())
        for _ in range(3):
            assert await early.ask(API_VERSIONS_REQUEST)
            assert await early.ask(fetch())  # so that followers and readers look elsewhere at once
        assert not reported.done() and not written.done()
        kafka_client.push()
        values = await reported
        (broker,), (topic,) = values["brokers"], values["topics"]
        assert (broker["broker_id"], topic["topic"]) == (ONLY, TOPIC)
        await written
        assert kafka_client.partitions.offsets(TOPIC, 0).log_end_offset == 1

    with_kafka_client(tmp_path, scenario, has_metadata=False)


def test_partitions_of_which_nothing_is_known_yet_are_listed(tmp_path: Path) -> None:
    """One whose last write has an unknown outcome is told to nobody (S3). A client that saw fewer
    partitions would send keys elsewhere."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(partition_count=3)
        client = await Client.connect(kafka_client)
        client.send(ALL_TOPICS)
        (topic,) = (await metadata_of(client))["topics"]
        assert [
            (each["partition"], each["leader"], each["error"]) for each in topic["partitions"]
        ] == [
            (0, ONLY, ErrorCode.NONE),
            (1, NO_BROKER, ErrorCode.LEADER_NOT_AVAILABLE),
            (2, NO_BROKER, ErrorCode.LEADER_NOT_AVAILABLE),
        ]
        for partition in (1, 2):
            assert (
                kafka_client.partitions.find_leading(TOPIC, partition)
                == ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        assert (
            kafka_client.partitions.find_leading(TOPIC, 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    with_kafka_client(tmp_path, scenario, has_metadata=False)


def test_who_waits_for_metadata_for_ever_is_closed_as_any_idle_client(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(ALL_TOPICS)
        assert await client.is_closed()
        assert not kafka_client.listener.connections

    limits = ListenerLimits(idle_seconds=0.05, sweep_seconds=0.02)
    with_kafka_client(tmp_path, scenario, limits, has_metadata=False)
