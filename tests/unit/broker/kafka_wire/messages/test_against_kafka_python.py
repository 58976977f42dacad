"""Every API in every version against kafka-python's classes, an independent implementation.

Its requests are decoded here and its decoders read our answers.
"""

from typing import Any

import pytest
from kafka.protocol import admin, consumer, metadata, producer
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchRequest,
    FetchResponse,
    PartitionResponse,
    TopicResponse,
    decode_fetch_request,
    decode_older_fetch_request,
    encode_consumer_fetch_response,
)
from tidemark_broker.kafka_wire.messages.frames import read_request_header
from tidemark_broker.kafka_wire.messages.metadata import (
    DESCRIBE_CLUSTER_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    METADATA_API,
)
from tidemark_broker.kafka_wire.messages.offsets import (
    LIST_OFFSETS_API,
    OFFSET_FOR_LEADER_EPOCH_API,
)
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_broker.kafka_wire.messages.produce import (
    INIT_PRODUCER_ID_API,
    ProduceResponse,
    decode_produce_request,
    encode_produce_response,
)
from tidemark_broker.kafka_wire.messages.schema import Api
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

TOPIC_ID = TopicId("00112233-4455-6677-8899-aabbccddeeff")
PARTITION: dict[str, Any] = {
    "error": 0,
    "partition": 3,
    "leader": 1,
    "leader_epoch": 7,
    "replicas": (1, 2),
    "in_sync_replicas": (1,),
    "eligible_leaders": (2,),
    "last_known_leaders": None,
    "offline_replicas": (2,),
    "timestamp": 99,
    "offset": 2**40,
    "end_offset": 2**41,
}
TOPIC = {
    "error": 0,
    "topic": "orders",
    "topic_id": TOPIC_ID,
    "is_internal": False,
    "partitions": (PARTITION,),
}
BROKER = {"broker_id": 1, "host": "h", "port": 9092, "rack": None, "is_fenced": True}
RESPONSE: dict[str, Any] = {
    "brokers": (BROKER,),
    "cluster_id": "c",
    "controller_id": 1,
    "topics": (TOPIC,),
    "error": 0,
    "producer_id": 2**40,
    "producer_epoch": 4,
}
TABLES = [
    (METADATA_API, metadata, "Metadata"),
    (DESCRIBE_CLUSTER_API, admin, "DescribeCluster"),
    (DESCRIBE_TOPIC_PARTITIONS_API, admin, "DescribeTopicPartitions"),
    (LIST_OFFSETS_API, consumer, "ListOffsets"),
    (OFFSET_FOR_LEADER_EPOCH_API, consumer, "OffsetForLeaderEpoch"),
    (INIT_PRODUCER_ID_API, producer, "InitProducerId"),
]
EACH_VERSION = [
    (api, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"), version)
    for api, module, name in TABLES
    for version in range(api.min_version, api.max_version + 1)
]


def theirs(request: Any) -> Reader:
    """A frame of kafka-python, read up to the client id."""
    request.with_header(correlation_id=9, client_id="k")
    reader = Reader(bytes(request.encode(header=True)))
    header = read_request_header(reader)
    assert (header.correlation_id, header.client_id) == (9, "k")
    return reader


@pytest.mark.parametrize(("api", "request_class", "response_class", "version"), EACH_VERSION)
def test_tables_agree(api: Api, request_class: Any, response_class: Any, version: int) -> None:
    reader = theirs(request_class(version=version))
    rest = memoryview(reader.data)[reader.position :]
    found = api.decode_request(reader, version)
    own = api.encode_request(9, version, "k", found)[4:]
    assert own.endswith(bytes(rest))
    frame = b"".join(api.encode_response(9, version, RESPONSE))
    body = frame[9:] if api.is_flexible(version) else frame[8:]
    read = response_class.decode(body, version=version)
    read._header = None  # what it cannot write otherwise
    assert bytes(read.encode(version=version)) == body
    assert api.decode_response(frame[4:], version)[0] == 9


@pytest.mark.parametrize("version", range(3, 14))
def test_produce(version: int) -> None:
    request = producer.ProduceRequest(
        version=version,
        transactional_id=None,
        acks=-1,
        timeout_ms=1500,
        topic_data=[
            producer.ProduceRequest.TopicProduceData(
                version=version,
                name="orders",
                topic_id=TOPIC_ID,
                partition_data=[
                    producer.ProduceRequest.TopicProduceData.PartitionProduceData(
                        version=version, index=3, records=b"r" * 300
                    )
                ],
            )
        ],
    )
    names = {TopicId(str(TOPIC_ID)): "orders"}
    found = decode_produce_request(theirs(request), version, name_of=lambda each: names[each])
    assert (found.transactional_id, found.acks, found.timeout_ms) == (None, -1, 1500)
    requested = found.partitions[0]
    assert (requested.topic, requested.partition, bytes(requested.records)) == (
        "orders",
        3,
        b"r" * 300,
    )
    responses = [
        ProduceResponse("orders", 3, ErrorCode.NONE, 2**40, log_start_offset=5, topic_id=TOPIC_ID),
        ProduceResponse(
            "other",
            1,
            ErrorCode.INVALID_RECORD,
            message="no",
            record_errors=[(0, "no key"), (70_000, "neither")],
        ),
    ]
    frame = b"".join(encode_produce_response(9, version, responses))
    read = producer.ProduceResponse.decode(frame, version=version, header=True, framed=True)
    first, second = (topic.partition_responses[0] for topic in read.responses)
    assert (first.index, first.error_code, first.base_offset) == (3, 0, 2**40)
    assert (second.index, second.error_code) == (1, 87)
    if version >= 8:
        assert second.error_message == "no"
        errors = [
            (each.batch_index, each.batch_index_error_message) for each in second.record_errors
        ]
        assert errors == [(0, "no key"), (70_000, "neither")]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch(version: int) -> None:
    request = consumer.FetchRequest(
        version=version,
        max_wait_ms=500,
        min_bytes=2,
        max_bytes=3000,
        topics=[
            consumer.FetchRequest.FetchTopic(
                version=version,
                topic="orders",
                topic_id=TOPIC_ID,
                partitions=[
                    consumer.FetchRequest.FetchTopic.FetchPartition(
                        version=version, partition=3, fetch_offset=2**40, partition_max_bytes=77
                    )
                ],
            )
        ],
    )
    found = fetch_request(theirs(request), version)
    assert (found.replica_id, found.max_wait_ms, found.min_bytes) == (-1, 500, 2)
    topic = found.topics[0]
    assert (topic.topic, topic.topic_id) == (("orders", "") if version < 13 else ("", TOPIC_ID))
    requested = topic.partitions[0]
    assert (requested.partition, requested.fetch_offset, requested.max_bytes) == (3, 2**40, 77)
    responses = (
        PartitionResponse(3, ErrorCode.NONE, 90, 10, b"r" * 300),
        PartitionResponse(4, ErrorCode.NONE, 90, 10, preferred_replica=2),
    )
    topics = (TopicResponse(TOPIC_ID, responses, "orders"),)
    response = FetchResponse(9, ErrorCode.NONE, topics, session_id=5)
    frame = b"".join(encode_consumer_fetch_response(response, version))
    read = consumer.FetchResponse.decode(frame, version=version, header=True, framed=True)
    first, second = read.responses[0].partitions
    assert (first.partition_index, first.high_watermark, bytes(first.records)) == (
        3,
        90,
        b"r" * 300,
    )
    if version >= 11:
        assert second.preferred_read_replica == 2
    if version >= 7:
        assert read.session_id == 5


def fetch_request(reader: Reader, version: int) -> FetchRequest:
    if version < 15:
        return decode_older_fetch_request(reader, version)
    return decode_fetch_request(reader, version)


@pytest.mark.parametrize("version", range(4, 18))
def test_hostile_fetches_are_refused_or_read(version: int) -> None:
    for size in range(0, 80, 3):
        for filling in (b"\x00", b"\x7f", b"\xff", b"\x02"):
            try:
                fetch_request(Reader(filling * size), version)
                decode_produce_request(Reader(filling * size), min(version, 12))
            except MalformedFrame:
                continue
