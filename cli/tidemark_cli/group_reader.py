"""Reads a topic as a member of a consumer group, for `tidemark consume`.

What was printed is committed after that, so that records are printed again rather than lost when
this process ends in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from tidemark_client.client import TidemarkClient
from tidemark_client.group_consumer import GroupConsumer
from tidemark_client.outcomes import BrokerError, ConsumedRecord

from tidemark_cli.partition_reader import (
    PAUSE_SECONDS,
    SAY_AFTER_SECONDS,
    SAY_AGAIN_SECONDS,
    TopicWatch,
)

COMMIT_TRIES = 3
COMMIT_PAUSE_SECONDS = 0.5
MOST_REJECTIONS = 3  # in a row, of consumers that are made again


class GroupReader:
    """`say` tells people. Close it in any case: its partitions go to others at once then."""

    def __init__(
        self,
        client: TidemarkClient,
        watch: TopicWatch,
        *,
        group: str,
        topic: str,
        reset: str,
        say: Callable[[str], None],
    ) -> None:
        """`reset`: where to begin without a committed offset, `earliest` or `latest`."""
        self._consumer = GroupConsumer(client, group=group, topic=topic, reset=reset)
        self._watch = watch
        self._group = group
        self._topic = topic
        self._say = say

    async def pages(self) -> AsyncGenerator[tuple[ConsumedRecord, ...], None]:
        """Yield records as polls return them; an empty tuple where a poll returned none.

        Raises BrokerError, TopicGone, UnreadableResponse.
        """
        loop = asyncio.get_running_loop()
        say_at = loop.time() + SAY_AFTER_SECONDS
        rejections = 0
        while True:
            try:
                page, topic_id = await self._consumer.poll()
            except BrokerError as rejected:
                rejections += not rejected.is_retriable
                if rejections >= MOST_REJECTIONS:
                    raise
                if loop.time() >= say_at:
                    say_at = loop.time() + SAY_AGAIN_SECONDS
                    self._say(f"group {self._group}: no records: {rejected}; retrying")
                await self._watch.check()
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._watch.note(topic_id)
            rejections, say_at = 0, loop.time() + SAY_AFTER_SECONDS
            if not page:
                await self._watch.check()
            yield page

    async def commit(self, records: Sequence[ConsumedRecord]) -> None:
        """Commit the offsets after these records."""
        offsets = {record.partition: record.offset + 1 for record in records}
        if not offsets or not self._consumer.is_open:
            return
        for left in reversed(range(COMMIT_TRIES)):
            try:
                await self._consumer.commit(offsets)
                return
            except BrokerError as rejected:
                if not left or not rejected.is_retriable:
                    places = ", ".join(f"{self._topic}-{partition}" for partition in offsets)
                    self._say(
                        f"{places}: offsets not committed, records may be read again: {rejected}"
                    )
                    return
            await asyncio.sleep(COMMIT_PAUSE_SECONDS)

    async def has_partitions(self) -> bool:
        return await self._consumer.has_partitions()

    async def close(self) -> None:
        await self._consumer.close()
