"""One segment: batches are found with and without its indexes, and damage is named by its byte."""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, TruncatedBatch
from tidemark_broker.log.segment import (
    NO_TIMESTAMP,
    Segment,
    base_offsets_of,
    log_path,
    scan_batches,
    write_all,
)
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import NoSyncDisk, batch_of

BASE = Offset(100)
SIZE = len(batch_of(b"v").data)
DISK = NoSyncDisk()


def add(segment: Segment, *, timestamp_ms: int = 1_000) -> None:
    """Append a batch of one record."""
    batch = batch_of(b"v", timestamp_ms=timestamp_ms)
    data = segment.next_offset.to_bytes(8, "big") + bytes(batch.data[8:])
    position = segment.write([data], len(data))
    segment.size_bytes += len(data)
    segment.record_batch(position, len(data), segment.next_offset, timestamp_ms)


def a_segment(directory: Path, *times_ms: int, index_interval_bytes: int = 0) -> Segment:
    """A segment from offset 100 on, of a batch for each time."""
    segment = Segment.create(DISK, directory, BASE, index_interval_bytes=index_interval_bytes)
    for timestamp_ms in times_ms:
        add(segment, timestamp_ms=timestamp_ms)
    return segment


def loaded(directory: Path) -> Segment:
    segment = Segment.open(DISK, directory, BASE, index_interval_bytes=0)
    segment.load()
    return segment


def known(segment: Segment) -> tuple[object, ...]:
    return (
        segment.next_offset,
        segment.size_bytes,
        segment.first_timestamp_ms,
        segment.max_timestamp_ms,
        [segment.find(Offset(offset)).position for offset in range(100, segment.next_offset)],
    )


TIMES_MS = (1_000, 4_000, 2_000, 3_000)


def test_new_segment_is_empty_and_has_no_time(tmp_path: Path) -> None:
    segment = a_segment(tmp_path)
    assert (segment.next_offset, segment.size_bytes) == (BASE, 0)
    assert (segment.first_timestamp_ms, segment.max_timestamp_ms) == (None, NO_TIMESTAMP)
    assert segment.newest_ms() > 0  # of the file
    assert segment.path == log_path(tmp_path, BASE) == tmp_path / "00000000000000000100.log"


@pytest.mark.parametrize("index_interval_bytes", [0, SIZE, 10**6])
def test_each_offset_is_found_however_sparse_the_index(
    tmp_path: Path, index_interval_bytes: int
) -> None:
    segment = a_segment(tmp_path, *TIMES_MS, index_interval_bytes=index_interval_bytes)
    assert known(segment) == (104, 4 * SIZE, 1_000, 4_000, [0, SIZE, 2 * SIZE, 3 * SIZE])
    assert [header.base_offset for header in segment.headers_from(Offset(102))] == [102, 103]
    assert segment.newest_ms() == 4_000


@pytest.mark.parametrize(
    ("timestamp_ms", "offsets"),
    [
        (0, [100, 101, 102, 103]),
        (1_500, [101, 102, 103]),
        (2_500, [101, 103]),
        (4_000, [101]),
        (4_001, []),
    ],
)
def test_batches_that_reach_a_time_are_found(
    tmp_path: Path, timestamp_ms: int, offsets: list[int]
) -> None:
    found = a_segment(tmp_path, *TIMES_MS).batches_reaching(timestamp_ms)
    assert [placed.header.base_offset for placed in found] == offsets


@pytest.mark.parametrize("damage", ["", "remove .index", "remove .timeindex", "empty .timeindex"])
def test_loaded_segment_knows_the_same_with_whatever_index_files(
    tmp_path: Path, damage: str
) -> None:
    segment = a_segment(tmp_path, *TIMES_MS)
    segment.write_indexes()
    if damage:
        path = segment.path.with_suffix(damage.split()[1])
        path.unlink() if damage.startswith("remove") else path.write_bytes(b"")
    assert known(loaded(tmp_path)) == known(segment)


@pytest.mark.parametrize(
    ("suffix", "byte"),
    [
        (".index", 3),  # the first entry's offset
        (".index", 7),  # its position: beside a boundary
        (".timeindex", 7),  # the latest time: a little later
    ],
)
def test_index_that_leads_astray_is_rebuilt(tmp_path: Path, suffix: str, byte: int) -> None:
    segment = a_segment(tmp_path, *TIMES_MS)
    segment.write_indexes()
    path = segment.path.with_suffix(suffix)
    entries = bytearray(path.read_bytes())
    entries[byte] ^= 1
    path.write_bytes(entries)
    assert known(loaded(tmp_path)) == known(segment)


def test_truncated_segment_goes_on_from_the_boundary(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, *TIMES_MS)
    segment.write_indexes()
    segment.truncate(2 * SIZE, Offset(102))
    assert known(segment) == (102, 2 * SIZE, 1_000, 4_000, [0, SIZE])
    assert [path.name for path in tmp_path.iterdir()] == [segment.path.name]
    add(segment, timestamp_ms=5_000)
    assert known(loaded(tmp_path)) == known(segment)


def flipped(segment: Segment, position: int) -> None:
    data = bytearray(segment.path.read_bytes())
    data[position] ^= 1
    segment.path.write_bytes(data)


def test_valid_prefix_ends_before_a_batch_whose_crc_fails(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, *TIMES_MS)
    assert segment.valid_prefix(Offset(103)) == (3 * SIZE, 103)
    assert segment.valid_prefix(Offset(999)) == (4 * SIZE, 104)
    flipped(segment, 3 * SIZE - 1)  # of the third batch's record
    assert segment.valid_prefix(Offset(999)) == (2 * SIZE, 102)
    placed = segment.find(Offset(102))
    with pytest.raises(CorruptBatch, match=f"at byte {2 * SIZE}: expected CRC32C"):
        segment.check(placed)
    segment.check(segment.find(Offset(101)))


@pytest.mark.parametrize("chunk_bytes", [61, SIZE, 10**6])
def test_scan_names_the_byte_of_what_does_not_continue(tmp_path: Path, chunk_bytes: int) -> None:
    segment = a_segment(tmp_path, *TIMES_MS)

    def scan(end: int, expected_offset: int = 100) -> list[int]:
        found = scan_batches(
            segment.file,
            start=0,
            end=end,
            expected_offset=Offset(expected_offset),
            verify_crc=True,
            chunk_bytes=chunk_bytes,
        )
        return [placed.position for placed in found]

    assert scan(4 * SIZE) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    for end in (3 * SIZE + 1, 4 * SIZE - 1):
        with pytest.raises(TruncatedBatch, match=f"at byte {3 * SIZE}: "):
            scan(end)
    with pytest.raises(CorruptBatch, match="at byte 0: expected base offset 99, found base offset"):
        scan(4 * SIZE, expected_offset=99)
    flipped(segment, SIZE + 16)  # the magic of the second batch
    with pytest.raises(CorruptBatch, match=f"at byte {SIZE}: expected magic 2"):
        scan(4 * SIZE)


def test_short_write_is_continued_until_the_disk_says_why(tmp_path: Path) -> None:
    disk = FaultyDisk()
    file = disk.open(tmp_path / "file", create=True)
    write_all(file, 0, b"abcdef")
    assert file.read_at(0, 6) == b"abcdef"
    disk.space_bytes = 2
    with pytest.raises(OSError, match="No space left on device"):
        write_all(file, 6, b"ghij")
    assert file.size_bytes() == 8


def test_retired_file_waits_for_its_deletion_without_indexes(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, *TIMES_MS)
    segment.write_indexes()
    segment.retire()
    assert [path.name for path in tmp_path.iterdir()] == [f"{segment.path.name}.deleted"]


def test_segments_are_recognised_by_the_names_of_their_files() -> None:
    names = ["00000000000000000100.log", "00000000000000000007.log", "00000000000000000100.index"]
    names += ["100.log", "00000000000000000008.log.deleted", "00000000000000000009.log.cleaned"]
    assert base_offsets_of(names) == [7, 100]
