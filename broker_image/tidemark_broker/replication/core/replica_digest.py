"""Compute digests of a replica below its high watermark, at offsets that all replicas share.

The digest at boundary b covers the batches that begin in [b - 2^k, b), 2^k the largest power of two
that divides b: sums of batch digests modulo 2^48, so it fits a float64 exactly. A boundary needs
nothing of what lies before its own range. So digests survive restart, retention and truncation, a
replica that begins late agrees from its next round boundaries on, and boundaries in succession
(those of the binary digits of the end) cover the whole log: at most 63 of them are kept, and
reading a batch costs a few steps. The audit compares them.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import Offset

DIGEST_BYTES = 6
_MODULUS = 1 << (8 * DIGEST_BYTES)
SHOWN_FOR_MS = 120_000  # the roundest boundary of so long a time is shown
IDLE_TURN_MS = 30_000  # after that each one kept is shown in turn, for so long


@dataclass(frozen=True, slots=True)
class BoundaryDigest:
    boundary: Offset
    digest: int  # 0 to 2^48 - 1


@dataclass(frozen=True, slots=True)
class Mark:
    """A boundary; `prefix` is the sum of all batch digests that this chain counted below it."""

    boundary: int
    prefix: int
    passed_ms: int  # when, monotonic; -SHOWN_FOR_MS or less: in a former life


def range_start(boundary: int) -> int:
    """Return where the range of the digest at `boundary` begins."""
    return boundary & (boundary - 1)


class ReplicaDigest:
    """The chain of one replica; `end` is the next offset to be counted."""

    def __init__(self, start: Offset) -> None:
        self.restart(start)

    def restart(self, start: Offset) -> None:
        """Count from `start`; boundaries whose ranges begin before it are not shown."""
        self._marks = [Mark(start, 0, -SHOWN_FOR_MS)]
        self.end = start

    def add(self, batch: bytes | memoryview, next_offset: Offset, now_ms: int) -> None:
        """Count the stored batch that begins at `end`; `next_offset` follows it."""
        assert next_offset > self.end, (next_offset, self.end)
        counted = int.from_bytes(hashlib.blake2b(batch, digest_size=DIGEST_BYTES).digest(), "big")
        prefix = (self._marks[-1].prefix + counted) % _MODULUS
        for boundary in _boundaries_passed(self.end, next_offset):
            while len(self._marks) > 1 and _is_within(self._marks[-1].boundary, boundary):
                self._marks.pop()
            self._marks.append(Mark(boundary, prefix, now_ms))
        self.end = next_offset

    def truncate(self, end: Offset) -> None:
        """Continue the chain at the new end of the log, if that is at a mark; else start again.

        What lies between the last mark and the end would have to be read again.
        """
        if end >= self.end:
            return
        kept = [mark for mark in self._marks if mark.boundary <= end]
        if kept and kept[-1].boundary == end:
            self._marks, self.end = kept, end
        else:
            self.restart(end)

    def shown(self, now_ms: int) -> BoundaryDigest | None:
        """Return the roundest boundary passed lately; while idle, one after the other."""
        complete = self._complete()
        for mark, before in complete:
            if mark.passed_ms > now_ms - SHOWN_FOR_MS:
                return _digest(mark, before)
        if not complete:
            return None
        return _digest(*complete[now_ms // IDLE_TURN_MS % len(complete)])

    def _complete(self) -> list[tuple[Mark, Mark]]:
        """Return marks whose whole range was counted, each with the mark where the range begins."""
        pairs = zip(self._marks[1:], self._marks, strict=False)
        return [
            (mark, before)
            for mark, before in pairs
            if before.boundary == range_start(mark.boundary)
        ]

    # Kept through a restart

    @property
    def positions(self) -> tuple[tuple[int, int], ...]:
        """Return (boundary, prefix) of each mark, in order; the last one is the end."""
        return tuple((mark.boundary, mark.prefix) for mark in self._marks)

    @classmethod
    def restored(cls, positions: Iterable[tuple[int, int]], log_end: Offset) -> "ReplicaDigest":
        """Return the digest of an earlier process over a log that now ends at `log_end`.

        Raises ValueError if `positions` could not have returned that.
        """
        marks = [Mark(boundary, prefix, -SHOWN_FOR_MS) for boundary, prefix in positions]
        boundaries = [mark.boundary for mark in marks]
        if not marks or boundaries != sorted(set(boundaries)) or boundaries[0] < 0:
            raise ValueError(f"expected rising boundaries, found {boundaries[:4]}")
        if any(not 0 <= mark.prefix < _MODULUS for mark in marks):
            raise ValueError("expected prefixes of 48 bits")
        found = cls(Offset(boundaries[-1]))
        found._marks = marks
        found.truncate(log_end)
        return found


def _digest(mark: Mark, before: Mark) -> BoundaryDigest:
    return BoundaryDigest(Offset(mark.boundary), (mark.prefix - before.prefix) % _MODULUS)


def _boundaries_passed(start: int, end: int) -> list[int]:
    """Return the boundaries in (start, end] that are kept when the log ends at `end`, in order."""
    found = []
    while end > start:
        found.append(end)
        end = range_start(end)
    return found[::-1]


def _is_within(boundary: int, other: int) -> bool:
    """Return whether the range of `other` covers `boundary`, which is then not kept."""
    return boundary > range_start(other)
