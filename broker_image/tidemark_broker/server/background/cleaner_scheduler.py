"""Compact this broker's logs: one at a time, the dirtiest first, in small steps.

A step is a few milliseconds of a worker, and the pause after it keeps the whole at a slow pace: the
worker shares the interpreter with the loop. The loop adopts finished segments by a few renames.
Leaders and followers compact alike, each below its own high watermark (Kafka: LogCleaner).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from tidemark_broker.kafka_wire.records.errors import CannotCompact, CorruptBatch, StorageError
from tidemark_broker.log.cleaner import (
    CleanedSegments,
    CleanerProgress,
    Compaction,
    CompactionPlan,
    plan_compaction,
)
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import NO_ROOM_ERRORS
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.replication.roles import REPLICAS_AT_A_TIME

BYTES_PER_SECOND = 8 * 1024 * 1024

_log = logging.getLogger(__name__)


class LogCleaner:
    def __init__(
        self,
        partitions: ReplicaManager,
        disk: Disk,
        wall_clock_s: Callable[[], float],
    ) -> None:
        self._partitions = partitions
        self._disk = disk
        self._wall_clock_s = wall_clock_s

    async def run(self, interval_seconds: float) -> None:
        """Compact until cancelled, or until the disk failed."""
        while not self._partitions.is_stopped:
            await asyncio.sleep(interval_seconds)
            await self.pass_once()

    async def pass_once(self) -> int:
        """Compact each log that is due once; return how many were."""
        due = []
        for number, replica in enumerate(self._partitions.replicas):
            if number % REPLICAS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            plan = self._plan(replica)
            if plan is not None:
                due.append((plan.dirty_ratio, number, replica))
        for _, _, replica in sorted(due, reverse=True):
            plan = self._plan(replica)  # time has passed
            if plan is not None and not self._partitions.is_stopped:
                await self._compact(replica, plan)
        return len(due)

    def _plan(self, replica: Partition) -> CompactionPlan | None:
        if replica.log.failure or not replica.log.settings.compacts:
            return None
        try:
            return plan_compaction(
                replica.log.segments,
                replica.log.settings,
                first_dirty_offset=replica.log.cleaned_to,
                frames_checked_to=replica.log.frames_checked_to,
                high_watermark=replica.high_watermark,
                now_ms=self._now_ms(),
            )
        except OSError as error:
            self._partitions.fail_storage(error)
            return None

    def _now_ms(self) -> int:
        return int(self._wall_clock_s() * 1000)

    async def _compact(self, replica: Partition, plan: CompactionPlan) -> None:
        log = replica.log
        begun = log.swaps.begin()
        compaction = Compaction(
            self._disk,
            log.directory,
            plan,
            log.settings,
            now_ms=self._now_ms(),
            producer_ids=log.producers.ids,
        )
        steps = compaction.steps()
        try:
            while (step := await asyncio.to_thread(log.write_data, _next_of, steps)) is not None:
                match step:
                    case CleanerProgress(size_bytes):
                        await asyncio.sleep(size_bytes / BYTES_PER_SECOND)
                    case CleanedSegments():
                        if not await asyncio.to_thread(log.swaps.commit, step.path, begun):
                            return
                        if log.failure or not log.swaps.is_valid(begun):
                            return  # cut or removed while the commit was on its way here
                        log.swap_in(step)
                        step.segment.write_indexes()  # else a start reads all of it
                if log.failure or not log.swaps.is_valid(begun):
                    return  # a cut left other segments than the plan's; the next pass sees them
        except CorruptBatch as error:
            if log.swaps.is_valid(begun):  # else a cut was met half-way
                self._partitions.corrupt.note(
                    replica, compaction.reached_offset, error, "compaction"
                )
            return
        except (StorageError, OSError) as error:
            self._on_error(replica, error)
            return
        log.cleaned_to = log.frames_checked_to = compaction.cleaned_to
        _log.info(
            "log compacted",
            extra={
                "topic": replica.topic,
                "partition": replica.partition,
                "removed_records": compaction.removed_records,
                "cleaned_to": compaction.cleaned_to,
            },
        )

    def _on_error(self, replica: Partition, error: Exception) -> None:
        if isinstance(error, CannotCompact):  # producers chose how to pack: no disk's failure
            where = {"topic": replica.topic, "partition": replica.partition}
            _log.warning("log not compacted", extra={**where, "error": str(error)})
            return
        if replica.log.failure and isinstance(error, OSError):
            return  # the log was removed under our hands
        if isinstance(error, OSError) and error.errno in NO_ROOM_ERRORS:
            _log.warning("compaction deferred, no disk space", extra={"error": str(error)})
            return
        self._partitions.fail_storage(error)


def _next_of(
    steps: Iterator[CleanerProgress | CleanedSegments],
) -> CleanerProgress | CleanedSegments | None:
    return next(steps, None)
