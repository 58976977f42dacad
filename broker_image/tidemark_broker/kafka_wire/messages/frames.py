"""Split a byte stream into Kafka's frames, and read and write their headers.

A frame is a four-byte length and that many bytes. `FrameSplitter` rejects a length above its limit
before it holds any byte of the frame. Headers are request header v2 and response header v1
(flexible versions); requests with older headers are decoded as far as correlation id and client id.
"""

import struct
from typing import NamedTuple

from tidemark_broker.kafka_wire.messages.primitives import (
    INT16,
    INT32,
    MalformedFrame,
    Reader,
    nullable_string,
)

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
DELETE_GROUPS = 42
ELECT_LEADERS = 43
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_QUORUM = 55
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
LIST_CONFIG_RESOURCES = 74
DESCRIBE_TOPIC_PARTITIONS = 75

# As Kafka's metrics name them.
API_NAMES = {
    PRODUCE: "Produce",
    FETCH: "Fetch",
    LIST_OFFSETS: "ListOffsets",
    METADATA: "Metadata",
    OFFSET_COMMIT: "OffsetCommit",
    OFFSET_FETCH: "OffsetFetch",
    FIND_COORDINATOR: "FindCoordinator",
    JOIN_GROUP: "JoinGroup",
    HEARTBEAT: "Heartbeat",
    LEAVE_GROUP: "LeaveGroup",
    SYNC_GROUP: "SyncGroup",
    DESCRIBE_GROUPS: "DescribeGroups",
    LIST_GROUPS: "ListGroups",
    SASL_HANDSHAKE: "SaslHandshake",
    API_VERSIONS: "ApiVersions",
    CREATE_TOPICS: "CreateTopics",
    DELETE_TOPICS: "DeleteTopics",
    DELETE_RECORDS: "DeleteRecords",
    INIT_PRODUCER_ID: "InitProducerId",
    OFFSET_FOR_LEADER_EPOCH: "OffsetForLeaderEpoch",
    DESCRIBE_ACLS: "DescribeAcls",
    CREATE_ACLS: "CreateAcls",
    DELETE_ACLS: "DeleteAcls",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    ALTER_CONFIGS: "AlterConfigs",
    ALTER_REPLICA_LOG_DIRS: "AlterReplicaLogDirs",
    DESCRIBE_LOG_DIRS: "DescribeLogDirs",
    SASL_AUTHENTICATE: "SaslAuthenticate",
    CREATE_PARTITIONS: "CreatePartitions",
    DELETE_GROUPS: "DeleteGroups",
    ELECT_LEADERS: "ElectLeaders",
    INCREMENTAL_ALTER_CONFIGS: "IncrementalAlterConfigs",
    ALTER_PARTITION_REASSIGNMENTS: "AlterPartitionReassignments",
    LIST_PARTITION_REASSIGNMENTS: "ListPartitionReassignments",
    OFFSET_DELETE: "OffsetDelete",
    DESCRIBE_CLIENT_QUOTAS: "DescribeClientQuotas",
    ALTER_CLIENT_QUOTAS: "AlterClientQuotas",
    DESCRIBE_QUORUM: "DescribeQuorum",
    DESCRIBE_CLUSTER: "DescribeCluster",
    DESCRIBE_PRODUCERS: "DescribeProducers",
    LIST_CONFIG_RESOURCES: "ListConfigResources",
    DESCRIBE_TOPIC_PARTITIONS: "DescribeTopicPartitions",
}

_SMALL_PART = 16
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"PRI ")
_HEADER = struct.Struct(">hhi")  # api key, version, correlation id

Frame = bytes | bytearray | memoryview
Buffers = list[bytes | bytearray | memoryview]


class FrameSplitter:
    """A splitter of a socket's bytes into whole frames, without their lengths."""

    def __init__(self, *, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._partial = bytearray()

    @property
    def partial_bytes(self) -> int:
        """Return how many bytes are held of an incomplete frame, its length included."""
        return len(self._partial)

    @property
    def claimed_bytes(self) -> int:
        """Return the size of the incomplete frame; 0 while its length is incomplete."""
        if len(self._partial) < 4:
            return 0
        return self._frame_size(self._partial, 0)

    def allow(self, max_frame_bytes: int) -> None:
        """Allow frames of another size from the next bytes on."""
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes.

        A frame that lies in `data` is a view of it, unless it is far smaller: a frame that waits
        must not keep the rest in memory. Raises MalformedFrame.
        """
        frames: list[Frame] = []
        position = 0
        if self._partial:
            position = self._complete_partial(data, frames)
        view = memoryview(data)
        end = len(data)
        while end - position >= 4:
            size = self._frame_size(data, position)
            if end - position - 4 < size:
                break
            frame = view[position + 4 : position + 4 + size]
            frames.append(bytes(frame) if size * _SMALL_PART <= end else frame)
            position += 4 + size
        if position < end:
            self._partial += view[position:]
            if len(self._partial) >= 4:
                self._frame_size(self._partial, 0)
        return frames

    def _complete_partial(self, data: bytes, frames: list[Frame]) -> int:
        """Add to the partial frame what it lacks and return how many bytes of `data` that took."""
        position = 0
        if len(self._partial) < 4:
            position = min(4 - len(self._partial), len(data))
            self._partial += data[:position]
            if len(self._partial) < 4:
                return position
        lacking = 4 + self._frame_size(self._partial, 0) - len(self._partial)
        taken = min(lacking, len(data) - position)
        # It grows with what has really arrived: a claimed length alone reserves nothing.
        self._partial += memoryview(data)[position : position + taken]
        if taken == lacking:
            frames.append(memoryview(self._partial)[4:])
            self._partial = bytearray()
        return position + taken

    def _frame_size(self, data: bytes | bytearray, position: int) -> int:
        size = int(INT32.unpack_from(data, position)[0])
        if not 0 <= size <= self._max_frame_bytes:
            raise MalformedFrame(
                f"a frame of {size} bytes: expected 0 to {self._max_frame_bytes}"
                " (of a client's requests: see its max.request.size or message.max.bytes)"
            )
        return size


def foreign_protocol(first_bytes: bytes) -> str:
    """Return "HTTP" or "TLS" if a connection's first bytes are of that protocol, else ""."""
    if first_bytes[:4] in _HTTP_METHODS:
        return "HTTP"
    # A handshake record of TLS 1.x; as a length of Kafka's it would be above 368 MiB.
    return "TLS" if first_bytes[:2] == b"\x16\x03" else ""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(reader: Reader) -> RequestHeader:
    """Read a request header up to its client id.

    The tagged fields of a flexible header follow (`skip_header_tags`).
    """
    if reader.end < _HEADER.size:
        raise MalformedFrame(
            f"a request: expected at least {_HEADER.size} bytes, found {reader.end}"
        )
    api_key, api_version, correlation_id = reader.fields(_HEADER)
    return RequestHeader(api_key, api_version, correlation_id, reader.nullable_string())


def skip_header_tags(reader: Reader) -> None:
    reader.tagged_fields()


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str) -> bytes:
    """Return request header v2, without the frame's length."""
    return (
        INT16.pack(api_key)
        + INT16.pack(api_version)
        + INT32.pack(correlation_id)
        + nullable_string(client_id)
        + b"\x00"
    )


def framed(parts: Buffers) -> Buffers:
    """Return a frame's parts with its length before them, without joining them."""
    return [INT32.pack(sum(len(part) for part in parts)), *parts]
