"""Rewrite batches as compaction leaves them: with some of their records, or none.

Offsets, leader epoch and producer numbers stay, so a rewritten batch covers the same offsets and
the same sequences of its producer (KIP-98). A run of batches that lost all records becomes one
empty batch, so that a log has no gaps: a missing batch is always corruption. Tombstones get a
delete horizon in the header (KIP-534: attribute bit 6, the horizon in place of the base timestamp).
"""

from collections.abc import Sequence

from crc32c import crc32c
from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import (
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    as_int64,
    encode_record,
)

from tidemark_broker.kafka_wire.records.compression import packed
from tidemark_broker.kafka_wire.records.record_batch import COMPRESSION_MASK, BatchHeader, Record

DELETE_HORIZON = 0x40
NO_TIMESTAMP = -1
MAX_OFFSET_DELTA = 2**31 - 1


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Return the time from which the batch's tombstones may be deleted; None if it is not set."""
    return header.base_timestamp_ms if header.attributes & DELETE_HORIZON else None


def batch_of_rest(
    header: BatchHeader, records: Sequence[Record], *, horizon_ms: int | None
) -> bytes:
    """Return the batch with only `records`, at least one of its own, in the same compression.

    With `horizon_ms` None, a delete horizon is neither set nor removed.
    """
    attributes, base_timestamp_ms = header.attributes, header.base_timestamp_ms
    if horizon_ms is not None:
        attributes, base_timestamp_ms = attributes | DELETE_HORIZON, horizon_ms
    body = b"".join(
        encode_record(
            record.offset - header.base_offset,
            as_int64(record.timestamp_ms - base_timestamp_ms),
            record.key,
            record.value,
            record.headers,
        )
        for record in records
    )
    body = packed(attributes & COMPRESSION_MASK, body)
    # Never later than the header said: that is what admission saw, and retention goes by it.
    newest_ms = min(max(record.timestamp_ms for record in records), header.max_timestamp_ms)
    return _packed(
        header,
        body,
        attributes=attributes,
        timestamps_ms=(base_timestamp_ms, newest_ms),
        record_count=len(records),
    )


def batch_without_records(header: BatchHeader) -> bytes:
    """Return the batch without records: what a producer's state needs of its last batch.

    Kafka: writeEmptyHeader.
    """
    return _packed(
        header,
        b"",
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON),
        timestamps_ms=(NO_TIMESTAMP, header.max_timestamp_ms),
        record_count=0,
    )


def empty_run(first_offset: Offset, last_offset: Offset, leader_epoch: LeaderEpoch) -> bytes:
    """Return the empty batch that replaces removed batches of one leader epoch.

    It covers at most MAX_OFFSET_DELTA + 1 offsets.
    """
    header = BatchHeader(
        first_offset,
        HEADER_BYTES,
        leader_epoch,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset - first_offset,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return batch_without_records(header)


def is_empty_run(header: BatchHeader) -> bool:
    return header.record_count == 0 and header.producer_id == -1 and not header.is_control


def run_from(header: BatchHeader, first_offset: Offset) -> bytes:
    """Return the end of an empty run from `first_offset` on.

    A follower's log may end inside a run if its leader compacted meanwhile.
    """
    return empty_run(first_offset, header.last_offset, header.partition_leader_epoch)


def _packed(
    header: BatchHeader,
    body: bytes,
    *,
    attributes: int,
    timestamps_ms: tuple[int, int],
    record_count: int,
) -> bytes:
    batch = bytearray(HEADER_BYTES) + body
    HEADER.pack_into(
        batch, 0, header.base_offset, len(batch) - LENGTH_END, header.partition_leader_epoch,
        MAGIC, 0, attributes, header.last_offset_delta, *timestamps_ms, header.producer_id,
        header.producer_epoch, header.base_sequence, record_count,
    )  # fmt: skip
    CRC_AT.pack_into(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)
