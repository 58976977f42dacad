"""Decode a push in parts, so that no turn of the loop is as long as the push.

The partitions of a push of 10,000 take some 20 to 40 milliseconds, garbage collections included.
The version is decoded first: a push that is dropped for it costs no more than that.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec
from tidemark_protocol.controller_messages import (
    HeartbeatAnswer,
    MetadataPush,
    TopicPush,
    decode,
    encode,
)
from tidemark_protocol.partition_state import PartitionState

PART_BYTES = 256 * 1024  # some 800 partitions, 2 ms
ABSENT = msgspec.Raw(b"null")
_NONE = msgspec.Raw(b"[]")

Value = TypeVar("Value")
_Fields = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class ReceivedHeartbeat(HeartbeatAnswer):
    """A HeartbeatResponse whose push is not decoded yet."""

    push: msgspec.Raw = field(kw_only=True)  # msgspec decodes a Raw with a default as null only

    @property
    def has_push(self) -> bool:
        return self.push != ABSENT


class ReceivedPush:
    """A push of which all but the topics is decoded."""

    def __init__(self, encoded: msgspec.Raw) -> None:
        """Decode the head of a push.

        Raises MalformedMessage.
        """
        fields = decode(encoded, _Fields)
        self._topics = fields.get("topics", _NONE)
        self._head = decode(encode(fields | {"topics": _NONE}), MetadataPush)
        self.controller_epoch = self._head.controller_epoch
        self.image_version = self._head.image_version

    async def decoded(self) -> MetadataPush:
        """Decode the topics; other tasks run in between.

        Raises MalformedMessage.
        """
        topics: list[TopicPush] = []
        for part in _parts(decode(self._topics, list[msgspec.Raw])):
            if len(part) == 1:
                topics.append(await _decoded_topic(part[0]))
            else:
                topics += _decoded(part, list[TopicPush])
            await asyncio.sleep(0)
        return replace(self._head, topics=tuple(topics))


async def _decoded_topic(encoded: msgspec.Raw) -> TopicPush:
    fields = decode(encoded, _Fields)
    head = decode(encode(fields | {"partitions": _NONE}), TopicPush)
    partitions: list[PartitionState] = []
    for part in _parts(decode(fields.get("partitions", _NONE), list[msgspec.Raw])):
        if partitions:
            await asyncio.sleep(0)
        partitions += _decoded(part, list[PartitionState])
    return replace(head, partitions=tuple(partitions))


def _parts(encoded: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """Yield the values in parts of about PART_BYTES; a larger one is a part by itself."""
    begin = size_bytes = 0
    for index, value in enumerate(encoded):
        value_bytes = memoryview(value).nbytes
        if size_bytes and size_bytes + value_bytes > PART_BYTES:
            yield encoded[begin:index]
            begin, size_bytes = index, 0
        size_bytes += value_bytes
    if size_bytes:
        yield encoded[begin:]


def _decoded(part: Sequence[msgspec.Raw], kind: type[Value]) -> Value:
    return decode(b"[%b]" % b",".join(part), kind)
