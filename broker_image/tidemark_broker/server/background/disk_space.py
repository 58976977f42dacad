"""Watch the soft disk limit: with low disk space a broker rejects records, all else continues.

Reads, fetches, truncation, retention and compaction need what is left, and a follower must go on as
long as it can: to the last byte except a reserve, which is filled here and from which retention
writes what it has to (`log.disk_reserve`). Checked once a second, in a worker. It ends
automatically, some way above the limit, so that it does not flap. (In Kafka a full disk ends the
broker, and its restart too.)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from tidemark_broker.log.disk import Disk, DiskSpace
from tidemark_broker.replication.replica_manager import ReplicaManager

INTERVAL_SECONDS = 1.0
LEAST_FREE_BYTES = 256 * 1024 * 1024
LEAST_FREE_SHARE = 20  # or a twentieth of a small volume, whichever is less
RESUME_FACTOR = 1.25

_log = logging.getLogger(__name__)


class DiskSpaceMonitor:
    def __init__(
        self,
        disk: Disk,
        directory: Path,
        partitions: ReplicaManager,
        *,
        keep_reserve: Callable[[DiskSpace], None],
        apply_roles: Callable[[], Awaitable[None]],
    ) -> None:
        """Create a monitor; `apply_roles` retries roles that lacked space."""
        self._disk = disk
        self._directory = directory
        self._partitions = partitions
        self._keep_reserve = keep_reserve
        self._apply_roles = apply_roles

    async def run(self) -> None:
        """Watch until cancelled, or until the disk failed."""
        while True:
            try:
                self.note(await asyncio.to_thread(self._check))
            except OSError as error:
                self._partitions.fail_storage(error)
                return
            if not self._partitions.low_disk_space:
                await self._apply_roles()
            await asyncio.sleep(INTERVAL_SECONDS)

    def _check(self) -> DiskSpace:
        space = self._disk.space(self._directory)
        self._keep_reserve(space)
        return space

    def note(self, space: DiskSpace) -> None:
        self._partitions.record_disk_space(space)
        least_bytes = least_free_bytes(space)
        low_disk_space = ""
        if is_short(
            space.free_bytes,
            least_bytes,
            was_below_high_watermark=bool(self._partitions.low_disk_space),
        ):
            low_disk_space = (
                f"the volume of this broker has {space.free_bytes} bytes free, and"
                f" records are rejected below {least_bytes}: delete records,"
                " or lower retention.ms or retention.bytes"
            )
        if bool(low_disk_space) != bool(self._partitions.low_disk_space):
            _log.warning(
                "low disk space, records rejected"
                if low_disk_space
                else "enough disk space, records accepted",
                extra={"free_bytes": space.free_bytes, "least_bytes": least_bytes},
            )
        self._partitions.set_low_disk_space(low_disk_space)


def least_free_bytes(space: DiskSpace) -> int:
    return min(LEAST_FREE_BYTES, space.total_bytes // LEAST_FREE_SHARE)


def is_short(free_bytes: int, least_bytes: int, *, was_below_high_watermark: bool) -> bool:
    return free_bytes < (least_bytes * RESUME_FACTOR if was_below_high_watermark else least_bytes)
