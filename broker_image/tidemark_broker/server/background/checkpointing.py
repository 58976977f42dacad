"""Write checkpoints and apply retention from time to time.

High watermarks are written every few seconds; recovery points and log starts every minute, soon
after the start, after a number of bytes and after each truncation, with retention around them. With
them the synced prefixes of logs that have grown are written: a start after a kill has to read, and
write again, only what came after that (0065, 0074).

Workers sync, the loop decides. On a full disk checkpoints use the space that is reserved for them
(0085). Without that, all this would wait, except what is deleted: an older checkpoint loses
nothing. Any other error ends serving (S8).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tidemark_protocol.ids import NO_EPOCH, Offset

from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.replication.log_start_offset import (
    LogStartAdvances,
    advance_log_starts,
    delete_segments,
)
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.replication.roles import REPLICAS_AT_A_TIME
from tidemark_broker.server.config import CheckpointIntervals

REMOVED_GRACE_SECONDS = 60.0  # Kafka: file.delete.delay.ms
FIRST_PASS_SECONDS = 5.0  # a broker that dies every few seconds needs recovery points too
LOOK_SECONDS = 1.0  # at how much was appended
DELETING_AT_A_TIME = 50  # logs: each segment that goes is a rename

_log = logging.getLogger(__name__)


class CheckpointWriter(PartitionObserver):
    def __init__(
        self,
        partitions: ReplicaManager,
        directory: LogManager,
        wall_clock_s: Callable[[], float],
        settings: CheckpointIntervals,
    ) -> None:
        self._partitions = partitions
        self._directory = directory
        self._wall_clock_s = wall_clock_s
        self._settings = settings
        self._has_truncated = asyncio.Event()

    def on_truncate(self, replica: Partition) -> None:
        """Request new recovery points after a truncation.

        The recovery point of that log was lowered before the truncation, but not synced: after a
        kernel's death what follows would be unverified.
        """
        self._has_truncated.set()

    @property
    def _is_registered(self) -> bool:
        """Return whether the broker is registered (S9).

        Until the controller knows it, a watermark above the end of its log is the only evidence
        that records are gone.
        """
        return self._partitions.broker_epoch != NO_EPOCH

    async def run_high_watermarks(self, interval_seconds: float) -> None:
        """Write high watermarks until cancelled, or until the disk failed."""
        written: dict[Any, Any] = {}
        while True:
            await asyncio.sleep(interval_seconds)
            truncations = self._directory.truncations
            current = self._partitions.high_watermarks()
            if current == written or not self._is_registered:
                continue
            write = partial(
                self._directory.checkpoint_high_watermarks, current, truncations=truncations
            )
            if await self.in_worker(write):
                written = current if truncations == self._directory.truncations else {}
            elif self._partitions.is_stopped:
                return

    async def run_recovery_points(self) -> None:
        """Write recovery points until cancelled, or until the disk failed."""
        wait_seconds = min(FIRST_PASS_SECONDS, self._settings.interval_seconds)
        passed_bytes = 0
        while not self._partitions.is_stopped:
            await self._until_due(wait_seconds, passed_bytes + self._settings.appended_bytes)
            self._has_truncated.clear()
            if self._is_registered:
                passed_bytes = self._directory.appended_bytes
                await self.pass_once()
                wait_seconds = self._settings.interval_seconds
            else:  # it may wait for just that space
                await self.in_worker(self._delete_removed)

    async def _until_due(self, wait_seconds: float, appended_bytes: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                while not await self._is_truncated_within(LOOK_SECONDS):
                    if self._directory.appended_bytes >= appended_bytes:
                        return

    async def _is_truncated_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._has_truncated.wait()
        return False

    async def pass_once(self) -> None:
        """Advance log starts by retention, make them durable, then delete what lies below."""
        try:
            raised = await self._advance_log_starts()
            await self._write_synced_prefixes()
            await self.in_worker(self._directory.checkpoint_recovery_points)
            if not self._partitions.is_stopped:
                await self._delete_segments(raised.as_far_as(self._directory.durable_log_starts))
        except (StorageError, OSError) as error:
            self._partitions.fail_storage(error)
        await self.in_worker(self._delete_removed)

    async def _advance_log_starts(self) -> LogStartAdvances:
        """Advance log starts, a few replicas at a time."""
        replicas = self._partitions.replicas
        starts: list[tuple[Partition, Offset]] = []
        for at in range(0, len(replicas), REPLICAS_AT_A_TIME):
            raised = advance_log_starts(
                replicas[at : at + REPLICAS_AT_A_TIME],
                wall_ms=int(self._wall_clock_s() * 1000),
                kept=self._partitions.metadata.retained,
            )
            starts += raised.starts
            await asyncio.sleep(0)
        return LogStartAdvances(tuple(starts))

    async def _delete_segments(self, raised: LogStartAdvances) -> None:
        for at in range(0, len(raised.starts), DELETING_AT_A_TIME):
            if self._partitions.is_stopped:
                return
            delete_segments(LogStartAdvances(raised.starts[at : at + DELETING_AT_A_TIME]))
            await asyncio.sleep(0)

    async def _write_synced_prefixes(self) -> None:
        """Write synced prefixes, one log after the other.

        An index of a large segment is megabytes, and is copied here.
        """
        for number, log in enumerate(list(self._directory.logs.values())):
            if number % REPLICAS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            due = log.pending_prefix(growth_bytes=self._settings.growth_bytes)
            if due is not None and not self._partitions.is_stopped:
                await self.in_worker(log.write_synced_prefix, due)

    def _delete_removed(self) -> None:
        self._directory.delete_removed(now_s=self._wall_clock_s(), grace_s=REMOVED_GRACE_SECONDS)

    async def in_worker(self, work: Callable[..., object], *arguments: Any) -> bool:
        """Run work in a worker; False if it was not done.

        There is no space, or the disk failed and serving ends.
        """
        try:
            await asyncio.to_thread(work, *arguments)
        except DiskFull as error:
            _log.warning("checkpoint deferred, no disk space", extra={"error": str(error)})
            return False
        except (StorageError, OSError) as error:
            self._partitions.fail_storage(error)
            return False
        return True
