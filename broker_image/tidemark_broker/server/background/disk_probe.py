"""Probe whether the disk accepts writes: a small write and sync once a second, in a worker.

The age of the last completed one is in each heartbeat: a disk that hangs blocks only the worker,
and the controller moves leadership away (S20). An error ends serving (S8); a full disk and a lack
of file descriptors do not.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tidemark_broker.clock import monotonic_ms
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import NO_ROOM_ERRORS

PROBE_INTERVAL_SECONDS = 1.0
PROBE_FILE = ".disk-probe"


class DiskProbe:
    def __init__(
        self, disk: Disk, directory: Path, *, on_failure: Callable[[Exception], None]
    ) -> None:
        self._disk = disk
        self._path = directory / PROBE_FILE
        self._on_failure = on_failure
        self._last_success_ms = monotonic_ms()

    def age_ms(self) -> int:
        return max(0, monotonic_ms() - self._last_success_ms)

    def on_stall(self, stall_ms: int) -> None:
        """Exclude a stall of this process, which is no evidence about the disk."""
        self._last_success_ms = min(monotonic_ms(), self._last_success_ms + stall_ms)

    async def run(self) -> None:
        """Probe until cancelled, or until the disk failed."""
        while True:
            try:
                await asyncio.to_thread(self._probe)
            except OSError as error:
                if error.errno not in NO_ROOM_ERRORS:
                    self._on_failure(error)
                    return
            self._last_success_ms = monotonic_ms()
            await asyncio.sleep(PROBE_INTERVAL_SECONDS)

    def _probe(self) -> None:
        file = self._disk.open(self._path, create=True)
        file.write_at(0, [b"alive"])
        file.sync()
