"""Produce and Fetch, coded by hand: random requests of Kafka's own classes mean to us what they
mean to kafka-python, and both of them read our answers as they stand."""

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tidemark_broker.kafka_wire.messages.current_leaders import CurrentLeader, NodeEndpoint
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionResponse,
    TopicResponse,
    decode_fetch_request,
    decode_older_fetch_request,
    encode_consumer_fetch_response,
)
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_broker.kafka_wire.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    decode_produce_request,
    encode_produce_response,
)
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tests.fuzz import python_peer
from tests.fuzz.hostile import FETCH, PRODUCE
from tests.fuzz.java_peer import JavaPeer

COUNT = 10
IDS = tuple(TopicId(str(UUID(int=number))) for number in (1, 2**100))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaPeer]:
    with JavaPeer() as peer:
        yield peer


def request_body(body: bytes, is_flexible: bool) -> Reader:
    return Reader((b"\x00" if is_flexible else b"") + body)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_requests(java: JavaPeer, version: int) -> None:
    kind = python_peer.message_class("ProduceRequest")
    for body in java.generate(3, PRODUCE, version, "request", COUNT):
        theirs = kind.decode(body, version=version)
        expected = ProduceRequest(
            theirs.transactional_id,
            theirs.acks,
            theirs.timeout_ms,
            tuple(
                ProducePartition(
                    topic.name if version < 13 else "",
                    one.index,
                    memoryview(bytes(one.records or b"")),
                    topic_id(topic.topic_id) if version >= 13 else ZERO_TOPIC_ID,
                )
                for topic in theirs.topic_data
                for one in topic.partition_data
            ),
        )
        assert decode_produce_request(request_body(body, version >= 9), version) == expected


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_requests(java: JavaPeer, version: int) -> None:
    kind = python_peer.message_class("FetchRequest")
    decode = decode_older_fetch_request if version < 15 else decode_fetch_request
    read = 0
    for body in java.generate(4, FETCH, version, "request", 3 * COUNT):
        theirs = kind.decode(body, version=version)
        if version < 15 and theirs.replica_id >= 0:
            with pytest.raises(MalformedFrame, match="of replica"):
                decode(request_body(body, version >= 12), version)
            continue
        found = decode(request_body(body, version >= 12), version)
        assert found == expected_fetch(theirs, version)
        read += 1
    assert read >= COUNT // 2


def expected_fetch(theirs: Any, version: int) -> FetchRequest:
    replica = theirs.replica_state if version >= 15 else None
    return FetchRequest(
        max_wait_ms=theirs.max_wait_ms,
        min_bytes=theirs.min_bytes,
        max_bytes=theirs.max_bytes,
        topics=tuple(
            FetchTopic(
                topic_id(one.topic_id) if version >= 13 else TopicId(""),
                tuple(expected_partition(requested, version) for requested in one.partitions),
                one.topic if version < 13 else "",
            )
            for one in theirs.topics
        ),
        replica_id=replica.replica_id if replica else -1,
        replica_epoch=replica.replica_epoch if replica else -1,
        cluster_id=theirs.cluster_id if version >= 15 else None,
        isolation_level=theirs.isolation_level,
        session_id=theirs.session_id if version >= 7 else 0,
        session_epoch=theirs.session_epoch if version >= 7 else -1,
        rack=theirs.rack_id if version >= 11 else "",
        forgotten=tuple(
            (
                one.topic if version < 13 else "",
                topic_id(one.topic_id) if version >= 13 else TopicId(""),
                tuple(one.partitions),
            )
            for one in (theirs.forgotten_topics_data if version >= 7 else ())
        ),
    )


def expected_partition(theirs: Any, version: int) -> FetchPartition:
    return FetchPartition(
        theirs.partition,
        theirs.current_leader_epoch if version >= 9 else -1,
        theirs.fetch_offset,
        theirs.last_fetched_epoch if version >= 12 else -1,
        theirs.log_start_offset if version >= 5 else -1,
        theirs.partition_max_bytes,
    )


def topic_id(theirs: Any) -> TopicId:
    return TopicId(str(UUID(str(theirs))))


def both_read(java: JavaPeer, api_key: int, name: str, version: int, body: bytes) -> Any:
    assert java.reread(api_key, version, "response", body) == body
    assert python_peer.reread(name, version, "response", body) == body
    return python_peer.message_class(f"{name}Response").decode(body, version=version)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_answers(java: JavaPeer, version: int) -> None:
    chance = random.Random(version)
    for _ in range(COUNT):
        responses = [
            ProduceResponse(
                chance.choice(("orders", "other")),
                chance.randrange(9),
                chance.choice(list(ErrorCode)),
                chance.getrandbits(62),
                chance.getrandbits(40),
                chance.getrandbits(62),
                chance.choice(("", "why")),
                chance.choice((None, any_leader(chance))),
                tuple((index, chance.choice(("", "why"))) for index in range(chance.randrange(3))),
                chance.choice(IDS),
            )
            for _ in range(chance.randrange(5))
        ]
        nodes = any_nodes(chance)
        frame = b"".join(encode_produce_response(9, version, responses, nodes=nodes))
        theirs = both_read(java, PRODUCE, "Produce", version, frame[9 if version >= 9 else 8 :])
        found = [
            ProduceResponse(
                topic.name if version < 13 else "",
                one.index,
                ErrorCode(one.error_code),
                one.base_offset,
                one.log_append_time_ms,
                one.log_start_offset if version >= 5 else -1,
                (one.error_message or "") if version >= 8 else "",
                leader_in(one.current_leader) if version >= 10 else None,
                record_errors_in(one) if version >= 8 else (),
                topic_id(topic.topic_id) if version >= 13 else ZERO_TOPIC_ID,
            )
            for topic in theirs.responses
            for one in topic.partition_responses
        ]
        assert found == [as_of(response, version) for response in responses]
        if version >= 10:
            assert nodes_in(theirs) == nodes


def any_leader(chance: random.Random) -> CurrentLeader:
    return CurrentLeader(chance.randrange(9), chance.randrange(99))


def any_nodes(chance: random.Random) -> tuple[NodeEndpoint, ...]:
    return tuple(
        NodeEndpoint(
            number,
            chance.choice(("10.0.0.1", "node.example", "2001:db8::1")),
            chance.randrange(2**16),
            chance.choice((None, "west")),
        )
        for number in range(chance.randrange(3))
    )


def leader_in(theirs: Any) -> CurrentLeader | None:
    """As both read an absent one: no leader, no epoch."""
    if theirs is None or (theirs.leader_id, theirs.leader_epoch) == (-1, -1):
        return None
    return CurrentLeader(theirs.leader_id, theirs.leader_epoch)


def nodes_in(theirs: Any) -> tuple[NodeEndpoint, ...]:
    return tuple(
        NodeEndpoint(node.node_id, node.host, node.port, node.rack)
        for node in theirs.node_endpoints or ()
    )


def as_of(answer: ProduceResponse, version: int) -> ProduceResponse:
    return ProduceResponse(
        answer.topic if version < 13 else "",
        answer.partition,
        answer.error,
        answer.base_offset,
        answer.append_time_ms,
        answer.log_start_offset if version >= 5 else -1,
        answer.message if version >= 8 else "",
        answer.current_leader if version >= 10 else None,
        tuple(answer.record_errors) if version >= 8 else (),
        answer.topic_id if version >= 13 else ZERO_TOPIC_ID,
    )


def record_errors_in(theirs: Any) -> tuple[tuple[int, str], ...]:
    return tuple(
        (found.batch_index, found.batch_index_error_message) for found in theirs.record_errors
    )


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_answers(java: JavaPeer, version: int) -> None:
    chance = random.Random(version)
    for _ in range(COUNT):
        partitions = tuple(
            PartitionResponse(
                number,
                chance.choice(list(ErrorCode)),
                chance.getrandbits(62),
                chance.getrandbits(62),
                chance.randbytes(chance.randrange(300)),
                (chance.randrange(9), chance.getrandbits(40)) if version >= 13 else None,
                any_leader(chance) if version >= 13 else None,
                chance.randrange(-1, 3),
            )
            for number in range(chance.randrange(4))
        )
        topics = (
            TopicResponse(TopicId(str(UUID(int=chance.getrandbits(128)))), partitions, "orders"),
        )
        nodes = any_nodes(chance) if version >= 16 else ()
        error = chance.choice(list(ErrorCode))
        response = FetchResponse(9, error, topics, chance.randrange(99), nodes=nodes)
        frame = b"".join(encode_consumer_fetch_response(response, version))
        theirs = both_read(java, FETCH, "Fetch", version, frame[9 if version >= 12 else 8 :])
        if version >= 16:
            assert nodes_in(theirs) == nodes
        (topic,) = theirs.responses
        for own, read in zip(partitions, topic.partitions, strict=True):
            assert (read.partition_index, read.error_code) == (own.partition, own.error)
            assert (read.high_watermark, bytes(read.records or b"")) == (
                own.high_watermark,
                own.records,
            )
            if version >= 11:
                assert read.preferred_read_replica == own.preferred_replica
            if version >= 13:
                diverging = (read.diverging_epoch.epoch, read.diverging_epoch.end_offset)
                assert diverging == own.diverging_epoch
                assert leader_in(read.current_leader) == own.current_leader
