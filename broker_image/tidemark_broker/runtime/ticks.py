"""The broker's pulse: leaders judge their followers' lag, and a stall of ours is nobody's (S21).

A process that was frozen, or whose loop was held up, wakes to followers that it did not serve.
Their lag is counted without that time, and what they asked meanwhile is read before anybody is
judged.
"""

import asyncio
import logging

from tidemark_broker.runtime.disk_probe import DiskProbe
from tidemark_broker.runtime.partitions import Partitions

TICK_SECONDS = 0.25
STALL_MS = 250  # a tick later than this was a stall
# Long enough for the loop to look at every connection at least once, whatever order it works in.
FETCHES_FIRST_SECONDS = 0.01

_log = logging.getLogger(__name__)


async def run_ticks(partitions: Partitions, probe: DiskProbe) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await asyncio.sleep(TICK_SECONDS)
        late_ms = int((loop.time() - began - TICK_SECONDS) * 1000)
        if late_ms > STALL_MS:
            _log.warning("this broker stalled", extra={"stall_ms": late_ms})
            probe.on_stall(late_ms)
            for _ in partitions.on_stall(late_ms):
                await asyncio.sleep(0)
            await asyncio.sleep(FETCHES_FIRST_SECONDS)
        for _ in partitions.ticking():
            await asyncio.sleep(0)
