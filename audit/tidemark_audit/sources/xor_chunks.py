"""Decode Prometheus's XOR chunks (tsdb/chunkenc/xor.go), sample i of many chunks together.

A chunk is two bytes of count, then bits: the first time as a zigzag varint and the first value in
full; then a delta; then deltas of deltas in 0, 14, 17, 20 or 64 bits, and of each value the bits
that differ from the one before. Chunks are foreign bytes: a read beyond a chunk's own bytes is
always detected.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidemark_audit.aggregation.samples import Floats, Longs

U64 = NDArray[np.uint64]
PADDING = 16  # what may be read past the last chunk before the check notices
_SIZES = np.array([0, 14, 17, 20, 64], dtype=np.uint64)  # by how many ones lead
_PREFIX = np.array([1, 2, 3, 4, 4], dtype=np.int64)
_ONE, _TOP = np.uint64(1), np.uint64(63)


class BadChunk(ValueError):
    """Report a chunk that does not hold as many samples as it states."""


def decode(chunks: Sequence[bytes]) -> tuple[Longs, Longs, Floats]:
    """Return (count of each chunk, times in ms, values), chunk after chunk.

    Raises BadChunk.
    """
    counts = np.array([samples_in(chunk) for chunk in chunks], dtype=np.int64)
    if not len(counts):
        return counts, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    # Those with most samples first: the chunks that still go on are always the first ones.
    order = np.argsort(-counts, kind="stable")
    out = np.concatenate(([0], np.cumsum(counts)[:-1]))[order]
    decoder = _Decoder([chunks[number] for number in order])
    times = np.empty(int(counts.sum()), dtype=np.int64)
    values = np.empty(len(times), dtype=np.uint64)
    sorted_counts = counts[order]
    for step in range(int(sorted_counts[0])):
        active = int(np.searchsorted(-sorted_counts, -step, side="left"))
        decoder.step(step, active)
        place = out[:active] + step
        times[place] = decoder.time[:active]
        values[place] = decoder.value[:active]
    return counts, times, values.view(np.float64)


def samples_in(chunk: bytes) -> int:
    """Return the number of samples that the chunk states.

    Raises BadChunk.
    """
    if len(chunk) < 2:
        raise BadChunk(f"a chunk of {len(chunk)} bytes")
    count = int.from_bytes(chunk[:2], "big")
    # Of all samples but the first, a time and a value take a bit each at least.
    if 2 * (count - 1) > 8 * len(chunk):
        raise BadChunk(f"a chunk of {len(chunk)} bytes that says it has {count} samples")
    return count


class _Decoder:
    """Track the read position of each chunk; the first `active` ones continue."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        lengths = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
        self._bytes = np.frombuffer(b"".join(chunks) + bytes(PADDING), dtype=np.uint8)
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        # Eight bytes from any place on, as one big-endian number.
        self._words = np.ndarray(
            (len(self._bytes) - 8,), dtype=">u8", buffer=self._bytes.tobytes(), strides=(1,)
        )
        self._bit = (starts + 2) * 8
        self._end_bit = (starts + lengths) * 8
        count = len(chunks)
        self.time = np.zeros(count, dtype=np.int64)
        self.value = np.zeros(count, dtype=np.uint64)
        self._delta = np.zeros(count, dtype=np.int64)
        self._leading = np.zeros(count, dtype=np.uint64)
        self._trailing = np.zeros(count, dtype=np.uint64)

    def step(self, number: int, active: int) -> None:
        if number == 0:
            zigzag = self._varint(active)
            magnitude = (zigzag >> _ONE).astype(np.int64)
            self.time[:active] = np.where(zigzag & _ONE, ~magnitude, magnitude)
            self.value[:active] = self._peek(active)
            self._bit[:active] += 64
        else:
            if number == 1:
                self._delta[:active] = self._varint(active).astype(np.int64)
            else:
                self._delta[:active] += self._delta_of_delta(active)
            self.time[:active] += self._delta[:active]
            self._next_value(active)
        self._check(active)

    def _check(self, active: int) -> None:
        if (self._bit[:active] > self._end_bit[:active]).any():
            raise BadChunk("a chunk ends before its last sample")

    def _peek(self, active: int) -> U64:
        """Return the next 64 bits of each chunk."""
        bit = np.minimum(self._bit[:active], (len(self._words) - 1) * 8)
        place, shift = bit >> 3, (bit & 7).astype(np.uint64)
        word = self._words[place].astype(np.uint64)
        following = self._bytes[np.minimum(place + 8, len(self._bytes) - 1)].astype(np.uint64)
        return np.asarray((word << shift) | (following >> (np.uint64(8) - shift)))

    def _varint(self, active: int) -> U64:
        """Read a varint of each chunk at a byte boundary, which only the first two samples have."""
        found = np.zeros(active, dtype=np.uint64)
        goes_on = np.ones(active, dtype=np.bool_)
        for shift in range(0, 70, 7):
            place = np.minimum(self._bit[:active] >> 3, len(self._bytes) - 1)
            byte = self._bytes[place].astype(np.uint64)
            part = (byte & np.uint64(0x7F)) << np.uint64(min(shift, 63))
            found = np.where(goes_on, found | part, found)
            self._bit[:active] += np.where(goes_on, 8, 0)
            goes_on &= byte >= 0x80
            self._check(active)
            if not goes_on.any():
                return found
        raise BadChunk("a number longer than 64 bits")

    def _delta_of_delta(self, active: int) -> Longs:
        word = self._peek(active)
        ones = np.zeros(active, dtype=np.int64)
        still = np.ones(active, dtype=np.bool_)
        for place in range(4):
            still &= ((word >> (_TOP - np.uint64(place))) & _ONE) == _ONE
            ones += still
        self._bit[:active] += _PREFIX[ones]
        size = _SIZES[ones]
        raw = _top_bits(self._peek(active), size)
        self._bit[:active] += size.astype(np.int64)
        signed = raw.astype(np.int64)
        short = (size > 0) & (size < 64)
        half = _ONE << np.where(short, size - _ONE, np.uint64(0))
        negative = short & (raw > half)
        full = np.where(short, np.int64(1) << np.where(short, size, 0).astype(np.int64), 0)
        return np.where(negative, signed - full, signed)

    def _next_value(self, active: int) -> None:
        word = self._peek(active)
        changes = (word >> _TOP) == _ONE
        is_new = changes & (((word >> np.uint64(62)) & _ONE) == _ONE)
        leading = (word >> np.uint64(57)) & np.uint64(31)
        length = (word >> np.uint64(51)) & np.uint64(63)
        length = np.where(length == 0, np.uint64(64), length)
        if (is_new & (leading + length > 64)).any():
            raise BadChunk("a value of more than 64 bits")
        self._leading[:active] = np.where(is_new, leading, self._leading[:active])
        self._trailing[:active] = np.where(
            is_new, np.uint64(64) - leading - length, self._trailing[:active]
        )
        self._bit[:active] += np.where(is_new, 13, np.where(changes, 2, 1))
        size = np.uint64(64) - self._leading[:active] - self._trailing[:active]
        bits = _top_bits(self._peek(active), size) << self._trailing[:active]
        self.value[:active] ^= np.where(changes, bits, np.uint64(0))
        self._bit[:active] += np.where(changes, size, np.uint64(0)).astype(np.int64)


def _top_bits(word: U64, size: U64) -> U64:
    """Return the first `size` bits of each word.

    A shift by 64 is undefined, so a size of 0 is a case of its own.
    """
    return np.where(size == 0, np.uint64(0), word >> (np.uint64(64) - np.maximum(size, _ONE)))
