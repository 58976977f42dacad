"""Read and write subscriptions and assignments of consumers, and assign partitions by range.

The coordinator passes these bytes on without reading them. Version 0 of Kafka's ConsumerProtocol is
written, because each client reads it; of newer versions the fields of version 0 are read. The
assignor is Kafka's `range`.
"""

import struct
from collections.abc import Mapping

from tidemark_broker.coordinator.core.member import subscribed_topics_of

RANGE = "range"
TopicPartition = tuple[str, int]

_INT32 = struct.Struct(">i")
_SMALLEST_TOPIC_BYTES = 6  # an empty name, no partitions
_NO_USER_DATA = _INT32.pack(-1)


class MalformedAssignment(Exception):
    """An error: the group leader's assignment cannot be decoded."""


def encode_subscription(topics: tuple[str, ...]) -> bytes:
    names = b"".join(_string(topic) for topic in sorted(topics))
    return b"\x00\x00" + _INT32.pack(len(topics)) + names + _NO_USER_DATA


def decode_subscription(raw: bytes) -> frozenset[str]:
    """Return the subscribed topics; an empty set if the bytes cannot be decoded."""
    return frozenset(subscribed_topics_of(raw) or ())


def encode_assignment(partitions: tuple[TopicPartition, ...]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    out = [b"\x00\x00", _INT32.pack(len(by_topic))]
    for topic, numbers in sorted(by_topic.items()):
        out.append(_string(topic) + _INT32.pack(len(numbers)))
        out += [_INT32.pack(number) for number in sorted(numbers)]
    return b"".join(out) + _NO_USER_DATA


def decode_assignment(raw: bytes) -> tuple[TopicPartition, ...]:
    """Return the assigned partitions; none for a member with an empty assignment.

    Raises MalformedAssignment.
    """
    if not raw:
        return ()
    found = []
    position = 2
    try:
        (topics,) = _INT32.unpack_from(raw, position)
        position += 4
        if not 0 <= _SMALLEST_TOPIC_BYTES * topics <= len(raw) - position:
            raise MalformedAssignment(f"at byte {position}: {topics} topics do not fit")
        for _ in range(topics):
            (size,) = struct.unpack_from(">h", raw, position)
            position += 2
            if not 0 <= size <= len(raw) - position:
                raise MalformedAssignment(f"at byte {position}: a name of {size} bytes")
            topic = raw[position : position + size].decode()
            position += size
            (count,) = _INT32.unpack_from(raw, position)
            position += 4
            if not 0 <= 4 * count <= len(raw) - position:
                raise MalformedAssignment(f"at byte {position}: {count} partitions do not fit")
            found += [(topic, number) for number in struct.unpack_from(f">{count}i", raw, position)]
            position += 4 * count
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedAssignment(f"at byte {position}: {error}") from error
    return tuple(found)


def assign_ranges(
    subscriptions: Mapping[str, frozenset[str]], partition_counts: Mapping[str, int]
) -> dict[str, tuple[TopicPartition, ...]]:
    """Return the partitions of each member id: of each topic a contiguous range.

    Where the partitions do not divide evenly, the first members get one more.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        share, left_over = divmod(partition_counts.get(topic, 0), len(members))
        first = 0
        for at, member in enumerate(members):
            end = first + share + (at < left_over)
            assigned[member] += [(topic, number) for number in range(first, end)]
            first = end
    return {member: tuple(partitions) for member, partitions in assigned.items()}


def _string(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw
