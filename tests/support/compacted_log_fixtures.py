"""Logs with keys, and one whole pass of compaction over them, as a broker makes it."""

from pathlib import Path

import cramjam
from crc32c import crc32c
from tidemark_broker.kafka_wire.records.compression import packed
from tidemark_broker.kafka_wire.records.record_batch import (
    Batch,
    NewRecord,
    Record,
    build_batch,
    read_records,
    split_batches,
)
from tidemark_broker.log.cleaner import CleanedSegments, Compaction, CompactionPlan, plan_compaction
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tests.support.log_fixtures import read_all

COMPACTED = LogSettings(
    segment_bytes=300, compacts=True, deletes=False, min_cleanable_dirty_ratio=0.0
)
NOW_MS = 1_000_000


def keyed_batch(
    *pairs: tuple[str, str | None], timestamp_ms: int = 1_000, producer: tuple[int, int] = (-1, -1)
) -> Batch:
    """`producer`: (id, first sequence)."""
    records = [NewRecord(k.encode(), None if v is None else v.encode()) for k, v in pairs]
    data = build_batch(
        records,
        timestamp_ms=timestamp_ms,
        producer_id=producer[0],
        producer_epoch=0 if producer[0] >= 0 else -1,
        base_sequence=producer[1],
    )
    return split_batches(memoryview(data), max_batch_bytes=len(data))[0]


def compressed(batch: Batch, codec: int, body: bytes | None = None) -> Batch:
    """The same records in a codec; `body`: as another one packs them."""
    plain = bytes(batch.data)
    data = bytearray(plain[:HEADER_BYTES])
    data += packed(codec, plain[HEADER_BYTES:]) if body is None else body
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] |= codec
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return split_batches(memoryview(bytes(data)), max_batch_bytes=len(data))[0]


def linked(batch: Batch) -> Batch:
    """In LZ4 with linked blocks, as earlier versions rewrote batches."""
    return compressed(batch, 3, bytes(cramjam.lz4.compress(batch.data[HEADER_BYTES:])))


def put(log: PartitionLog, *pairs: tuple[str, str | None], epoch: int = 0) -> None:
    log.append_as_leader([keyed_batch(*pairs)], leader_epoch=LeaderEpoch(epoch))


def seal(log: PartitionLog) -> None:
    """Whatever follows is in a segment of its own."""
    log._roll()


def plan_of(log: PartitionLog, high_watermark: Offset, now_ms: int) -> CompactionPlan | None:
    return plan_compaction(
        log.segments,
        log.settings,
        first_dirty_offset=log.cleaned_to,
        frames_checked_to=log.frames_checked_to,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )


def compact(
    log: PartitionLog,
    disk: Disk,
    *,
    high_watermark: Offset | None = None,
    now_ms: int = NOW_MS,
    max_keys: int = 1000,
) -> Compaction | None:
    plan = plan_of(log, log.log_end_offset if high_watermark is None else high_watermark, now_ms)
    if plan is None:
        return None
    begun = log.swaps.begin()
    compaction = compaction_of(log, disk, plan, now_ms=now_ms, max_keys=max_keys)
    for step in compaction.steps():
        if isinstance(step, CleanedSegments):
            assert log.swaps.commit(step.path, begun)
            log.swap_in(step)
    log.cleaned_to = log.frames_checked_to = compaction.cleaned_to
    return compaction


def compaction_of(
    log: PartitionLog, disk: Disk, plan: CompactionPlan, *, now_ms: int, max_keys: int
) -> Compaction:
    return Compaction(
        disk,
        log.directory,
        plan,
        log.settings,
        now_ms=now_ms,
        producer_ids=log.producers.ids,
        max_keys=max_keys,
    )


def records_of(log: PartitionLog) -> list[Record]:
    data = memoryview(read_all(log))
    batches = split_batches(data, max_batch_bytes=max(1, len(data)))
    return [record for batch in batches for record in read_records(batch.data)]


def pairs_of(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    return [
        (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode())
        for r in records_of(log)
    ]


def files_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if ".log" in path.name)
