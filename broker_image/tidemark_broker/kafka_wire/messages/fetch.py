"""Encode and decode Fetch v4 to v18, for consumers and for our replication.

Versions 15 to 18 differ only in tagged fields: v16 has node endpoints in the response, which are
sent to clients and skipped here; v17 and v18 have a replica's directory id and high watermark in
the request, which are skipped. Our replicas send v17, which the brokers of the former release know.
Replicas send their broker epoch in the tagged field ReplicaState (KIP-903) and topics by id only
(KIP-516). Aborted transactions and snapshot ids are never present.

With OFFSET_OUT_OF_RANGE a replica gets the true log start offset. That rule is ours, between our
brokers.

Versions 4 to 14 come from older clients, which name topics by name up to v12 and by id from v13 on.
They decode into the same values. Our replicas never send them.

A response is returned in parts, so that records are not copied.
"""

import struct
from collections.abc import Collection
from typing import NamedTuple

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tidemark_broker.kafka_wire.messages.cooperative_steps import Steps, all_steps
from tidemark_broker.kafka_wire.messages.current_leaders import (
    CurrentLeader,
    NodeEndpoint,
    current_leader_field,
    node_endpoints_tags,
)
from tidemark_broker.kafka_wire.messages.frames import FETCH, Buffers, framed, request_header
from tidemark_broker.kafka_wire.messages.primitives import (
    INT16,
    INT32,
    INT64,
    MAX_ELEMENTS_OF_PEERS,
    MalformedFrame,
    Reader,
    array_length,
    compact_string,
    nullable_string,
    tagged_field,
    topic_id_to_bytes,
    unsigned_varint,
)

MIN_FETCH_VERSION = 15
MAX_FETCH_VERSION = 18
FIRST_FETCH_VERSION_WITH_LEADERS = 16

_CONSUMER = -1
_REPLICA_STATE = struct.Struct(">iq")  # replica id, replica epoch
_LIMITS = struct.Struct(">iiibii")  # max wait, min bytes, max bytes, isolation, session id, epoch
# partition, current leader epoch, fetch offset, last fetched epoch, log start, max bytes
_PARTITION = struct.Struct(">iiqiqi")
_RESPONSE_HEAD = struct.Struct(">ihi")  # throttle time, error, session id
# partition, error, high watermark, last stable offset, log start
_PARTITION_RESPONSE = struct.Struct(">ihqqq")
_EPOCH_END = struct.Struct(">iq")
_NO_ABORTED = b"\x00"
_FULL_FETCH_EPOCH = -1  # session epoch of a full fetch that wants no session


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(NamedTuple):
    """A topic of a request: `topic` is its name up to v12, where the id is empty."""

    topic_id: TopicId
    partitions: tuple[FetchPartition, ...]
    topic: str = ""


class FetchRequest(NamedTuple):
    """A decoded request: a `replica_id` of -1 is a consumer's.

    `forgotten` has the (topic, topic id, partitions) that the client removes from its session.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: tuple[FetchTopic, ...]
    replica_id: int = _CONSUMER
    replica_epoch: int = -1
    cluster_id: str | None = None
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = _FULL_FETCH_EPOCH
    rack: str = ""
    forgotten: tuple[tuple[str, TopicId, tuple[int, ...]], ...] = ()


class PartitionResponse(NamedTuple):
    partition: int
    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    records: bytes | memoryview = b""
    diverging_epoch: tuple[int, int] | None = None  # (epoch, end offset)
    current_leader: CurrentLeader | None = None
    preferred_replica: int = -1  # of a consumer, KIP-392


class TopicResponse(NamedTuple):
    topic_id: TopicId
    partitions: tuple[PartitionResponse, ...]
    topic: str = ""


class FetchResponse(NamedTuple):
    """A response to encode or a decoded one; `nodes` has the current leaders, sent from v16 on."""

    correlation_id: int
    error: ErrorCode
    topics: tuple[TopicResponse, ...] = ()
    session_id: int = 0
    throttle_ms: int = 0
    nodes: Collection[NodeEndpoint] = ()


def encode_fetch_request(
    request: FetchRequest, *, correlation_id: int, client_id: str, version: int = 17
) -> bytes:
    """Return a whole request frame, its length included."""
    body = bytearray(request_header(FETCH, version, correlation_id, client_id))
    body += _LIMITS.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    body += unsigned_varint(len(request.topics) + 1)
    for topic in request.topics:
        body += topic_id_to_bytes(topic.topic_id)
        body += unsigned_varint(len(topic.partitions) + 1)
        for requested in topic.partitions:
            body += _PARTITION.pack(
                requested.partition,
                requested.current_leader_epoch,
                requested.fetch_offset,
                requested.last_fetched_epoch,
                requested.log_start_offset,
                requested.max_bytes,
            )
            body += b"\x00"
        body += b"\x00"
    body += unsigned_varint(len(request.forgotten) + 1)
    for _, topic_id, partitions in request.forgotten:
        body += topic_id_to_bytes(topic_id) + unsigned_varint(len(partitions) + 1)
        body += b"".join(INT32.pack(partition) for partition in partitions) + b"\x00"
    body += compact_string(request.rack)
    tags = []
    if request.cluster_id is not None:
        tags.append(tagged_field(0, compact_string(request.cluster_id)))
    if request.replica_id != _CONSUMER:
        state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\x00"
        tags.append(tagged_field(1, state))
    body += unsigned_varint(len(tags)) + b"".join(tags)
    return INT32.pack(len(body)) + body


def decode_fetch_request(reader: Reader, version: int) -> FetchRequest:
    """Decode a request as `fetch_request_steps` does, without a pause."""
    return all_steps(fetch_request_steps(reader, version))


def fetch_request_steps(reader: Reader, version: int) -> Steps[FetchRequest]:
    """Decode a request in steps, from the byte after the header's client id.

    Raises MalformedFrame.
    """
    if not MIN_FETCH_VERSION <= version <= MAX_FETCH_VERSION:
        raise MalformedFrame(
            f"Fetch: expected version {MIN_FETCH_VERSION} to {MAX_FETCH_VERSION}, found {version}"
        )
    reader.tagged_fields()  # the header's
    max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = reader.fields(_LIMITS)
    topics = []
    for _ in range(reader.count(smallest_bytes=18)):
        topic_id = reader.topic_id()
        topics.append(FetchTopic(topic_id, (yield from _partition_steps(reader))))
    forgotten = []
    for _ in range(reader.count(smallest_bytes=18)):
        forgotten.append(_read_removed(reader))
        yield 1
    rack = reader.compact_string()
    cluster_id: str | None = None
    replica_id, replica_epoch = _CONSUMER, -1
    for tag, content in reader.tagged_fields((0, 1)):
        if tag == 0:
            cluster_id = content.compact_string()
        elif tag == 1:
            replica_id, replica_epoch = content.fields(_REPLICA_STATE)
            content.tagged_fields()
    reader.expect_end()
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=tuple(topics),
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        cluster_id=cluster_id,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        rack=rack or "",
        forgotten=tuple(forgotten),
    )


def _read_removed(reader: Reader) -> tuple[str, TopicId, tuple[int, ...]]:
    topic_id = reader.topic_id()
    partitions = tuple(reader.int32() for _ in range(reader.count(smallest_bytes=4)))
    reader.tagged_fields()
    return "", topic_id, partitions


def _partition_steps(reader: Reader) -> Steps[tuple[FetchPartition, ...]]:
    partitions = []
    for _ in range(reader.count(smallest_bytes=_PARTITION.size + 1)):
        partitions.append(FetchPartition(*reader.fields(_PARTITION)))
        reader.tagged_fields()  # 17: the replica's directory id, 18: its high watermark
        yield 1
    reader.tagged_fields()
    return tuple(partitions)


def encode_fetch_response(response: FetchResponse) -> Buffers:
    """Return a whole response frame in parts; records are not copied."""
    parts: Buffers = []
    head = bytearray(INT32.pack(response.correlation_id) + b"\x00")
    head += _RESPONSE_HEAD.pack(response.throttle_ms, response.error, response.session_id)
    head += unsigned_varint(len(response.topics) + 1)
    for topic in response.topics:
        head += topic_id_to_bytes(topic.topic_id)
        head += unsigned_varint(len(topic.partitions) + 1)
        for answer in topic.partitions:
            head += _PARTITION_RESPONSE.pack(
                answer.partition,
                answer.error,
                answer.high_watermark,
                answer.high_watermark,  # no transactions: the last stable offset is the same
                answer.log_start_offset,
            )
            head += _NO_ABORTED + INT32.pack(answer.preferred_replica)
            head += unsigned_varint(len(answer.records) + 1)
            if answer.records:
                parts += (head, answer.records)
                head = bytearray()
            head += _response_tags(answer)
        head += b"\x00"
    head += node_endpoints_tags(response.nodes)
    parts.append(head)
    return framed(parts)


def _response_tags(answer: PartitionResponse) -> bytes:
    if answer.diverging_epoch is None and answer.current_leader is None:
        return b"\x00"
    tags = []
    if answer.diverging_epoch is not None:
        tags.append(tagged_field(0, _EPOCH_END.pack(*answer.diverging_epoch) + b"\x00"))
    if answer.current_leader is not None:
        tags.append(current_leader_field(1, answer.current_leader))
    return unsigned_varint(len(tags)) + b"".join(tags)


def decode_fetch_response(frame: bytes | bytearray | memoryview) -> FetchResponse:
    """Decode a response; its records are views of `frame`.

    Raises MalformedFrame.
    """
    # Each partition may have two tagged fields besides: where logs diverge, who leads now.
    reader = Reader(frame, most_elements=3 * MAX_ELEMENTS_OF_PEERS)
    correlation_id = reader.int32()
    reader.tagged_fields()
    _, error, session_id = reader.fields(_RESPONSE_HEAD)
    topics = []
    for _ in range(reader.count(smallest_bytes=18)):
        topic_id = reader.topic_id()
        number = reader.count(smallest_bytes=_PARTITION_RESPONSE.size + 7)
        responses = tuple(_read_response(reader) for _ in range(number))
        reader.tagged_fields()
        topics.append(TopicResponse(topic_id, responses))
    reader.tagged_fields()  # 16: node endpoints
    reader.expect_end()
    return FetchResponse(correlation_id, error_code(error), tuple(topics), session_id)


def _read_response(reader: Reader) -> PartitionResponse:
    partition, error, high_watermark, _, log_start_offset = reader.fields(_PARTITION_RESPONSE)
    for _ in range(reader.count(smallest_bytes=17)):  # aborted transactions: we send none
        reader.take(16)
        reader.tagged_fields()
    preferred_replica = reader.int32()
    records = reader.compact_bytes()
    diverging: tuple[int, int] | None = None
    current_leader: CurrentLeader | None = None
    for tag, content in reader.tagged_fields((0, 1)):
        if tag == 0:
            epoch, end_offset = content.fields(_EPOCH_END)
            diverging = (epoch, end_offset)
        elif tag == 1:
            current_leader = CurrentLeader(content.int32(), content.int32())
    return PartitionResponse(
        partition=partition,
        error=error_code(error),
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        records=b"" if records is None else records,
        diverging_epoch=diverging,
        current_leader=current_leader,
        preferred_replica=preferred_replica,
    )


def error_code(number: int) -> ErrorCode:
    """Return the error code of a number; an unknown one is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


MIN_FETCH_VERSION_OF_CONSUMERS = 4
_FIRST_FLEXIBLE_VERSION = 12
_FIRST_VERSION_WITH_IDS = 13

_HEAD = struct.Struct(">iiiib")  # replica id, max wait, min bytes, max bytes, isolation
_SESSION = struct.Struct(">ii")
# v4: partition, offset, max bytes; then with log start; then with leader epoch; then with the
# last fetched epoch
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")


def decode_older_fetch_request(reader: Reader, version: int) -> FetchRequest:
    """Decode a request of v4 to v14, from the byte after the header's client id.

    Raises MalformedFrame.
    """
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    if is_flexible:
        reader.tagged_fields()  # the header's
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation = reader.fields(_HEAD)
    if replica_id >= 0:
        raise MalformedFrame(f"Fetch v{version} of replica {replica_id}: expected v15 or later")
    session_id, session_epoch = reader.fields(_SESSION) if version >= 7 else (0, -1)
    topics = []
    for _ in range(reader.count(smallest_bytes=3, is_flexible=is_flexible)):
        topic, topic_id = _topic(reader, version)
        count = reader.count(smallest_bytes=_PARTITION_V4.size, is_flexible=is_flexible)
        partitions = tuple(_partition(reader, version) for _ in range(count))
        if is_flexible:
            reader.tagged_fields()
        topics.append(FetchTopic(topic_id, partitions, topic))
    forgotten = _forgotten(reader, version, is_flexible) if version >= 7 else ()
    rack = ""
    if version >= 11:
        rack = (reader.compact_string() if is_flexible else reader.nullable_string()) or ""
    if is_flexible:
        reader.tagged_fields()  # the cluster id: of replicas only
    reader.expect_end()
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=tuple(topics),
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        rack=rack,
        forgotten=forgotten,
    )


def _topic(reader: Reader, version: int) -> tuple[str, TopicId]:
    if version >= _FIRST_VERSION_WITH_IDS:
        return "", reader.topic_id()
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    topic = reader.compact_string() if is_flexible else reader.nullable_string()
    if topic is None:
        raise MalformedFrame("Fetch: expected a topic, found null")
    return topic, TopicId("")


def _partition(reader: Reader, version: int) -> FetchPartition:
    leader_epoch = last_epoch = log_start = -1
    if version >= 12:
        fields = FetchPartition(*reader.fields(_PARTITION_V12))
        reader.tagged_fields()
        return fields
    if version >= 9:
        partition, leader_epoch, offset, log_start, max_bytes = reader.fields(_PARTITION_V9)
    elif version >= 5:
        partition, offset, log_start, max_bytes = reader.fields(_PARTITION_V5)
    else:
        partition, offset, max_bytes = reader.fields(_PARTITION_V4)
    return FetchPartition(partition, leader_epoch, offset, last_epoch, log_start, max_bytes)


def _forgotten(
    reader: Reader, version: int, is_flexible: bool
) -> tuple[tuple[str, TopicId, tuple[int, ...]], ...]:
    found = []
    for _ in range(reader.count(smallest_bytes=2, is_flexible=is_flexible)):
        topic, topic_id = _topic(reader, version)
        count = reader.count(smallest_bytes=4, is_flexible=is_flexible)
        found.append((topic, topic_id, tuple(reader.int32() for _ in range(count))))
        if is_flexible:
            reader.tagged_fields()
    return tuple(found)


def encode_consumer_fetch_response(response: FetchResponse, version: int) -> Buffers:
    """Return a whole response frame for a consumer; from v13 on it equals the one for replicas."""
    if version >= _FIRST_VERSION_WITH_IDS:
        return encode_fetch_response(response)
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    parts: Buffers = []
    head = bytearray(INT32.pack(response.correlation_id))
    if is_flexible:
        head += b"\x00"
    head += INT32.pack(response.throttle_ms)
    if version >= 7:
        head += INT16.pack(response.error) + INT32.pack(response.session_id)
    head += array_length(len(response.topics), is_flexible=is_flexible)
    for topic in response.topics:
        head += compact_string(topic.topic) if is_flexible else nullable_string(topic.topic)
        head += array_length(len(topic.partitions), is_flexible=is_flexible)
        for answer in topic.partitions:
            head += _before_records(answer, version)
            if answer.records:
                parts += (head, answer.records)
                head = bytearray()
            if is_flexible:
                head += b"\x00"
        if is_flexible:
            head += b"\x00"
    if is_flexible:
        head += b"\x00"
    parts.append(head)
    return framed(parts)


def _before_records(answer: PartitionResponse, version: int) -> bytes:
    """Return the fields of a partition that precede its records.

    Without transactions the last stable offset is the high watermark, and none is aborted.
    """
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    watermark = INT64.pack(answer.high_watermark)
    out = INT32.pack(answer.partition) + INT16.pack(answer.error) + watermark + watermark
    if version >= 5:
        out += INT64.pack(answer.log_start_offset)
    out += array_length(-1, is_flexible=is_flexible)
    if version >= 11:
        out += INT32.pack(answer.preferred_replica)
    return out + array_length(len(answer.records), is_flexible=is_flexible)
