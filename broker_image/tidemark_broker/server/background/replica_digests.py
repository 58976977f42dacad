"""Keep the digests of replicas (metrics profile `full`) by reading behind the high watermark.

Nothing is done when records are appended. Each second every log is read from where its digest ends
to its high watermark, in small steps that let other tasks run in between. What was counted is
written now and then, so a restart continues from there; a file that does not fit the log any more
(it was truncated meanwhile, and other records followed) is ignored. No decision depends on this,
but a corrupt batch that is found is reported as by every reader.
"""

import asyncio
import contextlib
import logging
from bisect import bisect_right
from pathlib import Path

import msgspec
from tidemark_protocol.ids import NO_EPOCH, LeaderEpoch, Offset, TopicId

from tidemark_broker.clock import Clock, monotonic_ms
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, StorageError
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import OffsetOutOfRange
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.metadata.metadata_cache import TopicPartition
from tidemark_broker.replication.core.replica_digest import ReplicaDigest
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager

FILE_NAME = "tidemark-digests.json"
PAUSE_SECONDS = 1.0
STEP_BYTES = 128 * 1024  # under half a millisecond of the loop
BYTES_PER_SECOND = 32 * 1024 * 1024  # for a log that is read from its beginning
WRITTEN_EVERY_MS = 60_000
REPLICAS_AT_A_TIME = 100  # looked at before others run

_log = logging.getLogger(__name__)


class _Written(msgspec.Struct, frozen=True, rename="camel"):
    topic_id: str
    partition: int
    last_epoch: int  # of the record before the end
    positions: list[tuple[int, int]]


class _File(msgspec.Struct, frozen=True):
    version: int
    digests: list[_Written]


class ReplicaDigests(PartitionObserver):
    def __init__(
        self,
        partitions: ReplicaManager,
        disk: Disk,
        data_directory: Path,
        clock: Clock = monotonic_ms,
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._disk = disk
        self._path = data_directory / FILE_NAME
        self._previous: dict[TopicPartition, _Written] = {}
        self._next_write_ms = clock() + WRITTEN_EVERY_MS

    async def run(self) -> None:
        """Count until cancelled, or until the disk failed."""
        await self.load()
        while not self._partitions.is_stopped:
            await self.pass_once()
            await asyncio.sleep(PAUSE_SECONDS)

    async def load(self) -> None:
        self._previous = await asyncio.to_thread(self._read)

    async def pass_once(self) -> None:
        for number, replica in enumerate(self._partitions.replicas):
            if number % REPLICAS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if replica.log.settings.compacts:
                replica.digest = None  # replicas compact at different times
                continue
            if replica.digest is None:
                replica.digest = self._begun(replica)
            while self._count_step(replica, replica.digest):
                await asyncio.sleep(STEP_BYTES / BYTES_PER_SECOND)
                if self._partitions.is_stopped:
                    return
        if self._clock() >= self._next_write_ms:
            self._next_write_ms = self._clock() + WRITTEN_EVERY_MS
            await asyncio.to_thread(self._write, await self._file())

    def on_truncate(self, replica: Partition) -> None:
        """Update the digest of a log that was truncated, or started again further on."""
        if replica.digest is not None:
            replica.digest.truncate(replica.log.log_end_offset)

    # ---- counting

    def _count_step(self, replica: Partition, digest: ReplicaDigest) -> bool:
        """Count one step; return whether there is more."""
        log, end = replica.log, replica.high_watermark
        if digest.end < log.log_start_offset:
            digest.restart(log.log_start_offset)
        if digest.end >= end:
            return False
        try:
            data = log.read(digest.end, max_bytes=STEP_BYTES, end_offset=end)
        except OffsetOutOfRange:
            return False
        except CorruptBatch as error:
            self._partitions.corrupt.note(replica, digest.end, error, "digest")
            return False
        except (StorageError, OSError) as error:
            if not log.failure:
                self._partitions.fail_storage(error)
            return False
        _count(memoryview(data), digest, self._clock())
        return digest.end < end

    def _begun(self, replica: Partition) -> ReplicaDigest:
        log = replica.log
        previous = self._previous.pop((log.topic_id, log.partition), None)
        if previous is not None:
            with contextlib.suppress(ValueError):
                digest = ReplicaDigest.restored(previous.positions, log.log_end_offset)
                if _epoch_before(log, digest.end) == previous.last_epoch:
                    return digest
        return ReplicaDigest(log.log_start_offset)

    # ---- kept through a restart

    async def _file(self) -> _File:
        written = []
        for number, replica in enumerate(self._partitions.replicas):
            if number % REPLICAS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if replica.digest is not None:
                last_epoch = _epoch_before(replica.log, replica.digest.end)
                positions = list(replica.digest.positions)
                written.append(_Written(replica.topic_id, replica.partition, last_epoch, positions))
        return _File(0, written)

    def _write(self, file: _File) -> None:
        """Write the file without a sync: what a lost kernel leaves is checked when it is read."""
        try:
            self._disk.write_atomically(self._path, msgspec.json.encode(file), durable=False)
        except OSError as error:
            _log.warning("digests not stored", extra={"error": str(error)})

    def _read(self) -> dict[TopicPartition, _Written]:
        try:
            file = msgspec.json.decode(self._disk.read(self._path), type=_File)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        if file.version != 0:
            return {}
        return {(TopicId(each.topic_id), each.partition): each for each in file.digests}


def _count(data: memoryview, digest: ReplicaDigest, now_ms: int) -> None:
    position = 0
    while position < len(data):
        header = read_header(data, position)
        batch = data[position : position + header.size_bytes]
        position += header.size_bytes
        if header.base_offset == digest.end:
            digest.add(batch, header.next_offset, now_ms)
        else:  # a log that begins within a batch: the next one is the first that is all here
            digest.restart(header.next_offset)


def _epoch_before(log: PartitionLog, offset: Offset) -> LeaderEpoch:
    """Return the epoch of the record before `offset`.

    It differs once the log was truncated below.
    """
    entries = log.epoch_entries
    found = bisect_right(entries, offset - 1, key=lambda entry: entry[1])
    return entries[found - 1][0] if found else LeaderEpoch(NO_EPOCH)
