"""Sync logs with `flush: Always` in groups: one worker syncs each log that asked meanwhile.

While a sync runs, appends go on and gather for the next one; a request waits for at most two. The
ages of what is still unsynced tell the controller when a disk hangs (S20).
"""

import asyncio
from collections.abc import Callable

from tidemark_broker.clock import monotonic_ms
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager


class GroupCommit(PartitionObserver):
    def __init__(
        self, partitions: ReplicaManager, *, on_flushed: Callable[[Partition], None]
    ) -> None:
        """Create a group commit; `on_flushed` is called after the replica's own watermark rules."""
        self._partitions = partitions
        self._on_flushed = on_flushed
        self._requested: dict[Partition, int] = {}  # since when
        self._has_requested = asyncio.Event()
        self._oldest_running_ms: int | None = None

    def on_flush_needed(self, replica: Partition) -> None:
        self._requested.setdefault(replica, monotonic_ms())
        self._has_requested.set()

    def oldest_age_ms(self) -> int:
        since = [*self._requested.values()]
        if self._oldest_running_ms is not None:
            since.append(self._oldest_running_ms)
        return monotonic_ms() - min(since) if since else 0

    async def run(self) -> None:
        """Sync until cancelled."""
        while True:
            await self._has_requested.wait()
            self._has_requested.clear()
            requested, self._requested = self._requested, {}
            self._oldest_running_ms = min(requested.values(), default=None)
            # What the flush covers: positions as they are before it begins.
            before = [
                (replica, replica.log.log_end_offset, replica.leader_epoch) for replica in requested
            ]
            try:
                await asyncio.to_thread(_flush_all, list(requested))
            except (StorageError, OSError) as error:
                self._partitions.fail_storage(error)
                return
            finally:
                self._oldest_running_ms = None
            now_ms = monotonic_ms()
            for replica, end_offset, leader_epoch in before:
                replica.on_flushed(end_offset, leader_epoch, now_ms)
                self._on_flushed(replica)
                if replica.needs_flush:
                    self.on_flush_needed(replica)


def _flush_all(replicas: list[Partition]) -> None:
    for replica in replicas:
        replica.log.flush()
