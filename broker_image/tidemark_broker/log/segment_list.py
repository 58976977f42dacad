"""Keep the segments of one log in the order of their offsets, without gaps; the last one is active.

`SegmentList` keeps the list and the files consistent; the log decides what is truncated, dropped or
replaced.

`retained_start` decides how much of a log's beginning retention removes: complete segments, by age
and by size. Kafka's rules (UnifiedLog.deleteOldSegments): only from the front, never a segment that
reaches past the high watermark, by the newest timestamp of a segment, and by size only while what
stays is at least the limit. The caller advances the log start first, makes it durable, then deletes
files.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

from tidemark_protocol.ids import Offset

from tidemark_broker.log.disk import Disk
from tidemark_broker.log.log_config import NO_LIMIT, LogSettings
from tidemark_broker.log.segment import Segment
from tidemark_broker.log.unreadable_sectors import unreadable_is_corrupt


class SegmentList(Sequence[Segment]):
    def __init__(self, disk: Disk, directory: Path, segments: Sequence[Segment]) -> None:
        """Create the list of at least one segment."""
        self._disk = disk
        self._directory = directory
        self._segments = list(segments)
        self._base_offsets = [segment.base_offset for segment in segments]
        self.has_retired = False  # files of segments that went wait to be deleted

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def holding(self, offset: Offset) -> Segment:
        """Return the segment whose range `offset` lies in, or past all of them the active one."""
        return self._segments[bisect_right(self._base_offsets, offset) - 1]

    def end_before(self, offset: Offset) -> tuple[Segment, int, Offset]:
        """Return (segment, position, next offset) after the last batch before `offset`.

        Raises CorruptBatch, OSError.
        """
        segment = self.holding(offset)
        if offset >= segment.next_offset:
            return segment, segment.size_bytes, segment.next_offset
        with unreadable_is_corrupt():
            found = segment.find(offset)
            segment.check(found)  # a length that flipped may make an earlier one hold it
            segment.check_truncation(found)  # or the log end where it does not
        return segment, found.position, found.header.base_offset

    def count_below(self, offset: Offset) -> int:
        """Return how many segments end at or below `offset`."""
        return bisect_right([segment.next_offset for segment in self._segments], offset)

    def begin(self, base_offset: Offset, *, index_interval_bytes: int) -> Segment:
        """Create a new active segment.

        Raises OSError, then nothing changed.
        """
        segment = Segment.create(
            self._disk, self._directory, base_offset, index_interval_bytes=index_interval_bytes
        )
        self._segments.append(segment)
        self._base_offsets.append(base_offset)
        return segment

    def drop_behind(self, offset: Offset) -> None:
        """Remove all segments that begin after `offset`, the last one first.

        Raises OSError.
        """
        keep = bisect_right(self._base_offsets, offset)
        self.has_retired = self.has_retired or keep < len(self._segments)
        for later in reversed(self._segments[keep:]):
            later.retire()
        del self._segments[keep:], self._base_offsets[keep:]

    def drop_first(self, count: int) -> None:
        """Remove the first `count` segments, the oldest first.

        Raises OSError.
        """
        self.has_retired = self.has_retired or count > 0
        for segment in self._segments[:count]:
            segment.retire()
        del self._segments[:count], self._base_offsets[:count]

    def restart_at(self, base_offset: Offset, *, index_interval_bytes: int) -> None:
        """Replace all segments by a new, empty one.

        Raises OSError, then the list is as it was: never empty.
        """
        self.has_retired = True
        for segment in reversed(self._segments):
            segment.retire()
        self.begin(base_offset, index_interval_bytes=index_interval_bytes)
        del self._segments[:-1], self._base_offsets[:-1]

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace neighbouring segments by one with exactly their offsets, in memory.

        The caller retires `old`.
        """
        self.has_retired = True
        first = self._segments.index(old[0])
        end = first + len(old)
        assert self._segments[first:end] == list(old)
        assert (new.base_offset, new.next_offset) == (old[0].base_offset, old[-1].next_offset)
        self._segments[first:end] = [new]
        self._base_offsets[first:end] = [new.base_offset]


def retained_start(
    segments: Iterable[Segment],
    settings: LogSettings,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> Offset:
    """Return where the log should start: after the last segment that retention removes.

    `now_ms` is wall clock. Raises OSError if a file's age cannot be read.
    """
    live = [segment for segment in segments if segment.next_offset > log_start_offset]
    start = log_start_offset
    size_bytes = sum(segment.size_bytes for segment in live)
    for segment in live:
        size_bytes -= segment.size_bytes
        if not is_committed(segment, high_watermark) or not settings.deletes:
            break
        if not (
            is_too_old(settings, now_ms - segment.newest_ms())
            or is_beyond_size(settings, size_bytes)
        ):
            break
        start = segment.next_offset
    return start


# guard: retention-below-watermark (I1)
def is_committed(segment: Segment, high_watermark: Offset) -> bool:
    """Return whether the whole segment is committed.

    The log never starts past the high watermark (I1).
    """
    return segment.next_offset <= high_watermark


# guard: retention-by-age (B9)
def is_too_old(settings: LogSettings, age_ms: int) -> bool:
    return settings.retention_ms != NO_LIMIT and age_ms > settings.retention_ms


def is_beyond_size(settings: LogSettings, rest_bytes: int) -> bool:
    """Return whether `rest_bytes`, the log without the segment, reaches the limit."""
    return settings.retention_bytes != NO_LIMIT and rest_bytes >= settings.retention_bytes
