"""The segments of a log: which one holds an offset, and files that follow the list."""

import dataclasses
from pathlib import Path

import pytest
from tidemark_broker.log.log_config import NO_LIMIT, LogSettings
from tidemark_broker.log.segment import Segment
from tidemark_broker.log.segment_list import SegmentList, is_beyond_size, is_too_old
from tidemark_protocol.ids import Offset

from tests.support.log_fixtures import NoSyncDisk, batch_of

DISK = NoSyncDisk()
KEEP_ALL = LogSettings(retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT)


def add(segment: Segment, count: int, *, timestamp_ms: int = 1_000) -> None:
    """Append a batch of so many records."""
    batch = batch_of(*[b"v"] * count, timestamp_ms=timestamp_ms)
    data = segment.next_offset.to_bytes(8, "big") + bytes(batch.data[8:])
    position = segment.write([data], len(data))
    segment.size_bytes += len(data)
    last_offset = Offset(segment.next_offset + count - 1)
    segment.record_batch(position, len(data), last_offset, timestamp_ms)


def a_list(directory: Path) -> SegmentList:
    """Segments of the offsets 0 to 4, 5 to 9 and 10 to 14, in batches of 2 and 3."""
    first = Segment.create(DISK, directory, Offset(0), index_interval_bytes=0)
    segments = SegmentList(DISK, directory, [first])
    for base_offset in (0, 5, 10):
        if base_offset:
            segments.begin(Offset(base_offset), index_interval_bytes=0)
        add(segments.active, 2, timestamp_ms=1_000 * base_offset + 1)
        add(segments.active, 3, timestamp_ms=1_000 * base_offset + 2)
    return segments


def bases(segments: SegmentList) -> list[int]:
    return [segment.base_offset for segment in segments]


def files_of(directory: Path) -> list[str]:
    return sorted(path.name.lstrip("0") for path in directory.iterdir())


@pytest.mark.parametrize(
    ("offset", "base_offset"), [(0, 0), (4, 0), (5, 5), (9, 5), (10, 10), (14, 10), (99, 10)]
)
def test_offset_is_in_the_segment_of_its_range(
    tmp_path: Path, offset: int, base_offset: int
) -> None:
    assert a_list(tmp_path).holding(Offset(offset)).base_offset == base_offset


@pytest.mark.parametrize(
    ("offset", "base_offset", "next_offset"),
    [(0, 0, 0), (2, 0, 2), (3, 0, 2), (4, 0, 2), (5, 5, 5), (7, 5, 7), (15, 10, 15), (99, 10, 15)],
)
def test_end_before_an_offset_is_the_boundary_of_its_batch(
    tmp_path: Path, offset: int, base_offset: int, next_offset: int
) -> None:
    segment, position, found = a_list(tmp_path).end_before(Offset(offset))
    assert (segment.base_offset, found) == (base_offset, next_offset)
    sizes = {0: 0, 2: len(batch_of(b"v", b"v").data), 5: segment.size_bytes}
    assert position == sizes[next_offset - base_offset]


@pytest.mark.parametrize(("offset", "count"), [(4, 0), (5, 1), (9, 1), (10, 2), (15, 3)])
def test_segments_below_an_offset_are_those_that_end_there(
    tmp_path: Path, offset: int, count: int
) -> None:
    assert a_list(tmp_path).count_below(Offset(offset)) == count


@pytest.mark.parametrize(
    ("offset", "left"), [(15, [0, 5, 10]), (10, [0, 5, 10]), (9, [0, 5]), (4, [0]), (0, [0])]
)
def test_segments_that_begin_behind_an_offset_are_dropped(
    tmp_path: Path, offset: int, left: list[int]
) -> None:
    segments = a_list(tmp_path)
    segments.drop_behind(Offset(offset))
    assert bases(segments) == left
    assert segments.has_retired is (len(left) < 3)
    deleted = [name for name in files_of(tmp_path) if name.endswith(".deleted")]
    assert len(deleted) == 3 - len(left)
    assert segments.holding(Offset(99)).base_offset == left[-1]


def test_first_segments_are_dropped_and_their_files_wait_for_deletion(tmp_path: Path) -> None:
    segments = a_list(tmp_path)
    segments.drop_first(0)
    assert not segments.has_retired
    segments.drop_first(2)
    assert (bases(segments), segments.has_retired) == ([10], True)
    assert files_of(tmp_path) == [".log.deleted", "10.log", "5.log.deleted"]
    assert segments.size_bytes == segments.active.size_bytes


def test_list_that_restarts_has_one_empty_segment(tmp_path: Path) -> None:
    segments = a_list(tmp_path)
    segments.restart_at(Offset(40), index_interval_bytes=0)
    assert (bases(segments), segments.size_bytes, segments.has_retired) == ([40], 0, True)
    assert segments.holding(Offset(40)) is segments.active
    assert "40.log" in files_of(tmp_path)


def test_neighbours_are_replaced_by_a_segment_of_their_offsets(tmp_path: Path) -> None:
    segments = a_list(tmp_path)
    merged, _ = Segment.create_cleaned(DISK, tmp_path, Offset(0), index_interval_bytes=0)
    add(merged, 10)
    segments.replace(segments[:2], merged)
    assert list(segments) == [merged, segments.active]
    assert segments.holding(Offset(9)) is merged
    other, _ = Segment.create_cleaned(DISK, tmp_path, Offset(0), index_interval_bytes=0)
    with pytest.raises(AssertionError):  # it has no offsets
        segments.replace([merged], other)


@pytest.mark.parametrize(
    ("rest_bytes", "limit", "is_beyond"),
    [(99, 100, False), (100, 100, True), (0, 0, True), (10**9, NO_LIMIT, False)],
)
def test_size_limit_is_of_what_stays(rest_bytes: int, limit: int, is_beyond: bool) -> None:
    assert (
        is_beyond_size(dataclasses.replace(KEEP_ALL, retention_bytes=limit), rest_bytes)
        is is_beyond
    )


@pytest.mark.parametrize(
    ("age_ms", "limit", "is_old"),
    [(100, 100, False), (101, 100, True), (1, 0, True), (10**15, NO_LIMIT, False)],
)
def test_age_limit_is_passed_by_what_is_older(age_ms: int, limit: int, is_old: bool) -> None:
    assert is_too_old(dataclasses.replace(KEEP_ALL, retention_ms=limit), age_ms) is is_old
