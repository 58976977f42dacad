"""The two sparse indexes of a segment: look-ups, Kafka's bytes, and files that are not believed."""

from struct import pack

import pytest
from tidemark_broker.log.indexes import MalformedIndex, OffsetIndex, TimeIndex


def an_offset_index() -> OffsetIndex:
    index = OffsetIndex()
    for relative_offset, position in ((4, 70), (9, 300), (12, 1000)):
        index.append(relative_offset, position)
    return index


def a_time_index() -> TimeIndex:
    index = TimeIndex()
    for timestamp_ms, relative_offset in ((100, 4), (200, 9), (300, 12)):
        index.append_if_later(timestamp_ms, relative_offset)
    return index


@pytest.mark.parametrize(
    ("relative_offset", "found"),
    [(3, None), (4, (4, 70)), (8, (4, 70)), (9, (9, 300)), (2**31, (12, 1000))],
)
def test_offset_is_found_from_the_last_entry_at_or_below_it(
    relative_offset: int, found: tuple[int, int] | None
) -> None:
    assert an_offset_index().floor(relative_offset) == found
    assert OffsetIndex().floor(relative_offset) is None


@pytest.mark.parametrize(
    ("timestamp_ms", "found"), [(99, None), (100, None), (101, 4), (200, 4), (201, 9), (999, 12)]
)
def test_time_is_found_from_the_last_entry_that_is_earlier(
    timestamp_ms: int, found: int | None
) -> None:
    assert a_time_index().floor(timestamp_ms) == found


def test_time_index_takes_what_is_later_in_time_and_in_the_log() -> None:
    index = a_time_index()
    index.append_if_later(300, 20)
    index.append_if_later(400, 12)
    assert (len(index), index.last) == (3, (300, 12))
    index.append_if_later(301, 13)
    assert (len(index), index.last) == (4, (301, 13))


@pytest.mark.parametrize(("relative_offset", "left"), [(4, 0), (5, 1), (12, 2), (13, 3)])
def test_truncation_drops_entries_at_and_above_the_offset(relative_offset: int, left: int) -> None:
    offsets, times = an_offset_index(), a_time_index()
    offsets.truncate(relative_offset)
    times.truncate(relative_offset)
    assert (len(offsets), len(times)) == (left, left)
    assert offsets.last_position == (0, 70, 300, 1000)[left]
    assert times.last == (None, (100, 4), (200, 9), (300, 12))[left]


def test_copy_does_not_change_with_its_original() -> None:
    offsets, times = an_offset_index(), a_time_index()
    copies = offsets.copy(), times.copy()
    offsets.append(13, 2000)
    times.append_if_later(400, 13)
    assert [len(copy) for copy in copies] == [3, 3]


def test_files_have_kafkas_bytes() -> None:
    assert an_offset_index().to_bytes() == pack(">6i", 4, 70, 9, 300, 12, 1000)
    assert a_time_index().to_bytes() == pack(">qiqiqi", 100, 4, 200, 9, 300, 12)


def test_files_are_read_as_they_were_written() -> None:
    offsets = OffsetIndex.from_bytes(an_offset_index().to_bytes(), log_size_bytes=1001)
    assert offsets.to_bytes() == an_offset_index().to_bytes()
    assert TimeIndex.from_bytes(a_time_index().to_bytes()).last == (300, 12)
    assert len(OffsetIndex.from_bytes(b"", log_size_bytes=0)) == len(TimeIndex.from_bytes(b"")) == 0


@pytest.mark.parametrize(
    "data",
    [
        bytes(7),
        pack(">2i", -1, 70),
        pack(">2i", 4, -1),
        pack(">2i", 4, 1000),  # the size of the segment
        pack(">4i", 4, 70, 4, 300),
        pack(">4i", 4, 70, 9, 70),
    ],
)
def test_offset_index_that_cannot_be_the_segments_is_rejected(data: bytes) -> None:
    with pytest.raises(MalformedIndex):
        OffsetIndex.from_bytes(data, log_size_bytes=1000)


@pytest.mark.parametrize(
    "data",
    [
        bytes(11),
        pack(">qi", 100, -1),
        pack(">qiqi", 100, 4, 100, 9),
        pack(">qiqi", 100, 4, 200, 4),
    ],
)
def test_time_index_that_cannot_be_a_segments_is_rejected(data: bytes) -> None:
    with pytest.raises(MalformedIndex):
        TimeIndex.from_bytes(data)


def test_arrays_in_memory_come_back_and_leave_the_bytes_after_them() -> None:
    data = memoryview(an_offset_index().to_memory() + a_time_index().to_memory() + b"rest")
    offsets, rest = OffsetIndex.from_memory(data, 3)
    times, rest = TimeIndex.from_memory(rest, 3)
    assert offsets.to_bytes() == an_offset_index().to_bytes()
    assert times.to_bytes() == a_time_index().to_bytes()
    assert bytes(rest) == b"rest"


@pytest.mark.parametrize("entries", [-1, 4, 2**31])
def test_more_entries_than_there_are_bytes_are_rejected(entries: int) -> None:
    with pytest.raises(MalformedIndex):
        OffsetIndex.from_memory(memoryview(an_offset_index().to_memory()), entries)
    with pytest.raises(MalformedIndex):
        TimeIndex.from_memory(memoryview(a_time_index().to_memory()), entries)
