"""Store one segment: a .log file of complete batches with its two indexes; and scan such files.

A segment is appended to, truncated, or deleted as a whole (I10). Headers are checked on every scan:
magic, lengths, and that offsets continue without holes; the CRC only on request, because it reads
everything. Indexes are hints: a batch found through one is compared with its entry.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c
from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import CRC_START, HEADER_BYTES

from tidemark_broker.kafka_wire.records.errors import CorruptBatch, TruncatedBatch
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, read_header
from tidemark_broker.log.disk import MAX_BUFFERS_PER_WRITE, Buffer, Disk, DiskFile
from tidemark_broker.log.indexes import MalformedIndex, OffsetIndex, TimeIndex
from tidemark_broker.log.producer_state_entry import ProducerStateEntries
from tidemark_broker.log.synced_prefix import SYNCED_SUFFIX, SyncedPrefix
from tidemark_broker.log.unreadable_sectors import read_ahead, unreadable_is_corrupt

SCAN_BYTES = 1024 * 1024
WALK_BYTES = 16 * 1024  # a walk over headers starts near its goal: see index_interval_bytes
NO_TIMESTAMP = -1
INDEX_SUFFIXES = (".index", ".timeindex", SYNCED_SUFFIX)
CLEANED_SUFFIX = ".cleaned"  # written by compaction, not valid before it is renamed
_SEGMENT_NAME = re.compile(r"^(\d{20})\.log$")


class PlacedBatch(NamedTuple):
    position: int
    header: BatchHeader


def scan_batches(
    file: DiskFile,
    *,
    start: int,
    end: int,
    expected_offset: Offset,
    verify_crc: bool,
    chunk_bytes: int = SCAN_BYTES,
) -> Iterator[PlacedBatch]:
    """Yield batches from byte `start`, a boundary, to `end`; reads chunks, never a complete file.

    Raises CorruptBatch with the file position at the first batch that is incomplete, does not
    continue the offsets (I4), or, with `verify_crc`, does not match its CRC.
    """
    position = careful_to = start
    chunk, chunk_start = b"", start
    while position < end:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            wanted = min(HEADER_BYTES if position < careful_to else chunk_bytes, end - position)
            chunk, chunk_start = read_ahead(file, position, wanted), position
            if len(chunk) < wanted:  # a bad sector in there: a drive takes seconds to say so
                careful_to = position + wanted
        try:
            header = read_header(chunk, position - chunk_start)
        except CorruptBatch as error:
            raise error.moved_to(position) from error
        if header.base_offset != expected_offset:
            raise CorruptBatch(
                position, f"base offset {expected_offset}", f"base offset {header.base_offset}"
            )
        if header.size_bytes > end - position:
            raise TruncatedBatch(position, f"{header.size_bytes} bytes", f"only {end - position}")
        if verify_crc:
            _check_crc(file, position, header, chunk, chunk_start)
        yield PlacedBatch(position, header)
        position += header.size_bytes
        expected_offset = header.next_offset


def _check_crc(
    file: DiskFile, position: int, header: BatchHeader, chunk: bytes, chunk_start: int
) -> None:
    """Check a batch's CRC in pieces: a length field may claim a gigabyte."""
    at = position + CRC_START
    end = position + header.size_bytes
    piece = memoryview(chunk)[at - chunk_start : end - chunk_start]
    checksum = 0
    while True:
        checksum = crc32c(piece, checksum)
        at += len(piece)
        if at >= end:
            break
        piece = memoryview(file.read_at(at, min(SCAN_BYTES, end - at)))
        if not piece:
            raise TruncatedBatch(position, f"{header.size_bytes} bytes", f"{at - position} bytes")
    if checksum != header.crc:
        raise CorruptBatch(position, f"CRC32C {header.crc:08x}", f"{checksum:08x}")


class Segment:
    """A segment; positions are bytes in the .log file, `size_bytes` is what was written in full."""

    def __init__(
        self, disk: Disk, directory: Path, base_offset: Offset, *, index_interval_bytes: int
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.max_timestamp_ms = NO_TIMESTAMP
        self.file: DiskFile
        self._directory = directory
        self._disk = disk
        self._index_interval_bytes = index_interval_bytes
        self._index_was_rebuilt = False
        self._clear_indexes()

    @property
    def path(self) -> Path:
        """Made when it is asked for: a path that is kept takes 300 bytes in each replica."""
        return log_path(self._directory, self.base_offset)

    @classmethod
    def create(
        cls, disk: Disk, directory: Path, base_offset: Offset, *, index_interval_bytes: int
    ) -> "Segment":
        """Create an empty segment; leftovers of the same name are overwritten."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        segment.file = disk.open(segment.path, create=True)
        segment.file.truncate(0)
        segment.remove_index_files()
        return segment

    @classmethod
    def create_cleaned(
        cls, disk: Disk, directory: Path, base_offset: Offset, *, index_interval_bytes: int
    ) -> tuple["Segment", Path]:
        """Create a segment for compaction in a file of the returned name, not in its place yet."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        path = segment.path.with_name(f"{segment.path.name}{CLEANED_SUFFIX}")
        segment.file = disk.open(path, create=True)
        segment.file.truncate(0)
        return segment, path

    @classmethod
    def open(
        cls, disk: Disk, directory: Path, base_offset: Offset, *, index_interval_bytes: int
    ) -> "Segment":
        """Open an existing segment without reading it; `load` or `rebuild` must follow."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        segment.file = disk.open(segment.path)
        segment.size_bytes = segment.file.size_bytes()
        return segment

    # What is known of the contents

    def _clear_indexes(self) -> None:
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._bytes_since_index = 0
        self._max_timestamp_offset = self.base_offset
        self.first_timestamp_ms: int | None = None
        self.max_timestamp_ms = NO_TIMESTAMP
        self.next_offset = self.base_offset

    def record_batch(
        self, position: int, size_bytes: int, last_offset: Offset, max_timestamp_ms: int
    ) -> None:
        """Record an appended batch; index entries are made as by Kafka's LogSegment.append."""
        if self.first_timestamp_ms is None and max_timestamp_ms > NO_TIMESTAMP:
            self.first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index > self._index_interval_bytes:
            self._offset_index.append(last_offset - self.base_offset, position)
            self._record_timestamp()
            self._bytes_since_index = 0
        self._bytes_since_index += size_bytes
        self.next_offset = Offset(last_offset + 1)

    def _record_timestamp(self) -> None:
        if self.max_timestamp_ms > NO_TIMESTAMP:
            self._time_index.append_if_later(
                self.max_timestamp_ms, self._max_timestamp_offset - self.base_offset
            )

    def load(self) -> None:
        """Load a segment that was synced: index files, then headers after the last entry.

        Raises CorruptBatch if the batches after it do not end where the file ends.
        """
        try:
            offsets = self._disk.read(self.path.with_suffix(".index"))
            self._offset_index = OffsetIndex.from_bytes(offsets, log_size_bytes=self.size_bytes)
            times = self._disk.read(self.path.with_suffix(".timeindex"))
            self._time_index = TimeIndex.from_bytes(times)
            self._walk_to_the_end()
            self._check_latest_time()
        except (FileNotFoundError, MalformedIndex):
            self.rebuild_indexes()
        except CorruptBatch:
            self.rebuild_indexes()  # was it the index that led us astray?

    def _walk_to_the_end(self) -> None:
        """Restore all that `record_batch` keeps, from the last index entry on."""
        first = read_header(self.file.read_at(0, HEADER_BYTES)) if self.size_bytes else None
        has_timestamp = first is not None and first.max_timestamp_ms > NO_TIMESTAMP
        self.first_timestamp_ms = first.max_timestamp_ms if first and has_timestamp else None
        self.max_timestamp_ms, relative_offset = self._time_index.last or (NO_TIMESTAMP, 0)
        self._max_timestamp_offset = Offset(self.base_offset + relative_offset)
        self.next_offset = self.base_offset
        self._bytes_since_index = 0
        entry = self._offset_index.floor(2**31)
        start = entry[1] if entry else 0
        indexed_offset = self.base_offset + entry[0] if entry else None
        for position, header in self._walk(start):
            if position == start and indexed_offset not in (None, header.last_offset):
                raise CorruptBatch(position, f"offset {indexed_offset}", f"{header.last_offset}")
            if header.max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = header.max_timestamp_ms
                self._max_timestamp_offset = header.last_offset
            self._bytes_since_index += header.size_bytes
            self.next_offset = header.next_offset

    def _check_latest_time(self) -> None:
        """Check that the time index knows the latest record, because retention deletes by it.

        An index file that a lost kernel had not synced may be short or empty. Raises
        MalformedIndex, CorruptBatch.
        """
        if self._time_index.last is None:
            if self.first_timestamp_ms is not None:
                raise MalformedIndex("expected the time of the latest record, found no entry")
            return
        timestamp_ms, relative_offset = self._time_index.last
        found_ms = self.find(Offset(self.base_offset + relative_offset)).header.max_timestamp_ms
        if found_ms != timestamp_ms:
            raise MalformedIndex(f"expected {found_ms} at {relative_offset}, found {timestamp_ms}")

    def _walk(self, start: int) -> Iterator[PlacedBatch]:
        """Yield batches from a position of an index, whose first offset is not known before."""
        expected = self.base_offset
        if start:
            try:
                expected = read_header(self.file.read_at(start, HEADER_BYTES)).base_offset
            except CorruptBatch as error:
                raise error.moved_to(start) from error
        return scan_batches(
            self.file,
            start=start,
            end=self.size_bytes,
            expected_offset=expected,
            verify_crc=False,
            chunk_bytes=WALK_BYTES,
        )

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes from headers alone.

        Raises CorruptBatch; all batches before that one are recorded then.
        """
        for _ in self.rebuild(verify_crc=False):
            pass

    def rebuild(
        self, *, verify_crc: bool, behind: SyncedPrefix | None = None
    ) -> Iterator[PlacedBatch]:
        """Rebuild the indexes from the batches, each recorded after the caller has seen it.

        With `behind` only from the batches after the prefix that `resume` was given.
        """
        if behind is None:
            self._clear_indexes()
        for placed in scan_batches(
            self.file,
            start=0 if behind is None else behind.size_bytes,
            end=self.size_bytes,
            expected_offset=self.next_offset,
            verify_crc=verify_crc,
        ):
            yield placed
            position, header = placed
            self.record_batch(
                position, header.size_bytes, header.last_offset, header.max_timestamp_ms
            )

    def part(self, producers: ProducerStateEntries, epoch_before: LeaderEpoch) -> SyncedPrefix:
        """Return a copy of what is known of the segment, as its synced prefix.

        Batches recorded later do not appear in it.
        """
        first_ms = self.first_timestamp_ms
        return SyncedPrefix(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size_bytes=self.size_bytes,
            bytes_since_index=self._bytes_since_index,
            max_timestamp_ms=self.max_timestamp_ms,
            max_timestamp_offset=self._max_timestamp_offset,
            first_timestamp_ms=NO_TIMESTAMP if first_ms is None else first_ms,
            offset_index=self._offset_index.copy(),
            time_index=self._time_index.copy(),
            producers=producers,
            epoch_before=epoch_before,
        )

    def resume(self, part: SyncedPrefix) -> None:
        """Restore what was known of the segment's prefix; `rebuild` behind it must follow."""
        self.next_offset = part.next_offset
        self._bytes_since_index = part.bytes_since_index
        self.max_timestamp_ms = part.max_timestamp_ms
        self._max_timestamp_offset = part.max_timestamp_offset
        has_timestamp = part.first_timestamp_ms > NO_TIMESTAMP
        self.first_timestamp_ms = part.first_timestamp_ms if has_timestamp else None
        self._offset_index = part.offset_index
        self._time_index = part.time_index

    # Finding

    def find(self, offset: Offset) -> PlacedBatch:
        """Return the batch that holds `offset`, which must be one of this segment's.

        Raises CorruptBatch if it or its neighbours are invalid.
        """
        relative_offset = offset - self.base_offset
        try:
            return self._find_from(self._offset_index.floor(relative_offset), offset)
        except CorruptBatch:
            if self._index_was_rebuilt:
                raise
        # Was it the index that led us astray? Asked once: this reads the whole segment.
        self._index_was_rebuilt = True
        self._rebuild_offset_index()
        return self._find_from(self._offset_index.floor(relative_offset), offset)

    def _find_from(self, entry: tuple[int, int] | None, offset: Offset) -> PlacedBatch:
        relative_offset, start = entry or (None, 0)
        for placed in self._walk(start):
            last_offset = placed.header.last_offset
            if relative_offset is not None and placed.position == start:
                indexed = self.base_offset + relative_offset
                if last_offset != indexed:
                    raise CorruptBatch(start, f"last offset {indexed}", f"{last_offset}")
            if last_offset >= offset:
                return placed
        raise CorruptBatch(self.size_bytes, f"a batch with offset {offset}", "the segment's end")

    def check(self, placed: PlacedBatch) -> None:
        """Check the CRC of a batch.

        Raises CorruptBatch, OSError.
        """
        _check_crc(self.file, placed.position, placed.header, b"", placed.position)

    # guard: truncation-point-is-checked (I10)
    def check_truncation(self, placed: PlacedBatch) -> None:
        """Check that a log that is truncated before this batch ends there, as the headers say.

        After the truncation nothing else would show it. Raises CorruptBatch, OSError.
        """
        try:
            self._check_truncation(placed)
        except CorruptBatch:
            if self._index_was_rebuilt:
                raise
            self._index_was_rebuilt = True
            self._rebuild_offset_index()  # was it the index that led us astray?
            self._check_truncation(placed)

    def _check_truncation(self, placed: PlacedBatch) -> None:
        position, next_offset = placed.position, placed.header.base_offset
        kept = self._over_the_same_file(position)
        kept._offset_index, kept._time_index = self._offset_index.copy(), self._time_index.copy()
        kept._truncate_indexes(next_offset)
        kept._walk_to_the_end()
        if kept.next_offset != next_offset:
            raise CorruptBatch(position, f"offset {next_offset}", f"{kept.next_offset}")

    def valid_prefix(self, offset: Offset) -> tuple[int, Offset]:
        """Return (position, next offset) after the last batch of the valid prefix before `offset`.

        Each batch up to there passes its CRC. Reads all of that; indexes are not used.
        """
        position, next_offset = 0, self.base_offset
        with contextlib.suppress(CorruptBatch), unreadable_is_corrupt():
            for placed in scan_batches(
                self.file,
                start=0,
                end=self.size_bytes,
                expected_offset=self.base_offset,
                verify_crc=True,
            ):
                if placed.header.last_offset >= offset:
                    break
                position = placed.position + placed.header.size_bytes
                next_offset = placed.header.next_offset
        return position, next_offset  # what comes from there on is not sound, or not asked for

    def _rebuild_offset_index(self) -> None:
        """Rebuild the offset index; change nothing if the segment itself is corrupt.

        Raises CorruptBatch then.
        """
        fresh = self._over_the_same_file(self.size_bytes)
        fresh.rebuild_indexes()
        self._offset_index = fresh._offset_index

    def _over_the_same_file(self, size_bytes: int) -> "Segment":
        other = Segment(
            self._disk,
            self.path.parent,
            self.base_offset,
            index_interval_bytes=self._index_interval_bytes,
        )
        other.file, other.size_bytes = self.file, size_bytes
        return other

    def headers_from(self, offset: Offset) -> Iterator[BatchHeader]:
        """Yield the headers of all batches that end at `offset` or above.

        Raises CorruptBatch where headers end.
        """
        entry = self._offset_index.floor(max(0, offset - self.base_offset))
        for placed in self._walk(entry[1] if entry else 0):
            if placed.header.last_offset >= offset:
                yield placed.header

    def batches_reaching(self, timestamp_ms: int) -> Iterator[PlacedBatch]:
        """Yield the batches whose largest timestamp reaches `timestamp_ms`, in offset order."""
        if timestamp_ms > self.max_timestamp_ms:
            return
        floor = self._time_index.floor(timestamp_ms)
        start = 0 if floor is None else self.find(Offset(self.base_offset + floor)).position
        for placed in self._walk(start):
            if placed.header.max_timestamp_ms >= timestamp_ms:
                yield placed

    # Changing

    def write(self, buffers: Sequence[Buffer], size_bytes: int) -> int:
        """Write all buffers after the last byte that counts; return the position.

        Changes nothing in memory: only a write in full counts (S10). Raises OSError; the caller
        then truncates.
        """
        position = self.size_bytes
        written = 0
        for first in range(0, len(buffers), MAX_BUFFERS_PER_WRITE):
            group = buffers[first : first + MAX_BUFFERS_PER_WRITE]
            due = sum(map(len, group)) if len(buffers) > MAX_BUFFERS_PER_WRITE else size_bytes
            done = self.file.write_at(position + written, group)
            if done != due:
                write_all(self.file, position + written + done, b"".join(group)[done:])
            written += due
        return position

    def truncate(
        self, position: int, next_offset: Offset, *, behind: SyncedPrefix | None = None
    ) -> None:
        """Truncate the file at a batch boundary and forget what lay behind.

        The caller has checked what stays. `behind` is a prefix that stays. Raises OSError.
        """
        kept = None if behind is None else SYNCED_SUFFIX
        self.remove_index_files(kept)  # they tell of batches that go; written anew when sealed
        self.file.truncate(position)
        self.size_bytes = position
        self._truncate_indexes(next_offset)
        try:
            self._walk_to_the_end()
        except CorruptBatch:
            self.rebuild_indexes()  # it was the index that led us astray

    def _truncate_indexes(self, next_offset: Offset) -> None:
        self._offset_index.truncate(next_offset - self.base_offset)
        self._time_index.truncate(next_offset - self.base_offset)

    def newest_ms(self) -> int:
        """Return the largest timestamp; without timestamps, the time of the file's last write."""
        if self.max_timestamp_ms > NO_TIMESTAMP:
            return self.max_timestamp_ms
        return int(self._disk.changed_at_s(self.path) * 1000)

    def write_indexes(self) -> None:
        """Write the indexes of a segment that is sealed or closed, without a sync.

        `load` rebuilds what does not fit. Raises OSError.
        """
        self._record_timestamp()
        for suffix, data in (
            (".index", self._offset_index.to_bytes()),
            (".timeindex", self._time_index.to_bytes()),
        ):
            self._disk.write_atomically(self.path.with_suffix(suffix), data, durable=False)

    def remove_index_files(self, kept: str | None = None) -> None:
        for suffix in INDEX_SUFFIXES:
            if suffix != kept:
                self._disk.remove(self.path.with_suffix(suffix))

    def retire(self) -> None:
        """Rename the file, which is deleted later off the loop.

        Unlinking a cached gigabyte takes 170 ms.
        """
        self.remove_index_files()
        self._disk.rename(self.path, self.path.with_name(self.path.name + ".deleted"))


def write_all(file: DiskFile, position: int, data: Buffer) -> None:
    """Write all of `data`; a short write is continued, which brings out its reason.

    It is often the first half of "no space". Raises OSError.
    """
    rest = memoryview(data)
    while rest:
        count = file.write_at(position, [rest])
        if count == 0:
            raise OSError(f"wrote nothing of {len(rest)} bytes at byte {position}")
        position, rest = position + count, rest[count:]


def log_path(directory: Path, base_offset: Offset) -> Path:
    return directory / f"{base_offset:020d}.log"


def base_offsets_of(names: Iterable[str]) -> list[Offset]:
    """Return the base offsets of the segments among a log's file names, in order."""
    return sorted(Offset(int(match[1])) for name in names if (match := _SEGMENT_NAME.match(name)))
