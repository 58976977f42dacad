"""Apply the controller's pushes one after the other, in steps that block nothing.

Workers create and remove logs, many at a time; roles are applied on the loop, a few at a time.
Heartbeats continue meanwhile. They name the version that was applied before, so each response
brings a push again that has at least what the one under way has: only the newest is kept.
"""

import asyncio
import logging
from collections.abc import Callable

from tidemark_protocol.controller_messages import HeartbeatRequest, MetadataPush
from tidemark_protocol.ids import ControllerEpoch, TopicId

from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.log_manager import LogKey, LogManager
from tidemark_broker.metadata.received_push import ReceivedPush
from tidemark_broker.replication.replica_manager import ReplicaManager

_log = logging.getLogger(__name__)


class AppliedPushes:
    def __init__(
        self,
        partitions: ReplicaManager,
        directory: LogManager,
        *,
        controller_epoch: Callable[[], ControllerEpoch],
        on_grown: Callable[[], None],
    ) -> None:
        """Create a queue; `controller_epoch` returns the highest one received."""
        self._applying = asyncio.Lock()
        self._controller_epoch = controller_epoch
        self._on_grown = on_grown
        self._partitions = partitions
        self._directory = directory
        self._newest = (-1, -1)  # (controller epoch, image version) of those that came
        self._under_way = (-1, -1)

    async def apply(self, request: HeartbeatRequest, push: ReceivedPush) -> bool:
        """Apply the push of a heartbeat's response; False if another push has all of it.

        Raises MalformedMessage.
        """
        version = (push.controller_epoch, push.image_version)
        self._newest = max(self._newest, version)
        if version == self._under_way:
            async with self._applying:  # else it would be asked for over and over
                return False
        async with self._applying:
            if version < self._newest or self._is_applied(request, version):
                return False
            self._under_way = version
            try:
                return await self._apply(await push.decoded())
            finally:
                self._under_way = (-1, -1)

    async def _apply(self, push: MetadataPush) -> bool:
        """Apply a push; False if its controller is deposed (I16).

        The next controller sends all of it again.
        """
        if push.controller_epoch < self._controller_epoch():
            return False
        for work in self._partitions.applying(push):
            if work.make:
                await asyncio.to_thread(self._create_logs, work.make)
                self._on_grown()
            elif work.remove:
                await self._remove_logs(work.remove)
            else:
                await asyncio.sleep(0)
            if push.controller_epoch < self._controller_epoch():
                return False
        return True

    def _is_applied(self, request: HeartbeatRequest, version: tuple[int, int]) -> bool:
        """Return whether the version was applied since that heartbeat was sent."""
        metadata = self._partitions.metadata
        requested_with = (request.applied_controller_epoch, request.applied_image_version)
        return version == (metadata.controller_epoch, metadata.image_version) != requested_with

    async def retry_failed_roles(self) -> None:
        """Retry roles that a full disk prevented; there is space now."""
        roles = self._partitions.roles
        if not roles.failed_roles.keys:
            return
        async with self._applying:
            missing = roles.logs_to_retry()
            if missing:
                await asyncio.to_thread(self._create_logs, missing)
            if not self._partitions.is_stopped:
                self._partitions.retry_failed_roles()

    def _create_logs(self, missing: tuple[tuple[str, TopicId, int], ...]) -> None:
        try:
            self._directory.create_logs(missing)
        except Exception as error:
            # Tried again, and judged, when the state is applied.
            _log.error("logs not created", extra={"topic": missing[0][0], "error": str(error)})

    async def _remove_logs(self, removed: tuple[LogKey, ...]) -> None:
        try:
            await asyncio.to_thread(self._directory.remove_logs, removed)
        except (StorageError, OSError) as error:
            self._partitions.fail_storage(error)
