"""The log of one partition: segments, leader epochs, and what moves together when they change.

One thread calls it (the broker's loop), except `flush`, which a worker runs: the append path never
syncs. The log end and everything else in memory move only after a write returned in full; a failed
or short one is taken back (S10). After an I/O error other than a full disk it refuses every further
write. It knows no high watermark: the caller says up to where to read (I1 is the caller's too).
"""

import errno
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_protocol.ids import LeaderEpoch, Offset, TopicId

from tidemark_broker.storage import checkpoints
from tidemark_broker.storage.disk import Buffer, Disk
from tidemark_broker.storage.errors import (
    CorruptBatch,
    DiskFull,
    InvalidBatch,
    OffsetGap,
    OffsetOutOfRange,
    StorageFailed,
    UnsupportedCompression,
)
from tidemark_broker.storage.indexes import MAX_RELATIVE_OFFSET
from tidemark_broker.storage.leader_epochs import LeaderEpochs
from tidemark_broker.storage.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    PREFIX,
    Batch,
    check_crc,
    read_header,
    read_records,
    split_batches,
)
from tidemark_broker.storage.recovery import RecoveryReport, load_segments
from tidemark_broker.storage.segment import Segment

_DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
_MAX_READ_HINTS = 64

Placed = tuple[int, Offset, int]  # size in bytes, last offset, largest timestamp


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Of one log; Kafka's names and defaults where it has them."""

    segment_bytes: int = 1024 * 1024 * 1024  # a segment is rolled before it grows past this
    segment_ms: int = 7 * 24 * 3600 * 1000  # by record timestamps, from the segment's first batch
    index_interval_bytes: int = 4096  # bytes of log between two index entries
    max_batch_bytes: int = 1_048_588  # what a producer may send; followers take what leaders have
    allow_network_filesystem: bool = False  # for tests on odd machines; never with two brokers


@dataclass(frozen=True, slots=True)
class AppendedRange:
    first_offset: Offset
    last_offset: Offset


class PartitionLog:
    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        topic: str,
        topic_id: TopicId,
        partition: int,
        settings: LogSettings,
        recovery_point: Offset | None = None,
        log_start_offset: Offset = Offset(0),
    ) -> None:
        """Opens the log in an existing directory, recovering it from `recovery_point` on.

        `recovery_point` None says that it was stopped cleanly. Raises StorageFailed, DiskFull.
        """
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self._disk = disk
        self._failure = ""
        self._epochs_path = directory / checkpoints.LEADER_EPOCHS
        self._epochs_to_write = False
        self._epochs_to_sync = False
        self._directory_to_sync = False
        self._position_after: dict[Offset, int] = {}  # where the last reads ended
        self._corrupt_offsets: set[Offset] = set()
        self._flush_lock = threading.Lock()
        self._truncations = 0
        try:
            self._load(recovery_point, log_start_offset)
        except OSError as error:
            raise self._failed_by(error, "open") from error

    def _load(self, recovery_point: Offset | None, log_start_offset: Offset) -> None:
        self._epochs, known = self._read_epochs()
        stored = self._epochs.entries if known else None
        loaded = load_segments(
            self._disk,
            self.directory,
            recovery_point=recovery_point,
            epochs=self._epochs,
            epochs_known=known,
            index_interval_bytes=self.settings.index_interval_bytes,
        )
        self._segments = loaded.segments
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self._directory_to_sync = True
        self.recovery: RecoveryReport = loaded.report
        self.log_end_offset = self._active.next_offset
        self.log_start_offset = Offset(
            min(max(log_start_offset, self._base_offsets[0]), self.log_end_offset)
        )
        clean = self.log_end_offset if recovery_point is None else recovery_point
        self.recovery_point = Offset(min(clean, self.log_end_offset))
        self._epochs_to_write = self._epochs.entries != stored
        self._epochs_to_sync = True
        self._write_epochs()

    def _read_epochs(self) -> tuple[LeaderEpochs, bool]:
        """The checkpoint, and whether it can be believed: an empty one says nothing."""
        try:
            entries = checkpoints.decode_epochs(self._disk.read(self._epochs_path))
        except (FileNotFoundError, checkpoints.MalformedFile):
            entries = []
        return LeaderEpochs(entries), bool(entries)

    # What is known

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self._epochs.latest_epoch

    @property
    def epoch_entries(self) -> tuple[tuple[LeaderEpoch, Offset], ...]:
        return self._epochs.entries

    @property
    def failure(self) -> str:
        """Why this log refuses writes; empty while it takes them."""
        return self._failure

    def end_offset_for(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_start_offset(self, epoch: LeaderEpoch) -> Offset | None:
        return self._epochs.start_offset_of(epoch)

    # Leader epochs

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """On becoming leader, before any append. On the disk at once, synced by the next flush.

        Raises ValueError if it would contradict batches in the log (I5), DiskFull, StorageFailed.
        """
        self._ensure_writable()
        if start_offset > self.log_end_offset or epoch < self.latest_epoch:
            raise ValueError(
                f"epoch {epoch} at {start_offset}: the log ends at {self.log_end_offset} "
                f"in epoch {self.latest_epoch}"
            )
        self._assign(epoch, start_offset)

    def _assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        before = self._epochs.entries
        if not self._epochs.assign(epoch, start_offset):
            return
        self._epochs_to_write = True
        try:
            self._write_epochs()
        except OSError as error:
            self._epochs = LeaderEpochs(before)
            raise self._failed_by(error, "write leader epochs") from error

    def _write_epochs(self) -> None:
        """Not synced: a process that is killed loses nothing, and a lost kernel derives them."""
        if self._epochs_to_write:
            data = checkpoints.encode_epochs(self._epochs.entries)
            self._disk.write_atomically(self._epochs_path, data, durable=False)
            self._epochs_to_write = False
            self._epochs_to_sync = True

    # Appending

    def append_as_leader(
        self, batches: Sequence[Batch], *, leader_epoch: LeaderEpoch
    ) -> AppendedRange:
        """Batches as `split_batches` checked them, at the log's end, in one write.

        Raises InvalidBatch (nothing written), DiskFull, StorageFailed.
        """
        self._ensure_writable()
        first_offset = offset = self.log_end_offset
        buffers: list[Buffer] = []
        placed: list[Placed] = []
        total_bytes = 0
        for header, data in batches:
            if header.record_count != header.last_offset_delta + 1 or header.is_control:
                raise InvalidBatch(
                    total_bytes,
                    f"{header.last_offset_delta + 1} records, no control batch",
                    f"{header.record_count}{', control' if header.is_control else ''}",
                )
            buffers.append(PREFIX.pack(offset, header.size_bytes - LENGTH_END, leader_epoch))
            buffers.append(data[PREFIX.size :])
            offset = Offset(offset + header.record_count)
            placed.append((header.size_bytes, Offset(offset - 1), header.max_timestamp_ms))
            total_bytes += header.size_bytes
        if not placed:
            raise ValueError("nothing to append: expected at least one batch")
        if leader_epoch != self._epochs.latest_epoch:
            self.assign_epoch(leader_epoch, first_offset)
        self._append(buffers, total_bytes, placed)
        return AppendedRange(first_offset, Offset(offset - 1))

    def append_as_follower(self, data: memoryview) -> AppendedRange | None:
        """Batches as a leader stored them, offsets and epochs kept; None if there are none.

        All or nothing. Raises CorruptBatch, OffsetGap (nothing written), DiskFull, StorageFailed.
        """
        self._ensure_writable()
        batches = split_batches(data, max_batch_bytes=len(data))
        if not batches:
            return None
        expected = self.log_end_offset
        epoch = self._epoch_of_last_batch()
        placed: list[Placed] = []
        new_epochs: list[tuple[LeaderEpoch, Offset]] = []
        for header, batch in batches:
            if header.base_offset != expected:
                raise OffsetGap(expected, header.base_offset)
            if header.partition_leader_epoch < max(0, epoch):  # I5
                raise CorruptBatch(
                    0,
                    f"leader epoch {max(0, epoch)} or later at offset {header.base_offset}",
                    f"{header.partition_leader_epoch}",
                )
            if header.partition_leader_epoch != epoch:
                epoch = header.partition_leader_epoch
                new_epochs.append((epoch, header.base_offset))
            placed.append((len(batch), header.last_offset, header.max_timestamp_ms))
            expected = header.next_offset
        self._append_with_epochs(data, placed, new_epochs)
        return AppendedRange(batches[0].header.base_offset, Offset(expected - 1))

    def _epoch_of_last_batch(self) -> LeaderEpoch:
        return self._epochs.epoch_at(Offset(self.log_end_offset - 1))

    def _append_with_epochs(
        self,
        data: memoryview,
        placed: Sequence[Placed],
        new_epochs: Sequence[tuple[LeaderEpoch, Offset]],
    ) -> None:
        """Epochs are written before their batches: recovery counts on it."""
        before = self._epochs.entries
        for epoch, start_offset in new_epochs:
            self._epochs_to_write |= self._epochs.assign(epoch, start_offset)
        try:
            self._append([data], len(data), placed)
        except (DiskFull, StorageFailed):
            if self._epochs.entries != before:
                self._epochs = LeaderEpochs(before)
                self._epochs_to_write = True  # S10: before the next append
            raise

    def _append(self, buffers: Sequence[Buffer], size_bytes: int, placed: Sequence[Placed]) -> None:
        try:
            self._write_epochs()
            segment = self._segment_for(size_bytes, placed)
        except OSError as error:
            raise self._failed_by(error, "prepare an append") from error
        try:
            position = segment.write(buffers, size_bytes)
        except OSError as error:
            self._take_back(segment)
            raise self._failed_by(error, "append") from error
        for batch_bytes, last_offset, max_timestamp_ms in placed:
            segment.note_batch(position, batch_bytes, last_offset, max_timestamp_ms)
            position += batch_bytes
        segment.size_bytes = position
        self.log_end_offset = segment.next_offset

    def _take_back(self, segment: Segment) -> None:
        """S10. The next write would overwrite the torn bytes anyway, but a reopen would see them."""
        try:
            segment.file.truncate(segment.size_bytes)
        except OSError as error:
            self._failure = f"cut a failed append off {segment.path}: {error}"

    def _segment_for(self, size_bytes: int, placed: Sequence[Placed]) -> Segment:
        """The active segment, or a new one where Kafka would roll. Raises OSError."""
        active = self._active
        if active.size_bytes == 0:
            return active
        oldest_ms = active.first_timestamp_ms
        is_too_large = active.size_bytes + size_bytes > self.settings.segment_bytes
        is_too_old = oldest_ms is not None and placed[-1][2] - oldest_ms > self.settings.segment_ms
        is_too_long = placed[-1][1] - active.base_offset > MAX_RELATIVE_OFFSET
        if not (is_too_large or is_too_old or is_too_long):
            return active
        active.write_indexes()
        segment = self._create_segment(self.log_end_offset)
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        return segment

    def _create_segment(self, base_offset: Offset) -> Segment:
        self._directory_to_sync = True  # flush syncs the entry before the point moves past it
        return Segment.create(
            self._disk,
            self.directory,
            base_offset,
            index_interval_bytes=self.settings.index_interval_bytes,
        )

    # Reading

    def read(self, offset: Offset, *, max_bytes: int, end_offset: Offset) -> bytes:
        """Whole batches of one segment, from the one that holds `offset`, all below `end_offset`.

        The first comes whole even if larger than `max_bytes`. Headers are checked (magic, lengths,
        offsets, epochs), the CRC is not: readers do that. Raises OffsetOutOfRange, CorruptBatch,
        StorageFailed.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= min(end_offset, self.log_end_offset):
            return b""
        segment = self._segments[bisect_right(self._base_offsets, offset) - 1]
        try:
            position = self._position_after.get(offset)
            if position is None:
                position = segment.position_of(offset)
            data = segment.file.read_at(position, min(max_bytes, segment.size_bytes - position))
            if len(data) < HEADER_BYTES:
                data = segment.file.read_at(position, HEADER_BYTES)
            size_bytes = read_header(data).size_bytes
            if size_bytes > segment.size_bytes - position:
                raise CorruptBatch(position, "a batch within its segment", f"{size_bytes} bytes")
            if size_bytes > len(data):
                data = segment.file.read_at(position, size_bytes)
        except OSError as error:
            raise self._failed_by(error, "read") from error
        return self._whole_batches(segment, data, position, offset, end_offset)

    def _whole_batches(
        self, segment: Segment, data: bytes, position: int, offset: Offset, end_offset: Offset
    ) -> bytes:
        """Cut where the next batch is cut, not readable yet, or corrupt; corrupt first: raises."""
        end = 0
        expected: Offset | None = None
        while end + HEADER_BYTES <= len(data):
            try:
                header = read_header(data, end)
                base_offset = header.base_offset
                if expected is None and not base_offset <= offset <= header.last_offset:
                    raise CorruptBatch(position, f"offset {offset}", f"base {base_offset}")
                if expected is not None and base_offset != expected:
                    raise CorruptBatch(position, f"offset {expected}", f"offset {base_offset}")
                epoch = self._epochs.epoch_at(base_offset)
                if header.partition_leader_epoch != epoch:
                    found = f"leader epoch {header.partition_leader_epoch}"
                    raise CorruptBatch(position + end, f"leader epoch {epoch}", found)
                if base_offset in self._corrupt_offsets:
                    raise CorruptBatch(position + end, "the CRC of its header", "another one")
            except CorruptBatch:
                if end:
                    break
                raise
            if header.last_offset >= end_offset or end + header.size_bytes > len(data):
                break
            end += header.size_bytes
            expected = header.next_offset
        if expected is not None and expected < segment.next_offset:
            if len(self._position_after) >= _MAX_READ_HINTS:
                self._position_after.clear()
            self._position_after[expected] = position + end
        return data if end == len(data) else data[:end]

    def verify(self, offset: Offset, *, max_bytes: int, end_offset: Offset) -> Offset:
        """Checks the CRC of what `read` would return; the offset after it.

        Raises CorruptBatch, and from then on that batch is never read again (I10).
        """
        data = memoryview(self.read(offset, max_bytes=max_bytes, end_offset=end_offset))
        position = 0
        next_offset = offset
        while position < len(data):
            header = read_header(data, position)
            try:
                check_crc(header, data[position : position + header.size_bytes], position)
            except CorruptBatch:
                self._corrupt_offsets.add(header.base_offset)
                raise
            position += header.size_bytes
            next_offset = header.next_offset
        return next_offset

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """(offset, timestamp) of the first record not earlier; None if all are.

        In batches that cannot be opened here, the first offset of the batch: never too late a one.
        Raises CorruptBatch, StorageFailed.
        """
        for segment in self._segments:
            if segment.next_offset <= self.log_start_offset:
                continue
            try:
                placed = segment.first_batch_at_or_after(timestamp_ms)
                if placed is None:
                    continue
                position, header = placed
                batch = memoryview(segment.file.read_at(position, header.size_bytes))
            except OSError as error:
                raise self._failed_by(error, "look up a timestamp") from error
            check_crc(header, batch, position)
            try:
                for record in read_records(batch):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start_offset:
                        return record.offset, record.timestamp_ms
            except UnsupportedCompression:
                offset = max(header.base_offset, self.log_start_offset)
                return offset, header.max_timestamp_ms
        return None

    # Truncating

    def truncate_to(self, offset: Offset) -> int:
        """Removes batches that hold `offset` or more, and epochs that start there. Records removed.

        A batch is never split, so the log may end below `offset`. Checkpoint the recovery points
        soon after. Raises StorageFailed.
        """
        self._ensure_writable()
        if offset < self.log_start_offset:
            return self.truncate_fully_and_start_at(offset)
        old_end_offset = self.log_end_offset
        try:
            if offset < old_end_offset:
                self._cut_segments(offset)
            if self._epochs.truncate_from_end(min(offset, self.log_end_offset)):
                self._epochs_to_write = True
            self._write_epochs_if_possible()
        except OSError as error:
            raise self._broken_by(error, "truncate") from error
        return old_end_offset - self.log_end_offset

    def _cut_segments(self, offset: Offset) -> None:
        self._forget_positions(offset)
        while len(self._segments) > 1 and self._active.base_offset >= offset:
            self._active.retire()
            self._segments.pop()
            self._base_offsets.pop()
        segment = self._active
        if offset < segment.next_offset:
            position = segment.position_of(offset)
            kept = segment.file.read_at(position, HEADER_BYTES)
            next_offset = read_header(kept).base_offset
            segment.truncate(position, next_offset)
        self.log_end_offset = segment.next_offset
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        with self._flush_lock:
            self.recovery_point = min(self.recovery_point, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> int:
        """Drops everything; the log is empty and begins at `offset`. Records removed."""
        self._ensure_writable()
        removed = self.log_end_offset - self.log_start_offset
        self._forget_positions(Offset(0))
        try:
            for segment in reversed(self._segments):
                segment.retire()
            self._segments = [self._create_segment(offset)]
            self._epochs_to_write |= self._epochs.truncate_from_end(Offset(0))
            self._write_epochs_if_possible()
        except OSError as error:
            raise self._broken_by(error, "truncate") from error
        self._base_offsets = [offset]
        self.log_start_offset = self.log_end_offset = offset
        with self._flush_lock:
            self.recovery_point = min(self.recovery_point, offset)
        return removed

    def _forget_positions(self, offset: Offset) -> None:
        with self._flush_lock:
            self._truncations += 1  # a flush under way must not move the recovery point
        self._position_after.clear()
        self._corrupt_offsets = {known for known in self._corrupt_offsets if known < offset}

    def _write_epochs_if_possible(self) -> None:
        """A full disk must not stop a truncation; no append follows before they are written."""
        try:
            self._write_epochs()
        except OSError as error:
            if error.errno not in _DISK_FULL_ERRORS:
                raise

    # Making durable

    def flush(self) -> None:
        """Syncs all below the log end at the call, then moves the recovery point. In a worker.

        Raises StorageFailed; after that nothing more is written (S8).
        """
        self._ensure_writable()
        with self._flush_lock:
            truncations = self._truncations
            end_offset = self.log_end_offset
            unsynced = [s for s in self._segments if s.next_offset > self.recovery_point]
            sync_directory, self._directory_to_sync = self._directory_to_sync, False
            sync_epochs, self._epochs_to_sync = self._epochs_to_sync, False
        try:
            for segment in unsynced:
                segment.file.sync()
            if sync_epochs and self._disk.exists(self._epochs_path):
                self._disk.sync_file(self._epochs_path)
            if sync_directory or sync_epochs:
                self._disk.sync_directory(self.directory)
        except OSError as error:
            raise self._broken_by(error, "flush") from error
        with self._flush_lock:
            if self._truncations == truncations:
                self.recovery_point = max(self.recovery_point, end_offset)

    def close(self) -> None:
        """Index files and epochs written, everything synced: what a clean stop needs.

        Raises DiskFull, StorageFailed; the log counts as not cleanly closed then.
        """
        self._ensure_writable()
        try:
            self._write_epochs()
            self._active.write_indexes()
        except OSError as error:
            raise self._failed_by(error, "close") from error
        self.flush()
        self._failure = "closed"

    # Failing

    def _ensure_writable(self) -> None:
        if self._failure:
            raise StorageFailed(
                f"{self.topic}-{self.partition} in {self.directory} takes no more writes: "
                f"{self._failure}"
            )

    def _failed_by(self, error: OSError, action: str) -> DiskFull | StorageFailed:
        if error.errno in _DISK_FULL_ERRORS and not self._failure:
            return DiskFull(f"cannot {action} in {self.directory}: {error}; nothing was written")
        return self._broken_by(error, action)

    def _broken_by(self, error: OSError, action: str) -> StorageFailed:
        self._failure = self._failure or f"could not {action}: {error}"
        return StorageFailed(f"cannot {action} in {self.directory}: {error}")
