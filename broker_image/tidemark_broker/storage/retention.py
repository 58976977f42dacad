"""How much of a log's beginning may go: whole segments, by age and by size.

Kafka's rules (UnifiedLog.deleteOldSegments): only from the front, never a segment that reaches past
the high watermark, by the newest timestamp that a segment holds, and by size only while what stays
is at least the limit. The caller moves the log start first, makes it durable, then deletes files.
"""

from collections.abc import Iterable

from tidemark_protocol.ids import Offset

from tidemark_broker.storage.segment import Segment
from tidemark_broker.storage.settings import NO_LIMIT, LogSettings


def retained_start(
    segments: Iterable[Segment],
    settings: LogSettings,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> Offset:
    """Where the log should start: at the end of the last segment that may go, or where it does.

    `now_ms` is wall clock. Raises OSError, where a file's age is asked for.
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
    """I1: the log never starts past the high watermark."""
    return segment.next_offset <= high_watermark


# guard: retention-by-age (B9)
def is_too_old(settings: LogSettings, age_ms: int) -> bool:
    return settings.retention_ms != NO_LIMIT and age_ms > settings.retention_ms


def is_beyond_size(settings: LogSettings, rest_bytes: int) -> bool:
    """`rest_bytes`: what would be left without the segment."""
    return settings.retention_bytes != NO_LIMIT and rest_bytes >= settings.retention_bytes
