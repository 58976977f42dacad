"""Compute what an append writes, before anything is changed.

A leader assigns offsets and its epoch; a follower keeps the leader's and checks that they continue
its log (I4, I5). Each produce and each replicated fetch passes here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import LENGTH_END

from tidemark_broker.kafka_wire.records.batch_rewriting import is_empty_run, run_from
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, InvalidBatch
from tidemark_broker.kafka_wire.records.record_batch import PREFIX, Batch, BatchHeader, read_header
from tidemark_broker.log.disk import Buffer
from tidemark_broker.log.errors import OffsetGap
from tidemark_broker.log.indexes import MAX_RELATIVE_OFFSET
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.producer_state_entry import NO_PRODUCER_ID, RecordedBatch, recorded_batch
from tidemark_broker.log.segment import Segment


class PlacedBytes(NamedTuple):
    size_bytes: int
    last_offset: Offset
    max_timestamp_ms: int


class PreparedAppend(NamedTuple):
    buffers: Sequence[Buffer]
    size_bytes: int
    batches: Sequence[PlacedBytes]
    new_epochs: Sequence[tuple[LeaderEpoch, Offset]]
    producer_batches: Sequence[RecordedBatch]  # those with a producer id

    @property
    def last_offset(self) -> Offset:
        return self.batches[-1].last_offset


class AppendedRange(NamedTuple):
    first_offset: Offset
    last_offset: Offset


def needs_rolling_update(active: Segment, append: PreparedAppend, settings: LogSettings) -> bool:
    """Return whether the append begins a new segment, by Kafka's rule."""
    if active.size_bytes == 0:
        return False
    _, last_offset, max_timestamp_ms = append.batches[-1]
    oldest_ms = active.first_timestamp_ms
    is_too_large = active.size_bytes + append.size_bytes > settings.segment_bytes
    is_too_old = oldest_ms is not None and max_timestamp_ms - oldest_ms > settings.segment_ms
    is_too_long = last_offset - active.base_offset > MAX_RELATIVE_OFFSET
    return is_too_large or is_too_old or is_too_long


def prepare_as_leader(
    batches: Sequence[Batch], *, log_end_offset: Offset, leader_epoch: LeaderEpoch
) -> PreparedAppend:
    """Assign offsets and the epoch in a new prefix; the rest, which the CRC covers, is not copied.

    Raises InvalidBatch, and ValueError if there is no batch.
    """
    if not batches:
        raise ValueError("nothing to append: expected at least one batch")
    offset = log_end_offset
    buffers: list[Buffer] = []
    placed: list[PlacedBytes] = []
    producer_batches: list[RecordedBatch] = []
    total_bytes = 0
    for header, data in batches:
        # Only compaction may leave fewer records than offsets, and only we write control batches.
        if header.record_count != header.last_offset_delta + 1 or header.is_control:
            raise InvalidBatch(
                total_bytes,
                f"{header.last_offset_delta + 1} records in no control batch",
                f"{header.record_count} records, attributes {header.attributes:#x}",
            )
        if header.producer_id > NO_PRODUCER_ID:
            producer_batches.append(recorded_batch(header, offset))
        size_bytes = header.size_bytes
        buffers.append(PREFIX.pack(offset, size_bytes - LENGTH_END, leader_epoch))
        buffers.append(data[PREFIX.size :])
        offset = Offset(offset + header.record_count)
        placed.append(PlacedBytes(size_bytes, Offset(offset - 1), header.max_timestamp_ms))
        total_bytes += size_bytes
    if offset - 1 - log_end_offset > MAX_RELATIVE_OFFSET:  # no segment could hold it
        most = f"{MAX_RELATIVE_OFFSET + 1} records in one append"
        raise InvalidBatch(0, f"at most {most}", f"{offset - log_end_offset}")
    return PreparedAppend(buffers, total_bytes, placed, (), producer_batches)


def within_reach(
    data: memoryview, batches: Sequence[Batch], log_end_offset: Offset
) -> tuple[memoryview, Sequence[Batch]]:
    """Return the leader's bytes and batches without the part of an empty batch that this log has.

    Compaction on the leader may have joined offsets on both sides of this log's end.
    """
    header, batch = batches[0]
    if not (is_empty_run(header) and holds_inside(header, log_end_offset)):
        return data, batches
    run = run_from(header, log_end_offset)
    joined = memoryview(run + bytes(data[len(batch) :]))
    return joined, (Batch(read_header(run), joined[: len(run)]), *batches[1:])


def holds_inside(header: BatchHeader, offset: Offset) -> bool:
    """Return whether the batch holds `offset`, but not as its first."""
    return header.base_offset < offset <= header.last_offset


def prepare_as_follower(
    data: memoryview,
    batches: Sequence[Batch],
    *,
    log_end_offset: Offset,
    last_batch_epoch: LeaderEpoch,
) -> PreparedAppend:
    """Check batches of a leader against the end of this log.

    `last_batch_epoch` is -1 for an empty log. Raises OffsetGap, CorruptBatch.
    """
    expected = log_end_offset
    epoch = last_batch_epoch
    placed: list[PlacedBytes] = []
    new_epochs: list[tuple[LeaderEpoch, Offset]] = []
    producer_batches: list[RecordedBatch] = []
    position = 0
    for header, _ in batches:
        if header.base_offset != expected:
            raise OffsetGap(expected, header.base_offset)
        if header.partition_leader_epoch < max(0, epoch):  # I5
            found = f"{header.partition_leader_epoch}"
            raise CorruptBatch(position, f"leader epoch {max(0, epoch)} or later", found)
        # The first always: it may contradict an epoch that has no batches here.
        if header.partition_leader_epoch != epoch or not placed:
            epoch = header.partition_leader_epoch
            new_epochs.append((epoch, expected))
        if header.producer_id > NO_PRODUCER_ID:
            producer_batches.append(recorded_batch(header, expected))
        placed.append(PlacedBytes(header.size_bytes, header.last_offset, header.max_timestamp_ms))
        expected = header.next_offset
        position += header.size_bytes
    return PreparedAppend([data], len(data), placed, new_epochs, producer_batches)
