"""Fetch v4 to v14, as older clients send it: by name up to v12, by topic id from v13 on.

The same request as `fetch.py` decodes for v15 and later, into the same values. Replicas of ours
never send these versions.
"""

import struct

from tidemark_protocol.ids import TopicId

from tidemark_broker.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemark_broker.wire.primitives import MalformedFrame, Reader

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
    """From after the client id of the header. Raises MalformedFrame."""
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
