"""Compact a log: of each key only the last record stays; offsets and order stay as they were (I4).

A run reads the part that was never compacted and records the last offset of each key, as many keys
as its memory allows. Then it rewrites segments from the log's start, group by group, and drops
records that a later one of the same key outdates. The caller limits it to sealed segments below the
high watermark.

A tombstone (a key without a value) stays until its delete horizon. The horizon is set by the run
that removes all older records of its key, and only by that one (KIP-534); one that came with its
batch counts once a run of this log has recorded the batch. Batches whose records cannot be
decompressed here stay as they are; behind such a batch tombstones stay without limit, because it
may hold older records of any key. The last batch of each producer id that has not expired stays, if
need be without records (KIP-98): after a restart the log must show the sequences that a retry may
repeat.

LZ4 frames with linked blocks, which Java clients cannot read, are compressed again. Earlier
versions wrote them, so what those compacted is read once more (decision 0110).

A run works in small steps in a worker: `steps` yields after each, and returns finished segments for
the loop to take in. It changes no file of the log.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tidemark_protocol.ids import FORGED_PRODUCER_IDS_FROM, NO_EPOCH, LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import HEADER_BYTES, MAX_INT64

from tidemark_broker.kafka_wire.records.batch_rewriting import (
    MAX_OFFSET_DELTA,
    batch_of_rest,
    batch_without_records,
    delete_horizon_ms,
    empty_run,
    is_empty_run,
)
from tidemark_broker.kafka_wire.records.compression import FRAME_START_BYTES, LZ4, has_linked_blocks
from tidemark_broker.kafka_wire.records.errors import (
    CannotCompact,
    CorruptBatch,
    UnsupportedCompression,
)
from tidemark_broker.kafka_wire.records.record_batch import (
    BatchHeader,
    Record,
    check_crc,
    read_header,
    read_records,
)
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.indexes import MAX_RELATIVE_OFFSET
from tidemark_broker.log.log_config import MAX_SEGMENT_BYTES, LogSettings
from tidemark_broker.log.producer_state_entry import NO_PRODUCER_ID
from tidemark_broker.log.segment import Segment, scan_batches
from tidemark_broker.log.unreadable_sectors import unreadable_is_corrupt

STEP_BYTES = 64 * 1024  # a few milliseconds of a worker, which the loop shares its lock with
MAX_KEYS = 200_000  # of one pass: about 40 MB
WRITE_BYTES = 1024 * 1024


class LastOffsets:
    """The last offset of each key in bounded memory, keyed by a hash of 16 bytes, as in Kafka."""

    def __init__(self, max_keys: int) -> None:
        self._offsets: dict[bytes, Offset] = {}
        self._max_keys = max_keys

    @property
    def is_full(self) -> bool:
        """Return whether the memory is used up.

        Asked between batches: one batch is always recorded completely, so that a run makes
        progress.
        """
        return len(self._offsets) >= self._max_keys

    def note(self, key: bytes, offset: Offset) -> None:
        self._offsets[blake2b(key, digest_size=16).digest()] = offset

    def last(self, key: bytes) -> Offset | None:
        return self._offsets.get(blake2b(key, digest_size=16).digest())


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The range of a run: complete segments from the log's start on, none of them active."""

    segments: tuple[Segment, ...]
    first_dirty_offset: Offset
    clean_bytes: int
    dirty_bytes: int  # 0: only frames of the clean part are to be packed again

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def plan_compaction(
    segments: Sequence[Segment],
    settings: LogSettings,
    *,
    first_dirty_offset: Offset,
    frames_checked_to: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> CompactionPlan | None:
    """Return the range to compact, or None if there is nothing to do yet.

    `segments` are all of the log, the active one last. No frame below `frames_checked_to` has
    linked blocks. Raises OSError.
    """
    if not settings.compacts:
        return None
    first_dirty_offset = max(first_dirty_offset, segments[0].base_offset)
    cleanable: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    for segment in segments[:-1]:
        is_dirty = segment.next_offset > first_dirty_offset
        if not may_compact(segment, high_watermark):
            break
        if is_dirty and now_ms - segment.newest_ms() < settings.min_compaction_lag_ms:
            break
        cleanable.append(segment)
        dirty_bytes += segment.size_bytes if is_dirty else 0
        clean_bytes += 0 if is_dirty else segment.size_bytes
    if not cleanable:
        return None
    plan = CompactionPlan(tuple(cleanable), first_dirty_offset, clean_bytes, dirty_bytes)
    if dirty_bytes and plan.dirty_ratio >= settings.min_cleanable_dirty_ratio:
        return plan
    if dirty_bytes and _is_overdue(plan, settings, now_ms):
        return plan
    # A whole clean part only: a high watermark may be behind it just after a start.
    is_whole = cleanable[-1].next_offset >= first_dirty_offset
    return plan if is_whole and frames_checked_to < first_dirty_offset else None


def _is_overdue(plan: CompactionPlan, settings: LogSettings, now_ms: int) -> bool:
    """Return whether the oldest uncompacted timestamp exceeds the limit (KIP-354)."""
    dirty = (each for each in plan.segments if each.next_offset > plan.first_dirty_offset)
    oldest_ms = next(dirty).first_timestamp_ms
    return oldest_ms is not None and now_ms - oldest_ms > settings.max_compaction_lag_ms


# guard: compaction-below-watermark (B9)
def may_compact(segment: Segment, high_watermark: Offset) -> bool:
    """Return whether all of the segment is committed.

    An uncommitted record may be truncated, and then an outdated one was the last of its key.
    """
    return segment.next_offset <= high_watermark


@dataclass(frozen=True, slots=True)
class CleanedSegments:
    """A complete new segment that replaces some old ones; its file is written and synced."""

    replaced: tuple[Segment, ...]
    segment: Segment
    path: Path


@dataclass(frozen=True, slots=True)
class CleanerProgress:
    """The number of bytes read since the last step."""

    size_bytes: int


class Compaction:
    """One compaction run over one log."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        plan: CompactionPlan,
        settings: LogSettings,
        *,
        now_ms: int,
        producer_ids: Collection[int],
        max_keys: int = MAX_KEYS,
    ) -> None:
        """Create a run that has not started.

        `producer_ids` are all that the log's producer states know when the plan is made. A producer
        is known until it expires, counted from an append or a load, never earlier.
        """
        self.cleaned_to = plan.first_dirty_offset  # final once `steps` is exhausted
        self.removed_records = 0
        self.reached_offset = plan.segments[0].base_offset  # where it is, for a corrupt batch
        self._disk = disk
        self._directory = directory
        self._plan = plan
        self._settings = settings
        self._now_ms = now_ms
        self._last_offsets = LastOffsets(max_keys)
        self._last_of_producer: dict[int, Offset] = {}
        self._producer_ids = producer_ids
        self._highest_producer_id = NO_PRODUCER_ID
        self._has_closed_batch = False  # one whose records cannot be opened was met
        self._with_linked_blocks: set[Offset] = set()  # base offsets of segments

    def steps(self) -> Iterator[CleanerProgress | CleanedSegments]:
        """Yield after each few milliseconds of work.

        Raises CorruptBatch, CannotCompact, OSError.
        """
        yield from self._record_keys()
        yield from self._rewrite()

    # What stays

    def _record_keys(self) -> Iterator[CleanerProgress]:
        cleaned_to = first_dirty_offset = self._plan.first_dirty_offset
        for segment in self._plan.segments:
            progress = 0
            for position, header in self._batches(segment):
                if header.producer_id > NO_PRODUCER_ID:
                    self._record_producer(segment, position, header)
                if _is_linked(segment, position, header):
                    self._with_linked_blocks.add(segment.base_offset)
                is_clean = header.next_offset <= first_dirty_offset
                is_next = header.base_offset <= cleaned_to  # nothing was left out before it
                if not is_clean and is_next and not self._last_offsets.is_full:
                    self._record_batch(segment, position, header)
                    cleaned_to = header.next_offset
                progress += header.size_bytes
                if progress >= STEP_BYTES:
                    yield CleanerProgress(progress)
                    progress = 0
            yield CleanerProgress(progress)
        self.cleaned_to = cleaned_to

    def _batches(self, segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
        self.reached_offset = segment.base_offset
        for position, header in _batches(segment):
            self.reached_offset = header.base_offset
            yield position, header
            self.reached_offset = header.next_offset

    def _record_producer(self, segment: Segment, position: int, header: BatchHeader) -> None:
        _checked(segment, position, header)  # one bit of an id makes it a neighbour's last one
        self._last_of_producer[header.producer_id] = header.base_offset
        if self._highest_producer_id < header.producer_id < FORGED_PRODUCER_IDS_FROM:
            self._highest_producer_id = header.producer_id

    def _record_batch(self, segment: Segment, position: int, header: BatchHeader) -> None:
        for record in _records(segment, position, header) or ():
            if record.key is not None:
                self._last_offsets.note(record.key, record.offset)

    def _stays(self, record: Record, horizon_ms: int | None) -> bool:
        if record.key is None:
            return True  # from before the topic was compacted: nothing outdates it
        if self._is_outdated(record):
            return False
        is_tombstone = record.value is None
        return not (is_tombstone and self._is_tombstone_over(horizon_ms))

    # guard: last-record-of-key-stays (B9)
    def _is_outdated(self, record: Record) -> bool:
        assert record.key is not None
        last = self._last_offsets.last(record.key)
        return last is not None and last > record.offset

    # guard: tombstone-stays-for-its-time (B9)
    def _is_tombstone_over(self, horizon_ms: int | None) -> bool:
        return horizon_ms is not None and horizon_ms < self._now_ms and not self._has_closed_batch

    def _new_horizon_ms(self, header: BatchHeader, records: Sequence[Record]) -> int | None:
        """Return the delete horizon for tombstones of a batch that this run recorded, or None.

        The run removes all records that they outdate.
        """
        if delete_horizon_ms(header) is not None or header.next_offset > self.cleaned_to:
            return None
        if any(
            record.value is None
            and record.key is not None
            and self._last_offsets.last(record.key) == record.offset
            for record in records
        ):
            return min(self._now_ms + self._settings.delete_retention_ms, MAX_INT64)
        return None

    # Rewriting

    def _rewrite(self) -> Iterator[CleanerProgress | CleanedSegments]:
        """Rewrite segments; neighbours share a new one while their records fit into it."""
        group: list[Segment] = []
        writer: CleanedSegment | None = None
        for segment in self._plan.segments:
            if segment.base_offset >= self.cleaned_to:
                break
            stays = not self._plan.dirty_bytes and (
                segment.base_offset not in self._with_linked_blocks
            )
            if writer is not None and (stays or not self._has_room(writer, segment)):
                yield from self._finish(group, writer)
                group, writer = [], None
            if stays:
                continue
            writer = writer or CleanedSegment(
                self._disk,
                self._directory,
                segment.base_offset,
                index_interval_bytes=self._settings.index_interval_bytes,
            )
            group.append(segment)
            yield from self._rewrite_segment(segment, writer)
        if writer is not None:
            yield from self._finish(group, writer)

    def _has_room(self, writer: "CleanedSegment", segment: Segment) -> bool:
        limit_bytes = min(self._settings.segment_bytes, MAX_SEGMENT_BYTES * 3 // 4)
        return (
            writer.size_bytes + segment.size_bytes <= limit_bytes
            and segment.next_offset - 1 - writer.segment.base_offset <= MAX_RELATIVE_OFFSET
        )

    def _rewrite_segment(
        self, segment: Segment, writer: "CleanedSegment"
    ) -> Iterator[CleanerProgress]:
        progress = 0
        for position, header in self._batches(segment):
            self._rewrite_batch(segment, position, header, writer)
            progress += header.size_bytes
            if progress >= STEP_BYTES:
                yield CleanerProgress(progress)
                progress = 0
        yield CleanerProgress(progress)

    def _finish(self, group: list[Segment], writer: "CleanedSegment") -> Iterator[CleanedSegments]:
        writer.finish(group[-1].next_offset)
        if writer.differs or len(group) > 1:
            yield CleanedSegments(tuple(group), writer.segment, writer.path)
        else:
            self._disk.remove(writer.path)

    def _rewrite_batch(
        self, segment: Segment, position: int, header: BatchHeader, writer: "CleanedSegment"
    ) -> None:
        if is_empty_run(header):
            _checked(segment, position, header)  # one bit of a count makes it of a record's batch
            writer.leave_out(header)
            return
        records = _records(segment, position, header)
        if records is None:
            self._has_closed_batch = True
            writer.keep(header, _read(segment, position, header))
            return
        # A horizon of the leader's log or of a producer does not count here.
        is_recorded = header.next_offset <= self.cleaned_to
        old_horizon_ms = delete_horizon_ms(header) if is_recorded else None
        rest = [record for record in records if self._stays(record, old_horizon_ms)]
        self.removed_records += len(records) - len(rest)
        horizon_ms = self._new_horizon_ms(header, rest)
        changes = horizon_ms is not None or len(rest) < len(records)
        if rest and not changes and not _is_linked(segment, position, header):
            writer.keep(header, _read(segment, position, header))
        elif rest:
            writer.change(batch_of_rest(header, rest, horizon_ms=horizon_ms))
        elif not (self._is_last_of_producer(header) and self._must_be_known(header.producer_id)):
            writer.leave_out(header)
        elif records:
            writer.change(batch_without_records(header))
        else:
            writer.keep(header, _read(segment, position, header))

    # guard: last-batch-of-producer-stays (I8)
    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether it is the producer's last batch (I8).

        A restart must find its sequences.
        """
        return self._last_of_producer.get(header.producer_id) == header.base_offset

    def _must_be_known(self, producer_id: int) -> bool:
        """Return whether a restart must find the producer.

        An expired one only keeps its id from being allocated again (S5), for which the highest
        producer id is enough.
        """
        return producer_id in self._producer_ids or producer_id == self._highest_producer_id


class CleanedSegment:
    """The new file of one group. Removed batches become runs, so there are no holes (I4)."""

    def __init__(
        self, disk: Disk, directory: Path, base_offset: Offset, *, index_interval_bytes: int
    ) -> None:
        self.differs = False
        self._disk = disk
        self.segment, self.path = Segment.create_cleaned(
            disk, directory, base_offset, index_interval_bytes=index_interval_bytes
        )
        self._buffers: list[bytes] = []
        self._buffered_bytes = 0
        self._run_from = base_offset
        self._run_epoch = LeaderEpoch(NO_EPOCH)
        self._next_offset = base_offset  # of the run; equal to `_run_from` if there is none

    @property
    def size_bytes(self) -> int:
        return self.segment.size_bytes + self._buffered_bytes

    def keep(self, header: BatchHeader, data: bytes) -> None:
        self._end_run()
        self._put(data, header.last_offset, header.max_timestamp_ms)
        self._run_from = self._next_offset = header.next_offset

    def change(self, data: bytes) -> None:
        """Replace a batch of the same offsets, whose newest record may be gone."""
        self.differs = True
        self.keep(read_header(data), data)

    def leave_out(self, header: BatchHeader) -> None:
        is_new_epoch = header.partition_leader_epoch != self._run_epoch
        is_too_long = header.last_offset - self._run_from > MAX_OFFSET_DELTA
        if is_new_epoch or is_too_long:
            self._end_run()
        # A run that stood alone before and stands alone now is no difference.
        is_joined = self._next_offset > self._run_from
        self.differs = self.differs or is_joined or not is_empty_run(header)
        self._run_epoch = header.partition_leader_epoch
        self._next_offset = header.next_offset

    def finish(self, end_offset: Offset) -> None:
        """Sync all files, but do not rename them yet.

        Raises OSError.
        """
        self._end_run()
        assert self._run_from == end_offset, f"ends at {self._run_from}, not at {end_offset}"  # I4
        self._write_out()
        self._make_durable()

    # guard: swap-synced-before-named (B9)
    def _make_durable(self) -> None:
        """Sync the file before its name counts: the segments that it replaces are removed then."""
        self.segment.file.sync()

    def _end_run(self) -> None:
        if self._next_offset > self._run_from:
            last_offset = Offset(self._next_offset - 1)
            self._put(empty_run(self._run_from, last_offset, self._run_epoch), last_offset, -1)
            self._run_from = self._next_offset

    def _put(self, data: bytes, last_offset: Offset, max_timestamp_ms: int) -> None:
        position = self.size_bytes
        if position + len(data) > MAX_SEGMENT_BYTES:
            self._disk.remove(self.path)
            raise CannotCompact(f"{self.path} would outgrow {MAX_SEGMENT_BYTES} bytes")
        self.segment.record_batch(position, len(data), last_offset, max_timestamp_ms)
        self._buffers.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes >= WRITE_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        self.segment.write([b"".join(self._buffers)], self._buffered_bytes)
        self.segment.size_bytes += self._buffered_bytes
        self._buffers, self._buffered_bytes = [], 0


def _batches(segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
    with unreadable_is_corrupt():
        yield from scan_batches(
            segment.file,
            start=0,
            end=segment.size_bytes,
            expected_offset=segment.base_offset,
            verify_crc=False,
        )


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record] | None:
    """Return the records of a batch, or None if it cannot be decompressed here or has no records.

    Raises CorruptBatch.
    """
    data = _checked(segment, position, header)
    try:
        return list(read_records(data))
    except (UnsupportedCompression, CorruptBatch):
        return None


def _is_linked(segment: Segment, position: int, header: BatchHeader) -> bool:
    if header.compression != LZ4 or header.size_bytes < HEADER_BYTES + FRAME_START_BYTES:
        return False
    with unreadable_is_corrupt():
        start = segment.file.read_at(position + HEADER_BYTES, FRAME_START_BYTES)
    return has_linked_blocks(start)


def _checked(segment: Segment, position: int, header: BatchHeader) -> memoryview:
    """Return the bytes of a batch whose CRC matches, so that corruption is never copied (I10).

    Raises CorruptBatch.
    """
    data = memoryview(_read(segment, position, header))
    # guard: compacted-batches-are-checked (I10)
    check_crc(header, data, position)
    return data


def _read(segment: Segment, position: int, header: BatchHeader) -> bytes:
    with unreadable_is_corrupt():
        return segment.file.read_at(position, header.size_bytes)
