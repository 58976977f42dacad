"""acks=0 at the Kafka port: nobody reads an answer, so there is none, and an error has to close the
connection."""

from pathlib import Path

import pytest
from tidemark_protocol.controller_messages import BrokerState, Endpoints
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.in_process_pool import TOPIC, a_batch
from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    Client,
    KafkaTestClient,
    produce,
    with_kafka_client,
)
from tests.unit.broker.kafka.network.test_bad_input import closed_log, kind_of

OTHER = BrokerState(
    BrokerId(2), BrokerEpoch(12), False, False, Endpoints("10.0.0.2", 9092, 8080, "http://b2")
)


async def what_comes(client: Client) -> bytes:
    """The first bytes; b"" if the broker closes the connection instead."""
    try:
        return await client.reader.read(65536)
    except ConnectionError:
        return b""


def reasons(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(kind_of(each), str(each.__dict__["detail"])) for each in closed_log(caplog)]


def test_what_was_written_is_not_answered_and_the_connection_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client, other = await Client.connect(kafka_client), await Client.connect(kafka_client)
        versions = await other.ask(API_VERSIONS_REQUEST)
        for _ in range(3):
            client.send(produce(a_batch("one"), acks=0))
            assert await client.ask(API_VERSIONS_REQUEST) == versions
        assert kafka_client.partitions.offsets(TOPIC, 0).log_end_offset == 3
        assert kafka_client.context.memory.requests.used_bytes == 0

    with_kafka_client(tmp_path, scenario)
    assert closed_log(caplog) == []


def test_what_was_not_written_closes_its_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client, other = await Client.connect(kafka_client), await Client.connect(kafka_client)
        client.send(produce(a_batch("torn")[:-1], acks=0) + API_VERSIONS_REQUEST)
        assert await what_comes(client) == b""
        assert await other.ask(API_VERSIONS_REQUEST)
        assert kafka_client.partitions.offsets(TOPIC, 0).log_end_offset == 0

    with_kafka_client(tmp_path, scenario)
    ((kind, reason),) = reasons(caplog)
    assert kind == "failed request"
    assert reason.startswith("acks=0: CORRUPT_MESSAGE ")


def test_a_leader_that_moved_is_looked_for_after_the_connection_was_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await client.ask(API_VERSIONS_REQUEST)
        kafka_client.push(next_leader=OTHER)
        client.send(produce(a_batch("one"), acks=0) + API_VERSIONS_REQUEST)
        assert await what_comes(client) == b""

    with_kafka_client(tmp_path, scenario)
    ((_, reason),) = reasons(caplog)
    assert reason.startswith("acks=0: NOT_LEADER_OR_FOLLOWER")
