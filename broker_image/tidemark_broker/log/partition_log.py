"""Store one partition's log: its segments, its leader epochs, and what changes together with them.

One thread calls it (the broker's loop), except `flush`, which a worker runs: the append path never
syncs. The log end and everything else in memory change only after a write returned in full; a
failed or short write is undone (S10). After an I/O error other than a full disk it rejects every
further write. It knows no high watermark: the caller says up to where to read (I1 is the caller's
too).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_protocol.ids import LeaderEpoch, Offset, TopicId

from tidemark_broker.kafka_wire.records.record_batch import Batch, split_batches
from tidemark_broker.log.appending import (
    AppendedRange,
    PreparedAppend,
    holds_inside,
    needs_rolling_update,
    prepare_as_follower,
    prepare_as_leader,
    within_reach,
)
from tidemark_broker.log.cleaner import CleanedSegments
from tidemark_broker.log.corruption_marker import CorruptionMarker
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import DiskFull, IoFailure, OffsetOutOfRange, StorageFailed
from tidemark_broker.log.leader_epoch_cache import EpochCheckpoint
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.producer_state_entry import ProducerStateEntries
from tidemark_broker.log.producer_state_manager import ProducerStateManager
from tidemark_broker.log.reading import LogReader
from tidemark_broker.log.recovery import CLEANLY_STOPPED, PreviousRun, RecoveryReport, load_segments
from tidemark_broker.log.recovery_point import RecoveryPoint
from tidemark_broker.log.segment import Segment
from tidemark_broker.log.segment_list import SegmentList
from tidemark_broker.log.segment_swap import SegmentSwap
from tidemark_broker.log.synced_prefix_files import PendingPrefix, SyncedPrefixFiles
from tidemark_broker.log.timestamp_lookup import first_record_from

__all__ = ["AppendedRange", "LogSettings", "PartitionLog"]


def _write_now(write: Callable[..., Any], *given: Any) -> Any:
    return write(*given)


def _nothing(offset: Offset) -> None:
    return None


@dataclass(frozen=True, slots=True)
class LogWrites:
    """How a log's volume writes for it. `data` and `before_truncation` may raise OSError."""

    small: Disk  # checkpoints and marks, which a full volume needs too
    data: Callable[..., Any] = _write_now  # runs what grows a file
    before_truncation: Callable[[Offset], None] = _nothing


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
        previous: PreviousRun = CLEANLY_STOPPED,
        writes: LogWrites | None = None,
    ) -> None:
        """Open the log in an existing directory and recover it from its recovery point on.

        Raises StorageFailed, DiskFull.
        """
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self._disk = disk
        writes = writes or LogWrites(disk)
        self.small_writes = writes.small
        self.write_data = writes.data
        self._before_truncation = writes.before_truncation
        self._io_failure = IoFailure(directory)
        self.is_removed = False
        self._reader = LogReader()
        self.swaps = SegmentSwap(disk, directory)
        self.appended_bytes = 0  # since it was opened
        # Below them every record was compacted once, and no LZ4 frame has linked blocks.
        self.cleaned_to = self.frames_checked_to = Offset(0)
        try:
            self.corruption_marker = CorruptionMarker(writes.small, directory)
            self._load(previous)
        except OSError as error:
            raise self._io_failure.failed_by(error, "open") from error

    def _load(self, previous: PreviousRun) -> None:
        self._checkpoint = EpochCheckpoint(self._disk, self.directory)
        loaded = load_segments(
            self._disk,
            self.directory,
            previous=previous,
            epochs=self._checkpoint.epochs,
            epochs_known=self._checkpoint.is_known,
            index_interval_bytes=self.settings.index_interval_bytes,
        )
        self._synced_prefixes = SyncedPrefixFiles(self._disk, self.directory, loaded.part)
        self._segments = SegmentList(self._disk, self.directory, loaded.segments)
        self.recovery: RecoveryReport = loaded.report
        self.log_end_offset = self._segments.active.next_offset
        end, point = self.log_end_offset, previous.recovery_point
        first_offset = self._segments[0].base_offset
        self.log_start_offset = min(max(previous.log_start_offset, first_offset), end)
        synced_to = end if point is None else min(point, end)
        self._durability = RecoveryPoint(self._disk, self.directory, synced_to, previous.is_synced)
        self._checkpoint.is_written = False  # recovery may have completed or cut it
        self._checkpoint.write_if_possible()
        self._producers = ProducerStateManager(self._disk, self._checkpoint)
        self._producers.restore(self._segments, self.log_start_offset, loaded.part)
        self.corruption_marker.remove_if_readable(loaded, self._checkpoint.epochs)

    # What is known

    @property
    def segments(self) -> SegmentList:
        """Return the segments in order, the active one last. Do not change them."""
        return self._segments

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def recovery_point(self) -> Offset:
        """Return the offset below which everything is durable."""
        return self._durability.recovery_point

    @property
    def owes_truncation(self) -> bool:
        """Return whether a lost kernel may bring back truncated records past the recovery point."""
        return self._durability.owes_truncation()

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self._checkpoint.epochs.latest_epoch

    @property
    def producers(self) -> ProducerStateEntries:
        """Return the state of each producer id as of the log's end."""
        return self._producers.states

    @property
    def epoch_entries(self) -> tuple[tuple[LeaderEpoch, Offset], ...]:
        return self._checkpoint.epochs.entries

    @property
    def failure(self) -> str:
        """Return why this log rejects writes; "" while it accepts them."""
        return self._io_failure.reason

    @property
    def first_epoch(self) -> LeaderEpoch:
        return self._checkpoint.epochs.first_epoch

    def end_offset_for(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        return self._checkpoint.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_start_offset(self, epoch: LeaderEpoch) -> Offset | None:
        return self._checkpoint.epochs.start_offset_of(epoch)

    # Leader epochs

    # guard: empty-epoch-is-stored (I5)
    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Add the epoch of a new leader, before any append; the next flush syncs it.

        Raises ValueError if it would contradict batches in the log (I5), DiskFull, StorageFailed.
        """
        self._io_failure.ensure_writable()
        if not self._checkpoint.epochs.may_lead_in(epoch, start_offset, self.log_end_offset):
            raise ValueError(
                f"epoch {epoch} from {start_offset}: the log ends at {self.log_end_offset} "
                f"in epoch {self.latest_epoch}"
            )
        before = self.epoch_entries
        self._checkpoint.assign(epoch, start_offset)
        try:
            self._write_epochs()
        except OSError as error:
            self._checkpoint.restore(before)
            raise self._io_failure.failed_by(error, "write leader epochs") from error

    def _write_epochs(self) -> None:
        if not self._checkpoint.is_written and self._checkpoint.write():
            self._durability.record_epochs_written()

    # Appending

    def append_as_leader(
        self, batches: Sequence[Batch], *, leader_epoch: LeaderEpoch
    ) -> AppendedRange:
        """Append batches that `split_batches` checked at the log's end, in one write.

        Raises InvalidBatch (nothing written), DiskFull, StorageFailed; ValueError as `assign_epoch`
        does, and if there is no batch.
        """
        self._io_failure.ensure_writable()
        first_offset = self.log_end_offset
        append = prepare_as_leader(batches, log_end_offset=first_offset, leader_epoch=leader_epoch)
        if leader_epoch != self.latest_epoch:
            self.assign_epoch(leader_epoch, first_offset)
        self._append(append)
        return AppendedRange(first_offset, append.last_offset)

    def append_as_follower(self, data: memoryview) -> AppendedRange | None:
        """Append batches with their leader's offsets and epochs; return None if there are none.

        All or nothing. Raises CorruptBatch, OffsetGap (nothing written), DiskFull, StorageFailed.
        """
        self._io_failure.ensure_writable()
        batches: Sequence[Batch] = split_batches(data, max_batch_bytes=len(data))
        if not batches:
            return None
        first_offset = self.log_end_offset
        data, batches = within_reach(data, batches, first_offset)
        has_nothing = self._segments[0].base_offset == first_offset
        if has_nothing and holds_inside(batches[0].header, first_offset):
            return self._begin_with(batches[0].header.base_offset, data)
        last_epoch = self._checkpoint.epochs.epoch_at(Offset(first_offset - 1))
        append = prepare_as_follower(
            data, batches, log_end_offset=first_offset, last_batch_epoch=last_epoch
        )
        before = self._checkpoint.take_up(append.new_epochs, first_offset)
        try:
            self._append(append)
        except (DiskFull, StorageFailed):
            if before is not None:
                self._checkpoint.restore(before)  # S10
            raise
        return AppendedRange(first_offset, append.last_offset)

    def _begin_with(self, base_offset: Offset, data: memoryview) -> AppendedRange | None:
        """Start the log with a batch that holds its start offset inside (KAFKA-6975).

        Records were deleted up to an offset inside a batch. Batches are stored and fetched
        complete, so the log begins with that one, and its start offset stays.
        """
        start_offset = self.log_start_offset
        try:
            self.truncate_fully_and_start_at(base_offset)
            return self.append_as_follower(data)
        finally:
            self.log_start_offset = start_offset  # I1, whatever fails: the watermark is there
            self.log_end_offset = max(self.log_end_offset, start_offset)
            if self.log_end_offset == start_offset and not self.failure:
                self.truncate_fully_and_start_at(start_offset)

    def _append(self, append: PreparedAppend) -> None:
        try:
            self._write_epochs()  # before their batches: recovery counts on it
            segment = self._segment_for(append)
        except OSError as error:
            raise self._io_failure.failed_by(error, "prepare an append") from error
        try:
            position = self.write_data(segment.write, append.buffers, append.size_bytes)
        except OSError as error:
            self._take_back(segment)
            raise self._io_failure.failed_by(error, "append") from error
        for size_bytes, last_offset, max_timestamp_ms in append.batches:
            segment.record_batch(position, size_bytes, last_offset, max_timestamp_ms)
            position += size_bytes
        segment.size_bytes = position
        self.log_end_offset = segment.next_offset
        self.appended_bytes += append.size_bytes
        if append.producer_batches:
            self.producers.note(append.producer_batches)  # S10: not before the write

    # guard: failed-append-is-rolled-back (S10)
    def _take_back(self, segment: Segment) -> None:
        """Undo a failed write (S10).

        The next write would overwrite the incomplete bytes, but a restart would see them.
        """
        try:
            segment.file.truncate(segment.size_bytes)
        except OSError as error:
            self._io_failure.note(f"could not truncate a failed append in {segment.path}: {error}")

    def _segment_for(self, append: PreparedAppend) -> Segment:
        """Return the active segment, or a new one where Kafka would roll.

        Raises OSError.
        """
        active = self._segments.active
        return self._roll() if needs_rolling_update(active, append, self.settings) else active

    def _roll(self) -> Segment:
        self._segments.active.write_indexes()
        return self._begin_segment()

    def _begin_segment(self) -> Segment:
        segment = self._segments.begin(
            self.log_end_offset, index_interval_bytes=self.settings.index_interval_bytes
        )
        self._durability.record_files_created()
        self._producers.write_snapshot(self._segments)
        return segment

    # Reading

    def read(self, offset: Offset, *, max_bytes: int, end_offset: Offset) -> bytes:
        """Return complete batches of one segment, from the one with `offset`, below `end_offset`.

        The first one is complete even if larger than `max_bytes`. All of them are valid (I10).
        Raises OffsetOutOfRange, CorruptBatch, StorageFailed.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= min(end_offset, self.log_end_offset):
            return b""
        try:
            segment, epochs = self._segments.holding(offset), self._checkpoint.epochs
            return self._reader.read(
                segment, offset, max_bytes=max_bytes, end_offset=end_offset, epochs=epochs
            )
        except OSError as error:
            raise self._io_failure.broken_by(error, "read") from error

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record not earlier, or None if all are earlier.

        For a batch that cannot be decompressed here it is the batch's first offset. Raises
        LocalLogCorrupt, StorageFailed.
        """
        with self._io_failure.breaking("look up a timestamp"):
            return first_record_from(
                self._segments, timestamp_ms, log_start_offset=self.log_start_offset
            )

    # Retention

    def advance_log_start(self, offset: Offset) -> bool:
        """Advance the log start offset; return whether it changed.

        The caller knows that the offset is committed, and checkpoints log starts before
        `delete_segments_below`.
        """
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset, f"{offset} is past {self.log_end_offset}"  # I1
        self.log_start_offset = offset
        return True

    def delete_segments_below(self, durable_start_offset: Offset) -> int:
        """Delete the segments that end at or below a checkpointed log start; return how many.

        A crash in between finds in the checkpoint that a missing beginning is no corruption. Raises
        DiskFull, StorageFailed.
        """
        self._io_failure.ensure_writable()
        count = self._segments.count_below(durable_start_offset)
        if self._segments.active.size_bytes == 0:
            count = min(count, len(self._segments) - 1)  # a new one would have its name
        if count == 0:
            return 0
        try:
            if count == len(self._segments):
                self._begin_segment()
            retained_from = self._segments[count].base_offset
            if not self._producers.may_lose_below(retained_from, self._segments, self.small_writes):
                return 0  # it goes after the next flush
            self._invalidate_copies()
            self._segments.drop_first(count)
            self._reader.forget_places()  # whose open files would keep their space
            self._producers.drop_snapshots(self._segments)
            self._checkpoint.epochs.truncate_from_start(self._segments[0].base_offset)
            self._checkpoint.is_written = False
            self._write_epochs_if_possible()
        except OSError as error:
            raise self._io_failure.failed_by(error, "delete segments") from error
        return count

    # Compaction

    def swap_in(self, rewritten: CleanedSegments) -> None:
        """Replace segments by a compacted one whose file is committed (`SegmentSwap.commit`).

        Called on the loop; it renames a few files. Raises StorageFailed.
        """
        self._segments.replace(rewritten.replaced, rewritten.segment)
        self._reader.forget_places()
        self._synced_prefixes.invalidate()
        with self._io_failure.breaking("swap in a compacted segment"):
            for segment in rewritten.replaced:
                segment.retire()
            self.swaps.complete(rewritten.segment.path)

    # Truncating

    def truncate_to(self, offset: Offset) -> int:
        """Remove the batches that hold `offset` or more, and epochs that start there.

        Returns how many records were removed. A batch is never split, so the log may end below
        `offset`. Checkpoint the recovery points soon after. Raises CorruptBatch (nothing changed),
        StorageFailed.
        """
        self._io_failure.ensure_writable()
        if offset < self.log_start_offset:
            return self.truncate_fully_and_start_at(offset)
        old_end_offset = self.log_end_offset
        with self._io_failure.breaking("truncate"):
            if offset < old_end_offset:
                self._truncate(*self._producers.checked(self._segments.end_before(offset)))
            self._checkpoint.truncate_from_end(min(offset, self.log_end_offset))
            self._write_epochs_if_possible()
        return old_end_offset - self.log_end_offset

    def truncate_before_corruption(self, offset: Offset) -> int:
        """Truncate after the last valid batch before `offset`, whatever an index says.

        Returns how many records were removed. Raises StorageFailed.
        """
        self._io_failure.ensure_writable()
        old_end_offset = self.log_end_offset
        with self._io_failure.breaking("truncate"):
            segment = self._segments.holding(max(offset, self._segments[0].base_offset))
            position, valid_end = segment.valid_prefix(offset)
            if valid_end < self.log_start_offset:
                return self.truncate_fully_and_start_at(self.log_start_offset)
            self._truncate(segment, position, valid_end)
            self._checkpoint.truncate_from_end(valid_end)
            self._write_epochs_if_possible()
        return old_end_offset - self.log_end_offset

    def _truncate(self, segment: Segment, position: int, next_offset: Offset) -> None:
        self.log_start_offset = min(self.log_start_offset, next_offset)
        self._forget_from(next_offset, goes_on_from=next_offset)
        self._segments.drop_behind(segment.base_offset)
        if position < segment.size_bytes:
            segment.truncate(position, next_offset)
        self.log_end_offset = segment.next_offset
        self._durability.record_truncated(self.log_end_offset)
        self._producers.cut(self._segments, self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> int:
        """Remove everything and start again, empty, at `offset`; return the records removed."""
        self._io_failure.ensure_writable()
        removed = self.log_end_offset - self.log_start_offset
        self.log_start_offset = min(self.log_start_offset, offset)
        with self._io_failure.breaking("truncate"):
            self._forget_from(Offset(0), goes_on_from=offset)
            self._checkpoint.forget_all()
            self._producers.forget_all()  # first: what begins there would believe a snapshot
            self._segments.restart_at(
                offset, index_interval_bytes=self.settings.index_interval_bytes
            )
            self._durability.record_files_created()
        self.log_start_offset = self.log_end_offset = offset
        self._durability.record_truncated(offset)
        return removed

    def _forget_from(self, offset: Offset, *, goes_on_from: Offset) -> None:
        """Lower all offsets kept about the log, before anything is truncated.

        A worker that writes checkpoints meanwhile reads what holds after the truncation. Raises
        OSError.
        """
        self._durability.record_truncating(offset)
        self.cleaned_to = min(self.cleaned_to, offset)
        self.frames_checked_to = min(self.frames_checked_to, offset)
        self._before_truncation(goes_on_from)
        self._invalidate_copies()
        self._reader.forget_places()

    def _invalidate_copies(self) -> None:
        """Invalidate what workers are writing of the log as it was.

        Raises OSError.
        """
        self._synced_prefixes.invalidate()
        self.swaps.invalidate()

    def _write_epochs_if_possible(self) -> None:
        if self._checkpoint.write_if_possible():
            self._durability.record_epochs_written()

    # Making durable

    def flush(self) -> None:
        """Sync all below the log end at the call, then advance the recovery point.

        Called in a worker. A removed log needs no sync: if its deletion meets a flush that was
        requested before, no disk has failed. Raises StorageFailed; after that nothing more is
        written (S8).
        """
        try:
            self._io_failure.ensure_writable()
            if snapshots := self._producers.sync():
                self._durability.record_files_created()
            self._durability.sync(self._to_be_synced)
            self._producers.record_synced(snapshots)
        except (OSError, StorageFailed) as error:
            if self.is_removed:
                return  # also while this ran: renamed away under us
            if isinstance(error, OSError):
                raise self._io_failure.broken_by(error, "flush") from error
            raise

    def _to_be_synced(self) -> tuple[Offset, Sequence[Segment], Path | None]:
        path = self._checkpoint.path if self._checkpoint.exists else None
        return self.log_end_offset, tuple(self._segments), path

    def pending_prefix(self, *, growth_bytes: int) -> PendingPrefix | None:
        """Return a copy for `write_synced_prefix` if the active segment has grown enough."""
        if self.failure:
            return None
        epochs, active = self._checkpoint.epochs, self._segments.active
        return self._synced_prefixes.copy_if_due(
            active, self.producers, epochs, growth_bytes=growth_bytes
        )

    def write_synced_prefix(self, due: PendingPrefix) -> None:
        """Sync what the copy describes, then write it. Called in a worker.

        Raises StorageFailed.
        """
        self.flush()
        with self._io_failure.breaking("write a synced prefix"):
            self._synced_prefixes.write(due)

    def close(self) -> None:
        """Write index files and epochs and sync everything, as a clean shutdown needs.

        Raises DiskFull, StorageFailed; the log does not count as cleanly closed then.
        """
        self._io_failure.ensure_writable()
        try:
            self._write_epochs()
            self._segments.active.write_indexes()
            self._producers.write_snapshot(self._segments)
        except OSError as error:
            raise self._io_failure.failed_by(error, "close") from error
        self.flush()
        self._io_failure.note("it is closed")

    def record_removed(self) -> None:
        """Reject further writes of a log whose directory is renamed for deletion."""
        self._synced_prefixes.invalidate()
        self.is_removed = True
        self._io_failure.note("it was removed")
