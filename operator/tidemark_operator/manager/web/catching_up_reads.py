"""Read the progress of replicas that catch up from their leaders, each second while a page is open.

One request for each such partition, to the leader that knows its followers, for MAX_PARTITIONS at
most. Without replicas that catch up nothing is read.
"""

import asyncio
from collections.abc import Callable

from tidemark_protocol.controller_messages import encode

from tidemark_operator.manager.web.broker_reads import BrokerReads
from tidemark_operator.manager.web.catching_up import (
    Progress,
    ProgressTracker,
    ReplicaKey,
    replicas_of,
)
from tidemark_operator.manager.web.documents import Document
from tidemark_operator.manager.web.pool_feed import Message, PoolFeed, message

FRESH_SECONDS = 0.9


class CatchingUp:
    def __init__(self, feed: PoolFeed, reads: BrokerReads, send: Callable[[Message], None]) -> None:
        """Create it; `send` gets a message for all pages after each reading."""
        self._feed = feed
        self._reads = reads
        self._send = send
        self._tracker = ProgressTracker()
        self._progress: dict[ReplicaKey, Progress] = {}
        self._topics: dict[ReplicaKey, str] = {}
        self._reading: asyncio.Task[None] | None = None
        self._begun_s = -FRESH_SECONDS

    @property
    def latest(self) -> Message:
        """Return the latest reading for a page."""
        rows = [
            (*key, each.lag_records, each.records_per_second, each.to_go_ms)
            for key, each in self._progress.items()
        ]
        return message("progress", encode({"replicas": rows}))

    def documents(self) -> list[Document]:
        return [
            {
                "topic": self._topics[key],
                "partition": key[1],
                "brokerId": key[2],
                "lagRecords": each.lag_records,
                "recordsPerSecond": each.records_per_second,
                "toGoMs": each.to_go_ms,
            }
            for key, each in self._progress.items()
        ]

    def begin(self) -> None:
        """Begin to read, unless a reading is fresh or there is nothing to read."""
        now_s = asyncio.get_running_loop().time()
        is_under_way = self._reading is not None and not self._reading.done()
        if is_under_way or now_s - self._begun_s < FRESH_SECONDS:
            return
        if self._progress or self._feed.catching_up():
            self._begun_s = now_s
            self._reading = asyncio.create_task(self._read(), name="replicas that catch up")

    async def refresh(self) -> None:
        """Wait for a reading that begins now or is under way, unless there is a fresh one."""
        self.begin()
        if self._reading is not None:
            await asyncio.shield(self._reading)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        wanted, up = self._feed.catching_up(), self._feed.up()
        found = await self._reads.leaders(
            self._feed.pool, tuple(wanted.values()), self._feed.broker_views()
        )
        now_s = asyncio.get_running_loop().time()
        progress: dict[ReplicaKey, Progress] = {}
        topics: dict[ReplicaKey, str] = {}
        for (key, (topic, state)), leader in zip(wanted.items(), found, strict=True):
            ends = (
                {each.broker_id: each.log_end_offset for each in leader.followers} if leader else {}
            )
            for replica in replicas_of([(key, state)], up):
                end = ends.get(replica[2], -1)
                if leader is not None and end >= 0:
                    topics[replica] = topic
                    progress[replica] = self._tracker.record(
                        replica, now_s, leader.log_end_offset, end
                    )
        self._tracker.keep(progress.keys())
        self._progress, self._topics = progress, topics
        self._send(self.latest)
