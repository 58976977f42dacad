"""A client at the wrong broker is told who leads, where, in the same answer (KIP-951); as
kafka-python's classes, an independent implementation, write the requests and read the answers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol import consumer, producer
from tidemark_broker.kafka_wire.records.record_batch import build_batch
from tidemark_broker.replication.results import Consumer
from tidemark_protocol.controller_messages import BrokerState, Endpoints, ListenerAddress
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.in_process_pool import TOPIC, TOPIC_ID
from tests.support.kafka_test_client import ONLY, KafkaTestClient, with_kafka_client
from tests.support.waiting import eventually

OTHER = BrokerState(
    BrokerId(2),
    BrokerEpoch(12),
    False,
    False,
    Endpoints("10.0.0.2", 9092, 8080, "http://b2"),
    rack="west",
)
OUTSIDE = "outside"
NOBODY = (-1, -1)


def produce(version: int) -> Any:
    kind = producer.ProduceRequest
    topic = kind.TopicProduceData
    records = topic.PartitionProduceData(
        version=version, index=0, records=build_batch([(None, b"a", ())], timestamp_ms=1)
    )
    data = topic(version=version, name=TOPIC, partition_data=[records])
    return kind(version=version, acks=-1, timeout_ms=5000, topic_data=[data])


def fetch(version: int, *, max_wait_ms: int = 0, leader_epoch: int = -1, rack: str = "") -> Any:
    kind = consumer.FetchRequest
    partition = kind.FetchTopic.FetchPartition(
        version=version,
        partition=0,
        current_leader_epoch=leader_epoch,
        partition_max_bytes=1000,
    )
    topic = kind.FetchTopic(version=version, topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
    return kind(
        version=version,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[topic],
        rack_id=rack,
    )


async def responded(port: int, request: Any, answers: type[Any]) -> Any:
    request.with_header(correlation_id=9, client_id="k")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = bytes(request.encode(header=True))
        writer.write(len(body).to_bytes(4, "big") + body)
        size = await reader.readexactly(4)
        frame = size + await reader.readexactly(int.from_bytes(size, "big"))
        return answers.decode(frame, version=request.version, header=True, framed=True)
    finally:
        writer.close()


def hint_of(answer: Any) -> tuple[int, tuple[int, int], list[tuple[int, str, int, str | None]]]:
    """(error, leader and epoch, nodes)"""
    (topic,) = answer.responses
    (one,) = (
        topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    )
    leader = one.current_leader
    nodes = [
        (each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints or ()
    ]
    return (
        one.error_code,
        NOBODY if leader is None else (leader.leader_id, leader.leader_epoch),
        nodes,
    )


MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 2), [(2, "10.0.0.2", 9092, "west")])


@pytest.mark.parametrize("version", [10, 12])
def test_a_producer_is_told_who_leads_now(version: int, tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(next_leader=OTHER)
        found = await responded(kafka_client.port, produce(version), producer.ProduceResponse)
        assert hint_of(found) == MOVED

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize("version", [16, 17])
def test_a_consumer_is_told_while_it_waits_for_records(version: int, tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        waiting = asyncio.ensure_future(
            responded(kafka_client.port, fetch(version, max_wait_ms=60_000), consumer.FetchResponse)
        )
        replica = kafka_client.partitions.find_leading(TOPIC, 0)
        assert not isinstance(replica, ErrorCode)
        await eventually(lambda: replica.readers)
        kafka_client.push(next_leader=OTHER)
        assert hint_of(await waiting) == MOVED

    with_kafka_client(tmp_path, scenario)


def test_a_consumer_with_an_old_leader_epoch_is_told_the_new_one_and_its_leader(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(next_leader=OTHER)
        requested = fetch(17, leader_epoch=1)
        found = hint_of(await responded(kafka_client.port, requested, consumer.FetchResponse))
        assert found[1:] == MOVED[1:]
        assert found[0] in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with_kafka_client(tmp_path, scenario)


def test_older_versions_are_answered_as_before(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(next_leader=OTHER)
        produced = await responded(kafka_client.port, produce(9), producer.ProduceResponse)
        fetched = await responded(kafka_client.port, fetch(15), consumer.FetchResponse)
        refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, NOBODY, [])
        assert (hint_of(produced), hint_of(fetched)) == (refused, refused)

    with_kafka_client(tmp_path, scenario)


def test_a_leader_is_named_where_the_client_reaches_it_or_not_at_all(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        outside = await kafka_client.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        kafka_client.push(next_leader=OTHER)
        withheld = hint_of(await responded(outside, produce(12), producer.ProduceResponse))
        assert withheld == (ErrorCode.NOT_LEADER_OR_FOLLOWER, NOBODY, [])
        address = ListenerAddress(OUTSIDE, OTHER.broker_id, "node.example", 30002)
        kafka_client.push(next_leader=OTHER, addresses=(address,))
        named = hint_of(await responded(outside, fetch(17), consumer.FetchResponse))
        assert named[1:] == ((2, 2), [(2, "node.example", 30002, "west")])

    with_kafka_client(tmp_path, scenario)


def test_what_was_written_names_nobody(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        produced = await responded(kafka_client.port, produce(12), producer.ProduceResponse)
        assert hint_of(produced) == (ErrorCode.NONE, NOBODY, [])

    with_kafka_client(tmp_path, scenario)


def test_a_consumer_is_sent_to_nearer_replicas_only_where_it_reaches_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it asks the leader again, and is sent there again."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        racks: list[str | None] = []
        read = kafka_client.partitions.fetch

        def noting(*args: Any, consumer: Consumer, **named: Any) -> Callable[[], None]:
            racks.append(consumer.rack)
            return read(*args, consumer=consumer, **named)

        monkeypatch.setattr(kafka_client.partitions, "fetch", noting)
        outside = await kafka_client.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        requested = fetch(17, rack="west")
        await responded(kafka_client.port, requested, consumer.FetchResponse)
        await responded(outside, requested, consumer.FetchResponse)
        kafka_client.push(addresses=(ListenerAddress(OUTSIDE, ONLY, "node.example", 30001),))
        await responded(outside, requested, consumer.FetchResponse)
        assert racks == ["west", None, "west"]

    with_kafka_client(tmp_path, scenario)
