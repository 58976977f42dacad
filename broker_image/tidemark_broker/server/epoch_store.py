"""Store on the volume what a controller's response must not count without (S16).

A full disk is not a failed one: the response waits, and with it the session, until there is space
again.
"""

import asyncio
from collections.abc import Callable

from tidemark_protocol.ids import BrokerEpoch, ControllerEpoch

from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.replication.replica_manager import ReplicaManager

RETRY_SECONDS = 1.0


class LogDirectoryEpochStore:
    """The `EpochStore` of the log directory."""

    def __init__(
        self,
        directory: LogManager,
        partitions: ReplicaManager,
        *,
        record_problem: Callable[[str, str], None],
    ) -> None:
        """Create a store; `record_problem` takes what waits, and why."""
        self._directory = directory
        self._partitions = partitions
        self._record_problem = record_problem

    async def store(self, broker_epoch: BrokerEpoch, controller_epoch: ControllerEpoch) -> bool:
        directory = self._directory
        if (
            controller_epoch > directory.highest_controller_epoch
            or broker_epoch > directory.highest_broker_epoch
        ):
            try:
                await self.write(directory.record_epochs, broker_epoch, controller_epoch)
            except StorageError as error:
                self._partitions.fail_storage(error)
                return False
        return True

    async def write(self, work: Callable[..., object], *arguments: object) -> None:
        """Write in a worker; retry while the disk is full.

        Raises StorageFailed.
        """
        while True:
            try:
                await asyncio.to_thread(work, *arguments)
                return
            except DiskFull as error:
                self._record_problem("a response is deferred, no disk space", str(error))
                await asyncio.sleep(RETRY_SECONDS)
