"""Encode and decode Produce v3 to v13 and define InitProducerId v0 to v5.

Produce is written by hand because each write passes here; records stay views of the frame. Versions
differ little: v5 log start offset, v8 errors of single records (KIP-467), v9 flexible, v10 the
current leader in a tagged field (KIP-951), v11 and v12 only in the meaning of transactions, v13
topics by id (KIP-516).

InitProducerId allocates a producer id, by which retries are recognised; from v3 on it bumps the
epoch of one (KIP-360).
"""

import struct
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tidemark_broker.kafka_wire.messages.current_leaders import (
    NO_TAGS,
    CurrentLeader,
    NodeEndpoint,
    current_leader_field,
    node_endpoints_tags,
)
from tidemark_broker.kafka_wire.messages.frames import INIT_PRODUCER_ID, Buffers, framed
from tidemark_broker.kafka_wire.messages.primitives import (
    INT32,
    MalformedFrame,
    Reader,
    array_length,
    compact_string,
    nullable_string,
    topic_id_to_bytes,
)
from tidemark_broker.kafka_wire.messages.schema import (
    ERROR_CODE,
    INT,
    LONG,
    SHORT,
    STRING,
    ZERO_TOPIC_ID,
    Api,
    Field,
    Struct,
)

MIN_PRODUCE_VERSION = 3
MAX_PRODUCE_VERSION = 13
FIRST_PRODUCE_VERSION_WITH_LEADERS = 10
FIRST_PRODUCE_VERSION_WITH_IDS = 13
_FIRST_FLEXIBLE_VERSION = 9

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_RESPONSE = struct.Struct(">ihqq")  # partition, error, base offset, append time


class ProducePartition(NamedTuple):
    """A partition of a request.

    From v13 on `topic_id` is set, and `topic` is empty if the id is unknown.
    """

    topic: str
    partition: int
    records: memoryview
    topic_id: TopicId = ZERO_TOPIC_ID


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]


class ProduceResponse(NamedTuple):
    """The result for one partition.

    `append_time_ms` is -1 unless the topic stamps records with the time of their append.
    `record_errors` has the index and message of each rejected record; it and `message` are sent
    from v8 on, `current_leader` from v10 on.
    """

    topic: str
    partition: int
    error: ErrorCode
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    message: str = ""
    current_leader: CurrentLeader | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    topic_id: TopicId = ZERO_TOPIC_ID


def _no_name(_: TopicId) -> str:
    return ""


def decode_produce_request(
    reader: Reader, version: int, *, name_of: Callable[[TopicId], str] = _no_name
) -> ProduceRequest:
    """Decode a request from the byte after the header's client id; records are views of the frame.

    `name_of` returns the name of a topic id, or "" if it is unknown. Raises MalformedFrame.
    """
    if not MIN_PRODUCE_VERSION <= version <= MAX_PRODUCE_VERSION:
        raise MalformedFrame(
            f"Produce: expected version {MIN_PRODUCE_VERSION} to {MAX_PRODUCE_VERSION},"
            f" found {version}"
        )
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    if is_flexible:
        reader.tagged_fields()  # the header's
    text = reader.compact_string if is_flexible else reader.nullable_string
    transactional_id = text()
    acks, timeout_ms = reader.fields(_ACKS_AND_TIMEOUT)
    found: list[ProducePartition] = []
    for _ in range(reader.count(smallest_bytes=3, is_flexible=is_flexible)):
        topic_id, topic = ZERO_TOPIC_ID, None
        if version >= FIRST_PRODUCE_VERSION_WITH_IDS:
            topic_id = reader.topic_id()
            topic = name_of(topic_id)
        else:
            topic = text()
        if topic is None:
            raise MalformedFrame("Produce: expected a topic, found null")
        for _ in range(reader.count(smallest_bytes=5, is_flexible=is_flexible)):
            partition = reader.int32()
            records = _records(reader, is_flexible)
            found.append(ProducePartition(topic, partition, records, topic_id))
            if is_flexible:
                reader.tagged_fields()
        if is_flexible:
            reader.tagged_fields()
    if is_flexible:
        reader.tagged_fields()
    reader.expect_end()
    return ProduceRequest(transactional_id, acks, timeout_ms, tuple(found))


def _records(reader: Reader, is_flexible: bool) -> memoryview:
    size = reader.unsigned_varint() - 1 if is_flexible else reader.int32()
    if size < 0:
        return memoryview(b"")
    start = reader.take(size)
    return memoryview(reader.data)[start : start + size]


def encode_produce_response(
    correlation_id: int,
    version: int,
    answers: list[ProduceResponse],
    *,
    throttle_ms: int = 0,
    nodes: Collection[NodeEndpoint] = (),
) -> Buffers:
    """Return a whole response frame; adjacent answers of one topic are grouped.

    `nodes` has the current leaders, sent from v10 on.
    """
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    by_topic: list[list[ProduceResponse]] = []
    for response in answers:
        if by_topic and _is_same_topic(by_topic[-1][0], response):
            by_topic[-1].append(response)
        else:
            by_topic.append([response])
    out = bytearray(INT32.pack(correlation_id))
    if is_flexible:
        out += b"\x00"
    text = compact_string if is_flexible else nullable_string
    out += array_length(len(by_topic), is_flexible=is_flexible)
    for entries in by_topic:
        if version >= FIRST_PRODUCE_VERSION_WITH_IDS:
            out += topic_id_to_bytes(entries[0].topic_id)
        else:
            out += text(entries[0].topic)
        out += array_length(len(entries), is_flexible=is_flexible)
        for response in entries:
            out += _encode_response(response, version)
        if is_flexible:
            out += b"\x00"
    out += INT32.pack(throttle_ms)
    if version >= FIRST_PRODUCE_VERSION_WITH_LEADERS:
        out += node_endpoints_tags(nodes)
    elif is_flexible:
        out += NO_TAGS
    return framed([out])


def _is_same_topic(one: ProduceResponse, other: ProduceResponse) -> bool:
    return one.topic == other.topic and one.topic_id == other.topic_id


def _encode_response(answer: ProduceResponse, version: int) -> bytes:
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    out = _RESPONSE.pack(answer.partition, answer.error, answer.base_offset, answer.append_time_ms)
    if version >= 5:
        out += answer.log_start_offset.to_bytes(8, "big", signed=True)
    if version >= 8:
        out += _encode_record_errors(answer.record_errors, is_flexible)
        text = compact_string if is_flexible else nullable_string
        out += text(answer.message or None)
    if version >= FIRST_PRODUCE_VERSION_WITH_LEADERS and answer.current_leader is not None:
        return out + b"\x01" + current_leader_field(0, answer.current_leader)
    return out + NO_TAGS if is_flexible else out


def _encode_record_errors(record_errors: Sequence[tuple[int, str]], is_flexible: bool) -> bytes:
    if not record_errors:
        return array_length(0, is_flexible=is_flexible)
    text = compact_string if is_flexible else nullable_string
    out = bytearray(array_length(len(record_errors), is_flexible=is_flexible))
    for index, message in record_errors:
        out += INT32.pack(index) + text(message)
        if is_flexible:
            out += NO_TAGS
    return bytes(out)


INIT_PRODUCER_ID_API = Api(
    api_key=INIT_PRODUCER_ID,
    name="InitProducerId",
    min_version=0,
    max_version=5,
    first_flexible_version=2,
    request=Struct(
        Field("transactional_id", STRING, nullable_since=0),
        Field("transaction_timeout_ms", INT),
        Field("producer_id", LONG, since=3, default=-1),
        Field("producer_epoch", SHORT, since=3, default=-1),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", ERROR_CODE),
        Field("producer_id", LONG, default=-1),
        Field("producer_epoch", SHORT, default=-1),
    ),
)
