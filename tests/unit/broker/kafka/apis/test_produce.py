"""What Produce answers to topic ids, over a real socket."""

from pathlib import Path
from typing import Any
from uuid import UUID

import kafka.protocol.producer as producer
from tidemark_broker.kafka_wire.messages.primitives import INT32
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC_ID
from tests.support.kafka_test_client import Client, KafkaTestClient, framed, with_kafka_client

NO_ID = "00000000-0000-4000-8000-000000000001"


def test_records_are_produced_by_the_id_of_their_topic(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        batch = build_batch([NewRecord(None, b"v")], timestamp_ms=1)
        topics = [(topic_id, [(0, batch), (7, batch)]) for topic_id in (TOPIC_ID, NO_ID)]
        response = await produced_by_id(kafka_client, topics)
        reported = {
            str(topic.topic_id): [
                (each.index, each.error_code, each.base_offset)
                for each in topic.partition_responses
            ]
            for topic in response.responses
        }
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = [(number, ErrorCode.UNKNOWN_TOPIC_ID, -1) for number in (0, 7)]
        assert reported == {TOPIC_ID: [(0, ErrorCode.NONE, 0), (7, absent, -1)], NO_ID: unknown}

    with_kafka_client(tmp_path, scenario)


def test_answers_of_several_unknown_topic_ids_are_told_apart(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        others = [NO_ID, NO_ID[:-1] + "2"]
        response = await produced_by_id(kafka_client, [(each, [(0, b"")]) for each in others])
        assert [str(topic.topic_id) for topic in response.responses] == others

    with_kafka_client(tmp_path, scenario)


async def produced_by_id(
    kafka_client: KafkaTestClient, topics: list[tuple[str, list[tuple[int, bytes]]]]
) -> Any:
    kind = producer.ProduceRequest
    of_topic, of_partition = kind.TopicProduceData, kind.TopicProduceData.PartitionProduceData
    data = [
        of_topic(
            version=13,
            topic_id=UUID(topic_id),
            partition_data=[
                of_partition(version=13, index=number, records=batch) for number, batch in batches
            ],
        )
        for topic_id, batches in topics
    ]
    requested = kind(version=13, transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
    requested.with_header(correlation_id=7, client_id="test")
    client = await Client.connect(kafka_client)
    client.send(bytes(requested.encode(header=True, framed=True)))
    response = framed(INT32.pack(7) + await client.answer())
    return producer.ProduceResponse.decode(response, version=13, header=True, framed=True)
