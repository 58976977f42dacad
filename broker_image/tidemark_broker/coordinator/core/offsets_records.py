"""Encode and decode the records of `__consumer_offsets`, with Kafka's keys and values.

Kafka's tools can read them. Written: OffsetCommitKey v1 with OffsetCommitValue v3 (v1 where the
client asked for its own retention), GroupMetadataKey v2 with GroupMetadataValue v3. Read:
OffsetCommitKey v0 and v1 with values v0 to v3, GroupMetadataKey v2 with values v0 to v3. Keys of
other versions (share groups, KIP-848 groups) are skipped, as Kafka does. Schemas: Apache Kafka,
group-coordinator's common/message folder. Each length is checked before it is used.
"""

import struct
from dataclasses import dataclass

from tidemark_protocol.topic_names import OFFSETS_TOPIC

__all__ = [
    "OFFSETS_TOPIC",
    "CommittedOffset",
    "GroupKey",
    "GroupMetadata",
    "MalformedGroupRecord",
    "MemberMetadata",
    "OffsetKey",
    "OffsetsRecord",
    "decode_key",
    "decode_metadata",
    "decode_offset",
    "encode_key",
    "encode_metadata",
    "encode_offset",
    "partition_of_group",
]


_OFFSET_KEY_VERSIONS = (0, 1)
_GROUP_KEY_VERSION = 2
_NEWEST_VALUE = 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_SMALLEST_MEMBER_BYTES = 18


class MalformedGroupRecord(Exception):
    """An error: a record of the offsets topic does not match its version."""


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset; with an `expire_ms` of -1 the broker's retention applies (KIP-211)."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    protocol_type: str
    generation_id: int
    protocol: str | None
    leader_id: str | None
    state_since_ms: int
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True)
class OffsetsRecord:
    """A record of the offsets topic; a `value` of None is a tombstone."""

    key: bytes
    value: bytes | None


def partition_of_group(group_id: str, partition_count: int) -> int:
    """Return the partition of a group, computed as Kafka does.

    It is Java's `String.hashCode` without its sign bit, modulo the number of partitions.
    """
    assert partition_count > 0
    code = 0
    utf_16 = group_id.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(utf_16), 2):
        code = (31 * code + (utf_16[index] << 8 | utf_16[index + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partition_count


def encode_key(key: OffsetKey | GroupKey) -> bytes:
    if isinstance(key, GroupKey):
        return _INT16.pack(_GROUP_KEY_VERSION) + _string(key.group_id)
    return _INT16.pack(1) + _string(key.group_id) + _string(key.topic) + _INT32.pack(key.partition)


def decode_key(raw: bytes) -> OffsetKey | GroupKey | None:
    """Return the key, or None for a kind of record that is not ours.

    Raises MalformedGroupRecord.
    """
    reader = _Reader(raw)
    version = reader.int16()
    if version in _OFFSET_KEY_VERSIONS:
        offset_key = OffsetKey(reader.string(), reader.string(), reader.int32())
        reader.expect_end()
        return offset_key
    if version == _GROUP_KEY_VERSION:
        group_key = GroupKey(reader.string())
        reader.expect_end()
        return group_key
    return None


def encode_offset(committed: CommittedOffset) -> bytes:
    if committed.expire_ms >= 0:
        return (
            _INT16.pack(1)
            + _INT64.pack(committed.offset)
            + _string(committed.metadata)
            + _INT64.pack(committed.commit_ms)
            + _INT64.pack(committed.expire_ms)
        )
    return (
        _INT16.pack(_NEWEST_VALUE)
        + _INT64.pack(committed.offset)
        + _INT32.pack(committed.leader_epoch)
        + _string(committed.metadata)
        + _INT64.pack(committed.commit_ms)
    )


def decode_offset(raw: bytes) -> CommittedOffset:
    """Decode the value of an offset commit.

    Raises MalformedGroupRecord.
    """
    reader = _Reader(raw)
    version = reader.version()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == 1 else -1
    reader.expect_end()
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms)


def encode_metadata(metadata: GroupMetadata) -> bytes:
    parts = [
        _INT16.pack(_NEWEST_VALUE),
        _string(metadata.protocol_type),
        _INT32.pack(metadata.generation_id),
        _nullable_string(metadata.protocol),
        _nullable_string(metadata.leader_id),
        _INT64.pack(metadata.state_since_ms),
        _INT32.pack(len(metadata.members)),
    ]
    for member in metadata.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def decode_metadata(raw: bytes) -> GroupMetadata:
    """Decode the value of a group's metadata.

    Raises MalformedGroupRecord.
    """
    reader = _Reader(raw)
    version = reader.version()
    protocol_type = reader.string()
    generation_id = reader.int32()
    protocol = reader.nullable_string()
    leader_id = reader.nullable_string()
    state_since_ms = reader.int64() if version >= 2 else -1
    members = tuple(
        _read_member(reader, version) for _ in range(reader.count(_SMALLEST_MEMBER_BYTES))
    )
    reader.expect_end()
    return GroupMetadata(protocol_type, generation_id, protocol, leader_id, state_since_ms, members)


def _read_member(reader: "_Reader", version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = session_timeout_ms
    return MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        reader.sized_bytes(),
        reader.sized_bytes(),
    )


def _string(value: str) -> bytes:
    raw = value.encode()
    return _INT16.pack(len(raw)) + raw


def _nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else _string(value)


class _Reader:
    """A cursor over one key or value."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._position = 0

    def take(self, size: int) -> bytes:
        start = self._position
        if not 0 <= size <= len(self._raw) - start:
            raise MalformedGroupRecord(
                f"at byte {start}: expected {size} more bytes, found {len(self._raw) - start}"
            )
        self._position = start + size
        return self._raw[start : self._position]

    def int16(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self.take(8))[0])

    def version(self) -> int:
        version = self.int16()
        if not 0 <= version <= _NEWEST_VALUE:
            raise MalformedGroupRecord(
                f"a value's version: expected 0 to {_NEWEST_VALUE}, found {version}"
            )
        return version

    def count(self, smallest_bytes: int) -> int:
        count = self.int32()
        if not 0 <= count * smallest_bytes <= len(self._raw) - self._position:
            raise MalformedGroupRecord(f"at byte {self._position}: {count} elements do not fit")
        return count

    def nullable_string(self) -> str | None:
        size = self.int16()
        if size == -1:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedGroupRecord(f"at byte {self._position}: not UTF-8") from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedGroupRecord(f"at byte {self._position}: expected a string, found null")
        return value

    def sized_bytes(self) -> bytes:
        return self.take(self.int32())

    def expect_end(self) -> None:
        if self._position != len(self._raw):
            raise MalformedGroupRecord(
                f"at byte {self._position}: expected the end of the record, found"
                f" {len(self._raw) - self._position} more bytes"
            )
