"""Render the text that Prometheus scrapes, without blocking the data path.

A few partitions at a time are read and written as text, then other tasks run: a worker thread would
hold the interpreter's lock whenever the machine takes its processor away, and the loop would wait
for both. Compression runs in a worker, which needs no lock for it. Two scrapes at once (a pair of
Prometheus servers) wait for one another.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

from tidemark_broker.metrics.broker_metrics import BrokerFacts, render_broker, render_process
from tidemark_broker.metrics.partition_metrics import PartitionExposition
from tidemark_broker.replication.partition_snapshot import PartitionSnapshot

PARTITIONS_AT_A_TIME = 16  # under a millisecond of the loop
GZIP_LEVEL = 1  # a fortieth of the bytes; higher levels cost more than the network does
WORTH_A_WORKER_BYTES = 64 * 1024
GZIP_FORMAT = zlib.MAX_WBITS + 16

Result = TypeVar("Result")


class MetricsExposition:
    def __init__(
        self,
        snapshots: Callable[[], Iterable[PartitionSnapshot]],
        facts: Callable[[], BrokerFacts],
        others: Callable[[], Iterable[Iterator[str]]],
    ) -> None:
        """Create a renderer; `others` are more families, a few lines each, rendered on the loop."""
        self._snapshots = snapshots
        self._facts = facts
        self._others = others
        self._one_at_a_time = asyncio.Lock()
        # Not the loop's workers: they end before the log directory's lock is given back, and HTTP
        # serves on.
        self._worker = ThreadPoolExecutor(1, "exposition")

    async def rendered(self, *, is_gzipped: bool) -> list[bytes]:
        """Return the body in pieces that may be sent one by one."""
        async with self._one_at_a_time:
            facts = self._facts()
            exposition = PartitionExposition(facts.broker_id, facts.profile)
            for number, cut in enumerate(self._snapshots(), 1):
                exposition.add(cut)
                if number % PARTITIONS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
            packer = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_FORMAT) if is_gzipped else None
            body = []
            # Counting thousands of open files takes milliseconds.
            process = await self._in_worker(lambda: "".join(render_process()))
            for piece in chain(self._pieces(exposition, facts), (process,)):
                data = piece.encode()
                body.append(data if packer is None else await self._packed(packer, data))
                await asyncio.sleep(0)
            if packer is not None:
                body.append(packer.flush())
            return body

    def _pieces(self, exposition: PartitionExposition, facts: BrokerFacts) -> Iterator[str]:
        yield from exposition.pieces()
        yield from render_broker(facts)
        for part in self._others():
            yield from part

    async def _packed(self, packer: "zlib._Compress", data: bytes) -> bytes:
        if len(data) < WORTH_A_WORKER_BYTES:
            return packer.compress(data)
        return await self._in_worker(lambda: packer.compress(data))

    async def _in_worker(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)
