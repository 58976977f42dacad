"""Consume as a group while the workload runs, and record what members received and committed."""

import asyncio
import time
from collections.abc import Callable, Sequence

from tidemark_client.client import TidemarkClient
from tidemark_client.group_consumer import GroupConsumer
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import BrokerError, ConsumedRecord

from tidemark_chaos.workload_log import (
    ACKNOWLEDGED,
    REFUSED,
    UNKNOWN,
    Event,
    GroupCommitted,
    GroupRead,
)

PAUSE_SECONDS = 0.1
DRAIN_SECONDS = 30.0  # longer than a session of a member that died
DRAIN_POLL_SECONDS = 0.1


class GroupWorkload:
    """The members of one group; `positions` are those whose commit was acknowledged."""

    def __init__(
        self,
        client: TidemarkClient,
        *,
        group: str,
        topic: str,
        members: int,
        write: Callable[[Event], None],
        now_ms: Callable[[], float],
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._members = members
        self._write = write
        self._now_ms = now_ms
        self._tasks: list[asyncio.Task[None]] = []
        self.positions: dict[int, int] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._consume(number), name=f"group-member-{number}")
            for number in range(self._members)
        ]

    async def drain(self, ends: dict[int, int]) -> dict[int, int]:
        """Wait for a time until positions have come to these ends; return those that have not."""
        until = time.monotonic() + DRAIN_SECONDS
        while True:
            behind = {
                partition: position
                for partition, end in ends.items()
                if (position := self.positions.get(partition, 0)) < end
            }
            if not behind or time.monotonic() > until:
                return behind
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def stop(self) -> None:
        """Let all members leave. Raises what a member ended with."""
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _consume(self, member: int) -> None:
        consumer = GroupConsumer(
            self._client, group=self._group, topic=self._topic, reset="earliest"
        )
        try:
            while True:
                try:
                    records, _ = await consumer.poll()
                except (BrokerError, UnreadableResponse):
                    await asyncio.sleep(PAUSE_SECONDS)  # a broker or coordinator that is gone
                    continue
                positions = self._on_received(member, records)
                if positions:
                    await self._commit(member, consumer, positions)
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await consumer.close()

    def _on_received(self, member: int, records: Sequence[ConsumedRecord]) -> dict[int, int]:
        """Record what a member received; return the positions after it."""
        offsets: dict[int, list[int]] = {}
        for record in records:
            offsets.setdefault(record.partition, []).append(record.offset)
        for partition, received in offsets.items():
            self._write(GroupRead(self._now_ms(), member, partition, received))
        return {partition: received[-1] + 1 for partition, received in offsets.items()}

    async def _commit(
        self, member: int, consumer: GroupConsumer, positions: dict[int, int]
    ) -> None:
        outcome, error = ACKNOWLEDGED, ""
        try:
            await consumer.commit(positions)
        except BrokerError as rejected:
            error = rejected.error
            outcome = UNKNOWN if rejected.is_retriable else REFUSED
        for partition, position in positions.items():
            self._write(GroupCommitted(self._now_ms(), member, partition, position, outcome, error))
            if not error:
                self.positions[partition] = max(position, self.positions.get(partition, 0))
