"""Refusals of single records name them by index and message (KIP-467)."""

from pathlib import Path
from typing import Any

import kafka.protocol.producer as producer
import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tidemark_broker.kafka_wire.messages.primitives import INT32
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.replication.record_errors import (
    MOST_RECORD_ERRORS,
    records_rejected,
    with_more,
)
from tidemark_broker.replication.results import RecordError
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import Client, KafkaTestClient, framed, with_kafka_client

FAR_AHEAD_MS = 2**60
GZIP = 1
COMPACTED = {"cleanup.policy": "compact"}


def batch(*records: tuple[bytes | None, int], codec: int = 0) -> bytes:
    """Of (key, timestamp)."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**20)
    for offset, (key, timestamp_ms) in enumerate(records):
        builder.append(offset, timestamp_ms, key, b"v", [])
    return bytes(builder.build())


async def produced(kafka_client: KafkaTestClient, version: int, *batches: bytes) -> list[Any]:
    """The answers for partition 0, one for each batch."""
    request = producer.ProduceRequest
    topic = request.TopicProduceData
    partitions = [
        topic.PartitionProduceData(version=version, index=0, records=data) for data in batches
    ]
    requested = request(
        version=version,
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[topic(version=version, name=TOPIC, partition_data=partitions)],
    )
    requested.with_header(correlation_id=7, client_id="test")
    client = await Client.connect(kafka_client)
    client.send(bytes(requested.encode(header=True, framed=True)))
    response = framed(INT32.pack(7) + await client.answer())
    read = producer.ProduceResponse.decode(response, version=version, header=True, framed=True)
    return list(read.responses[0].partition_responses)


def errors_of(answer: Any) -> dict[int, str]:
    errors = answer.record_errors
    return {found.batch_index: found.batch_index_error_message for found in errors}


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_record_without_a_key_is_named_and_the_others_are_not(
    tmp_path: Path, version: int, codec: int
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(config=COMPACTED)
        sent = batch((b"a", 1), (None, 1), (b"c", 1), codec=codec)
        (response,) = await produced(kafka_client, version, sent)
        assert response.error_code == ErrorCode.INVALID_RECORD
        if version >= 8:
            assert list(errors_of(response)) == [1]
            assert "no key" in errors_of(response)[1]
            assert "cleanup.policy" in response.error_message
        replica = kafka_client.partitions.replica(TOPIC, 0)
        assert replica is not None and replica.log_end_offset == 0

    with_kafka_client(tmp_path, scenario)


def test_one_timestamp_out_of_range_decides_for_all_and_each_is_named(tmp_path: Path) -> None:
    """As Kafka's LogValidator: of a record without a key its timestamp is not looked at."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(config=COMPACTED)
        sent = batch((None, FAR_AHEAD_MS), (b"b", 1), (b"c", FAR_AHEAD_MS), (None, 1))
        (response,) = await produced(kafka_client, 9, sent)
        assert response.error_code == ErrorCode.INVALID_TIMESTAMP
        words = {index: message.split(" ")[0] for index, message in errors_of(response).items()}
        assert words == {0: "the", 2: "dated", 3: "the"}
        keyless = batch((None, FAR_AHEAD_MS), (b"b", 1))
        (response,) = await produced(kafka_client, 9, keyless)
        assert response.error_code == ErrorCode.INVALID_RECORD

    with_kafka_client(tmp_path, scenario)


def test_records_of_a_topic_that_is_not_compacted_are_named_by_their_times(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        sent = batch((None, 1), (None, FAR_AHEAD_MS), (None, 2))
        good, bad = await produced(kafka_client, 8, batch((None, 1)), sent)
        assert errors_of(good) == {}
        assert list(errors_of(bad)) == [1]

    with_kafka_client(tmp_path, scenario)


def test_so_many_records_of_a_request_are_named_at_most(tmp_path: Path) -> None:
    keyless = build_batch([NewRecord(None, b"")] * (MOST_RECORD_ERRORS - 2), timestamp_ms=1)

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(config=COMPACTED)
        responses = await produced(kafka_client, 8, keyless, batch((None, 1), (None, 1), (None, 1)))
        assert [len(errors_of(response)) for response in responses] == [MOST_RECORD_ERRORS - 2, 2]

    with_kafka_client(tmp_path, scenario)


def test_of_one_batch_so_many_are_named_at_most() -> None:
    many = [RecordError(index, "no") for index in range(MOST_RECORD_ERRORS + 1)]
    refused = records_rejected(ErrorCode.INVALID_RECORD, many, "hint")
    assert len(refused.record_errors) == MOST_RECORD_ERRORS
    times = records_rejected(ErrorCode.INVALID_TIMESTAMP, [RecordError(2**20, "late")], "hint")
    assert len(with_more(refused, times).record_errors) == MOST_RECORD_ERRORS
