"""Read Kafka's primitive types from untrusted bytes, and write them.

Each read is checked against the end of the frame and each count against the bytes left, so that a
hostile length costs nothing. Types: Kafka protocol guide; varints: KIP-482.
"""

import struct
from collections.abc import Container
from functools import lru_cache
from uuid import UUID

from tidemark_protocol.ids import TopicId

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
UINT16 = struct.Struct(">H")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
FLOAT64 = struct.Struct(">d")

_MAX_VARINT_BYTES = 5
# Of all arrays and tagged fields of one frame together: a byte or two of it become an object of a
# hundred and more, and microseconds of the broker's loop. Brokers of the pool ask each other for
# more at once.
MAX_ELEMENTS = 16_000
MAX_ELEMENTS_OF_PEERS = 100_000
MAX_TAGGED_FIELDS = 100  # of one struct
# In each direction some 0.35 kB each: also deleted topics are among them until others come.
RECENT_TOPIC_IDS = 16_384


class MalformedFrame(Exception):
    """An error: a peer's bytes are not the request or response that they claim to be."""


@lru_cache(maxsize=RECENT_TOPIC_IDS)
def topic_id_from_bytes(raw: bytes) -> TopicId:
    return TopicId(str(UUID(bytes=raw)))


@lru_cache(maxsize=RECENT_TOPIC_IDS)
def topic_id_to_bytes(topic_id: TopicId) -> bytes:
    return UUID(topic_id).bytes


class Reader:
    """A cursor over one frame, with a budget of elements."""

    __slots__ = ("data", "elements_left", "end", "position")

    def __init__(
        self, data: bytes | bytearray | memoryview, *, most_elements: int = MAX_ELEMENTS
    ) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)
        self.elements_left = most_elements

    def take(self, size: int) -> int:
        """Advance by `size` bytes and return where they begin."""
        position = self.position
        if size < 0 or size > self.end - position:
            raise MalformedFrame(
                f"at byte {position}: expected {size} more bytes, found {self.end - position}"
            )
        self.position = position + size
        return position

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack_from(self.data, self.take(layout.size))

    def int8(self) -> int:
        return int(INT8.unpack_from(self.data, self.take(1))[0])

    def int16(self) -> int:
        return int(INT16.unpack_from(self.data, self.take(2))[0])

    def int32(self) -> int:
        return int(INT32.unpack_from(self.data, self.take(4))[0])

    def int64(self) -> int:
        return int(INT64.unpack_from(self.data, self.take(8))[0])

    def unsigned_varint(self) -> int:
        position = self.position
        if position < self.end and (byte := self.data[position]) < 0x80:  # nearly always
            self.position = position + 1
            return byte
        value = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self.data[self.take(1)]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                return value
        raise MalformedFrame(f"at byte {self.position}: expected a varint of at most 32 bits")

    def count(self, *, smallest_bytes: int, is_flexible: bool = True) -> int:
        """Read the length of an array; -1 is null.

        Its elements have at least `smallest_bytes` each.
        """
        position = self.position
        number = self.unsigned_varint() - 1 if is_flexible else self.int32()
        if number < 0:
            return -1
        if number > self.elements_left or number * smallest_bytes > self.end - self.position:
            raise MalformedFrame(
                f"at byte {position}: {number} elements of {smallest_bytes} or more bytes, expected"
                f" at most {self.elements_left} in the {self.end - self.position} that are left"
            )
        self.elements_left -= number
        return number

    def compact_bytes(self) -> memoryview | None:
        size = self.unsigned_varint() - 1
        if size < 0:
            return None
        start = self.take(size)
        return memoryview(self.data)[start : start + size]

    def compact_string(self) -> str | None:
        raw = self.compact_bytes()
        return None if raw is None else self._text(bytes(raw))

    def nullable_string(self) -> str | None:
        size = self.int16()
        if size < 0:
            return None
        start = self.take(size)
        return self._text(bytes(self.data[start : start + size]))

    def topic_id(self) -> TopicId:
        start = self.take(16)
        return topic_id_from_bytes(bytes(self.data[start : start + 16]))

    def tagged_fields(self, known: Container[int] = ()) -> "tuple[tuple[int, Reader], ...]":
        """Return (tag, reader of its bytes) for each known tag, in the order sent.

        Other tags are skipped; they count against the frame's budget of elements too.
        """
        position = self.position
        if position < self.end and self.data[position] == 0:  # nearly always
            self.position = position + 1
            return ()
        number = self.unsigned_varint()
        if number == 0:
            return ()
        most = min(MAX_TAGGED_FIELDS, self.elements_left)
        if number > most or number * 2 > self.end - self.position:
            raise MalformedFrame(
                f"at byte {self.position}: {number} tagged fields, expected at most"
                f" {most} in the {self.end - self.position} bytes that are left"
            )
        self.elements_left -= number
        found = []
        for _ in range(number):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            start = self.take(size)
            if tag in known:
                found.append((tag, Reader(memoryview(self.data)[start : start + size])))
        return tuple(found)

    def expect_end(self) -> None:
        if self.position != self.end:
            raise MalformedFrame(
                f"at byte {self.position}: expected the end of the frame,"
                f" found {self.end - self.position} more bytes"
            )

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedFrame(f"at byte {self.position}: not UTF-8: {error}") from error


def unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def array_length(count: int, *, is_flexible: bool) -> bytes:
    """Encode the length of an array; -1 is null."""
    return unsigned_varint(count + 1) if is_flexible else INT32.pack(count)


def compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    raw = value.encode()
    return unsigned_varint(len(raw) + 1) + raw


def nullable_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return INT16.pack(len(raw)) + raw


def tagged_field(tag: int, payload: bytes) -> bytes:
    return unsigned_varint(tag) + unsigned_varint(len(payload)) + payload
