"""Keep the two sparse indexes of a segment, in memory as arrays and on disk as Kafka writes them.

`.index` has 8 bytes an entry, (relative last offset of a batch, byte position of that batch).
`.timeindex` has 12 bytes, (largest timestamp so far, relative last offset of the batch that has
it). They are hints: each reader checks the batch found there, and a file that is missing or
malformed is rebuilt from the segment. So they are written when a segment is sealed, never on
append.

A start after a kill reads them from another file (`synced_prefix`), which is quick to write and to
read: the arrays as this machine has them in memory, under a checksum of the caller's.
"""

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

MAX_RELATIVE_OFFSET = 2**31 - 1

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_INT32, _INT64 = "i", "q"


class MalformedIndex(ValueError):
    """An error: the index file cannot be this segment's."""


class OffsetIndex:
    def __init__(
        self,
        offsets: "array[int] | None" = None,
        positions: "array[int] | None" = None,
    ) -> None:
        self._offsets = array(_INT32) if offsets is None else offsets
        self._positions = array(_INT32) if positions is None else positions

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def append(self, relative_offset: int, position: int) -> None:
        self._offsets.append(relative_offset)
        self._positions.append(position)

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """Return (relative last offset, position) of the last entry at or below the offset."""
        found = bisect_right(self._offsets, relative_offset) - 1
        return (self._offsets[found], self._positions[found]) if found >= 0 else None

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at or above `relative_offset`."""
        keep = bisect_left(self._offsets, relative_offset)
        del self._offsets[keep:], self._positions[keep:]

    def copy(self) -> "OffsetIndex":
        return OffsetIndex(self._offsets[:], self._positions[:])

    def to_memory(self) -> bytes:
        return self._offsets.tobytes() + self._positions.tobytes()

    @classmethod
    def from_memory(cls, data: memoryview, entries: int) -> tuple["OffsetIndex", memoryview]:
        """Return the index and the bytes after it.

        Raises MalformedIndex.
        """
        offsets, data = _array_from(data, _INT32, entries)
        positions, data = _array_from(data, _INT32, entries)
        return cls(offsets, positions), data

    def to_bytes(self) -> bytes:
        return b"".join(map(_OFFSET_ENTRY.pack, self._offsets, self._positions))

    @classmethod
    def from_bytes(cls, data: bytes, *, log_size_bytes: int) -> "OffsetIndex":
        if len(data) % _OFFSET_ENTRY.size:
            raise MalformedIndex(f"expected a multiple of 8 bytes, found {len(data)}")
        index = cls()
        last_offset, last_position = -1, -1
        for offset, position in _OFFSET_ENTRY.iter_unpack(data):
            if offset <= last_offset or not last_position < position < log_size_bytes:
                raise MalformedIndex(f"({offset}, {position}) after {last_offset, last_position}")
            index.append(offset, position)
            last_offset, last_position = offset, position
        return index


class TimeIndex:
    def __init__(
        self,
        timestamps_ms: "array[int] | None" = None,
        offsets: "array[int] | None" = None,
    ) -> None:
        self._timestamps_ms = array(_INT64) if timestamps_ms is None else timestamps_ms
        self._offsets = array(_INT32) if offsets is None else offsets

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last(self) -> tuple[int, int] | None:
        """Return (timestamp, relative offset) of the largest timestamp recorded."""
        return (self._timestamps_ms[-1], self._offsets[-1]) if self._offsets else None

    def append_if_later(self, timestamp_ms: int, relative_offset: int) -> None:
        if not self._offsets or (
            timestamp_ms > self._timestamps_ms[-1] and relative_offset > self._offsets[-1]
        ):
            self._timestamps_ms.append(timestamp_ms)
            self._offsets.append(relative_offset)

    def floor(self, timestamp_ms: int) -> int | None:
        """Return a relative offset before which all records are earlier, or None."""
        found = bisect_left(self._timestamps_ms, timestamp_ms) - 1
        return self._offsets[found] if found >= 0 else None

    def truncate(self, relative_offset: int) -> None:
        keep = bisect_left(self._offsets, relative_offset)
        del self._timestamps_ms[keep:], self._offsets[keep:]

    def copy(self) -> "TimeIndex":
        return TimeIndex(self._timestamps_ms[:], self._offsets[:])

    def to_memory(self) -> bytes:
        return self._timestamps_ms.tobytes() + self._offsets.tobytes()

    @classmethod
    def from_memory(cls, data: memoryview, entries: int) -> tuple["TimeIndex", memoryview]:
        """Return the index and the bytes after it.

        Raises MalformedIndex.
        """
        timestamps_ms, data = _array_from(data, _INT64, entries)
        offsets, data = _array_from(data, _INT32, entries)
        return cls(timestamps_ms, offsets), data

    def to_bytes(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps_ms, self._offsets))

    @classmethod
    def from_bytes(cls, data: bytes) -> "TimeIndex":
        if len(data) % _TIME_ENTRY.size:
            raise MalformedIndex(f"expected a multiple of 12 bytes, found {len(data)}")
        index = cls()
        for timestamp_ms, offset in _TIME_ENTRY.iter_unpack(data):
            last = index.last
            if offset < 0 or (last is not None and (timestamp_ms <= last[0] or offset <= last[1])):
                raise MalformedIndex(f"({timestamp_ms}, {offset}) after {last}")
            index._timestamps_ms.append(timestamp_ms)
            index._offsets.append(offset)
        return index


def _array_from(data: memoryview, kind: str, entries: int) -> "tuple[array[int], memoryview]":
    found = array(kind)
    size_bytes = entries * found.itemsize
    if not 0 <= size_bytes <= len(data):
        raise MalformedIndex(f"expected {entries} entries, found {len(data)} bytes")
    found.frombytes(data[:size_bytes])
    return found, data[size_bytes:]
