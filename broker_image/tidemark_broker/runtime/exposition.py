"""The text that Prometheus scrapes, made outside of the data path.

Cuts are taken on the loop, a few at a time, and let others run in between; text is made and packed
in a worker. Two scrapes at once (a pair of Prometheus servers) wait for one another.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator

from tidemark_broker.runtime.metrics import (
    BrokerFacts,
    MetricsProfile,
    render_broker,
    render_process,
)
from tidemark_broker.runtime.partition_metrics import PartitionExposition
from tidemark_broker.runtime.partition_snapshot import PartitionSnapshot

CUTS_AT_A_TIME = 32  # about a millisecond of the loop
GZIP_LEVEL = 1  # a tenth of the bytes; higher levels cost more than the network does
GZIP_FORMAT = zlib.MAX_WBITS + 16


class Exposition:
    def __init__(
        self,
        snapshots: Callable[[], Iterable[PartitionSnapshot]],
        facts: Callable[[], BrokerFacts],
        others: Callable[[], Iterable[Iterator[str]]],
    ) -> None:
        """`others`: more families, a few lines each, rendered on the loop."""
        self._snapshots = snapshots
        self._facts = facts
        self._others = others
        self._one_at_a_time = asyncio.Lock()

    async def rendered(self, *, is_gzipped: bool) -> list[bytes]:
        """The body, in pieces that may be sent one by one."""
        async with self._one_at_a_time:
            cuts = []
            for cut in self._snapshots():
                cuts.append(cut)
                if len(cuts) % CUTS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
            facts = self._facts()
            rest = "".join(piece for part in self._others() for piece in part)
            return await asyncio.to_thread(_render, cuts, facts, rest, is_gzipped)


def _render(
    cuts: list[PartitionSnapshot], facts: BrokerFacts, rest: str, is_gzipped: bool
) -> list[bytes]:
    pieces = [piece.encode() for piece in _partitions(cuts, facts, facts.profile)]
    pieces += [piece.encode() for piece in (*render_broker(facts), *render_process(), rest)]
    if not is_gzipped:
        return pieces
    packer = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_FORMAT)
    return [*(packer.compress(piece) for piece in pieces), packer.flush()]


def _partitions(
    cuts: list[PartitionSnapshot], facts: BrokerFacts, profile: MetricsProfile
) -> Iterator[str]:
    exposition = PartitionExposition(facts.broker_id, profile)
    for cut in cuts:
        exposition.add(cut)
    return exposition.pieces()
