"""Logs of a few small batches, as the storage tests need them."""

import shutil
from pathlib import Path

from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import (
    Batch,
    NewRecord,
    build_batch,
    read_header,
    read_records,
    split_batches,
)
from tidemark_broker.log.disk import Disk, OsDisk
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.log.recovery import PreviousRun
from tidemark_broker.log.synced_prefix import SyncedPrefix
from tidemark_broker.log.synced_prefix_files import synced_prefix_of
from tidemark_protocol.ids import LeaderEpoch, Offset, TopicId

TOPIC_ID = TopicId("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
OTHER_TOPIC_ID = TopicId("0e9b7a1c-1111-4222-8333-444455556666")
KILLED = Offset(0)
FIRST = Offset(0)
ALL = Offset(2**62)


class NoSyncDisk(OsDisk):
    """For tests that are not about power: spares a thousand waits."""

    def sync_directory(self, path: Path) -> None:
        pass


def batch_of(*values: bytes, timestamp_ms: int = 1_000) -> Batch:
    data = build_batch([NewRecord(None, value) for value in values], timestamp_ms=timestamp_ms)
    return split_batches(memoryview(data), max_batch_bytes=len(data))[0]


def produced_batch(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    timestamp_ms: int = 1_000,
) -> Batch:
    """Of an idempotent producer: `count` records from `sequence` on, that say so."""
    data = build_batch(
        [NewRecord(None, b"%d" % (sequence + at)) for at in range(count)],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return split_batches(memoryview(data), max_batch_bytes=len(data))[0]


def open_log(
    directory: Path,
    disk: Disk | None = None,
    *,
    recovery_point: Offset | None = KILLED,
    settings: LogSettings | None = None,
    log_start_offset: Offset = FIRST,
    synced_prefix: SyncedPrefix | None = None,
) -> PartitionLog:
    directory.mkdir(exist_ok=True)
    return PartitionLog(
        disk or OsDisk(),
        directory,
        topic="orders",
        topic_id=TOPIC_ID,
        partition=0,
        settings=settings or LogSettings(),
        previous=PreviousRun(recovery_point, log_start_offset, synced_prefix),
    )


def write_synced_prefix(log: PartitionLog) -> None:
    """As a pass of the recovery points does."""
    due = log.pending_prefix(growth_bytes=1)
    if due is not None:
        log.write_synced_prefix(due)


def killed_and_reopened(
    log: PartitionLog,
    disk: Disk | None = None,
    *,
    recovery_point: Offset | None = KILLED,
    log_start_offset: Offset | None = None,
) -> PartitionLog:
    """On the same kernel."""
    return opened_on_the_same_kernel(
        log.directory,
        disk,
        recovery_point=recovery_point,
        settings=log.settings,
        log_start_offset=log.log_start_offset if log_start_offset is None else log_start_offset,
    )


def opened_on_the_same_kernel(
    directory: Path,
    disk: Disk | None = None,
    *,
    recovery_point: Offset | None = KILLED,
    settings: LogSettings | None = None,
    log_start_offset: Offset = FIRST,
) -> PartitionLog:
    """As a broker's log directory does."""
    part = synced_prefix_of(disk or OsDisk(), directory)
    if recovery_point is not None and part is not None:
        recovery_point = max(recovery_point, part.next_offset)
    return open_log(
        directory,
        disk,
        recovery_point=recovery_point,
        settings=settings,
        log_start_offset=log_start_offset,
        synced_prefix=part,
    )


def verified_copy(log: PartitionLog) -> PartitionLog:
    """Of the log as it is on the disk."""
    return verified_copy_of(log.directory, log.settings, log_start_offset=log.log_start_offset)


def verified_copy_of(
    source: Path,
    settings: LogSettings,
    *,
    disk: Disk | None = None,
    log_start_offset: Offset = FIRST,
) -> PartitionLog:
    """All of it read from the first byte on."""
    directory = source.with_name(f"{source.name}-copy")
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(source, directory)
    for path in directory.glob("*.*index"):
        path.unlink()
    return open_log(directory, disk, settings=settings, log_start_offset=log_start_offset)


def responses_of(log: PartitionLog) -> dict[str, object]:
    """What a log says of itself, and to every question about an offset or a timestamp."""
    said: dict[str, object] = {
        "offsets": (log.log_start_offset, log.log_end_offset),
        "epochs": log.epoch_entries,
        "producers": {number: entry.window for number, entry in log.producers},
    }
    for segment in log.segments:
        offsets = range(segment.base_offset, segment.next_offset)
        found = {offset: segment.find(Offset(offset)) for offset in offsets}
        times = {placed.header.max_timestamp_ms for placed in found.values()}
        said[segment.path.name] = (
            segment.size_bytes,
            segment.next_offset,
            segment.first_timestamp_ms,
            segment.max_timestamp_ms,
            found,
            {
                requested: list(segment.batches_reaching(requested))
                for time_ms in times
                for requested in (time_ms, time_ms + 1)
            },
        )
    return said


def append(log: PartitionLog, *values: bytes, epoch: int = 0, timestamp_ms: int = 1_000) -> None:
    batch = batch_of(*values, timestamp_ms=timestamp_ms)
    log.append_as_leader([batch], leader_epoch=LeaderEpoch(epoch))


def read_all(log: PartitionLog) -> bytes:
    """Through every segment, as a follower would."""
    parts = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes=1 << 20, end_offset=ALL)
        parts.append(data)
        offset = headers_of(data)[-1].next_offset
    return b"".join(parts)


def headers_of(data: bytes) -> list:
    headers = []
    position = 0
    while position < len(data):
        headers.append(read_header(data, position))
        position += headers[-1].size_bytes
    return headers


def values_of(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    data = memoryview(read_all(log))
    batches = split_batches(data, max_batch_bytes=max(1, len(data)))
    return [(r.offset, r.value) for batch in batches for r in read_records(batch.data)]


def served(log: PartitionLog) -> bytes:
    """What a reader gets that checks CRCs, as followers and clients do; up to the first refusal."""
    parts = []
    offset = log.log_start_offset
    try:
        while offset < log.log_end_offset:
            data = log.read(offset, max_bytes=150, end_offset=log.log_end_offset)
            assert data, "nothing served and no error: a follower would ask again at once"
            parts += [b.data for b in split_batches(memoryview(data), max_batch_bytes=9999)]
            offset = headers_of(data)[-1].next_offset
    except CorruptBatch:
        pass
    return b"".join(parts)


def files_of(log: PartitionLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(log.directory.iterdir())}


def written(directory: Path, files: dict[str, bytes]) -> Path:
    """Into a new directory each time: rewriting a file in place makes ext4 wait for the disk."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory
