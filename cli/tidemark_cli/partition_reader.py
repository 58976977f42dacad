"""Reads one partition for `tidemark consume`: from where, in pages, until when.

It waits out changes of leader, says so when nobody answers for long, and ends where the topic is
gone: deleted, or another one of the same name.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidemark_client.client import TidemarkClient
from tidemark_client.cluster_status import read_broker_addresses
from tidemark_client.leader_lookup import NoResponse, UnknownTopic
from tidemark_client.outcomes import BrokerError, ConsumedRecord, OffsetRange, RecordPage

from tidemark_cli.kafka_requests import KafkaFailed, offset_at

PAUSE_SECONDS = 0.05
# How long a topic is asked for that brokers say there is not: some may lag behind.
GONE_SECONDS = 1.0
ASK_PAUSE_SECONDS = 0.25
SAY_AFTER_SECONDS = 5.0
SAY_AGAIN_SECONDS = 60.0
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
REPLACED = "it was deleted meanwhile, and another topic has its name"

T = TypeVar("T")
Say = Callable[[str], None]


class TopicGone(Exception):
    """Report that the topic being read was deleted or replaced; the message says which."""


@dataclass(frozen=True, slots=True)
class Start:
    """`earliest`, `latest`, an offset, a time in ms, or so many offsets before the end."""

    text: str = "latest"
    tail: int | None = None
    time_ms: int | None = None

    @property
    def is_offset(self) -> bool:
        return self.tail is None and self.time_ms is None and self.text.isdecimal()

    def offset_in(self, found: OffsetRange) -> int:
        if self.tail is not None:
            return max(found.log_start_offset, found.high_watermark - self.tail)
        if self.is_offset:
            return int(self.text)
        return found.log_start_offset if self.text == "earliest" else found.high_watermark


class TopicWatch:
    """Notice when a topic is deleted or replaced, for all its readers."""

    def __init__(self, client: TidemarkClient, topic: str, topic_id: str) -> None:
        self._client = client
        self._topic = topic
        self._topic_id = topic_id
        self._unknown_since: float | None = None
        self._ask_at = 0.0

    def note(self, topic_id: str) -> None:
        """Compare the id of a log that was read; "" is not known. Raises TopicGone."""
        if topic_id not in ("", self._topic_id):
            raise TopicGone(REPLACED)

    async def check(self, *, at_once: bool = False) -> None:
        """Asks now and then, or at once. Raises TopicGone."""
        now = asyncio.get_running_loop().time()
        if now < self._ask_at and not at_once:
            return
        self._ask_at = now + ASK_PAUSE_SECONDS
        try:
            view = await self._client.lookup.ask_topic(self._topic)
        except NoResponse:
            return
        except UnknownTopic as error:
            self._unknown_since = now if self._unknown_since is None else self._unknown_since
            if now - self._unknown_since >= GONE_SECONDS:
                raise TopicGone("it was deleted meanwhile") from error
            return
        self._unknown_since = None
        if view.topic_id != self._topic_id:
            raise TopicGone(REPLACED)


class PartitionReader:
    def __init__(
        self,
        client: TidemarkClient,
        watch: TopicWatch,
        topic: str,
        partition: int,
        *,
        start: Start,
        ends: bool,
        say: Say,
    ) -> None:
        """Create a reader; `ends` stops it at the end at its beginning, `say` prints remarks."""
        self._client = client
        self._watch = watch
        self._place = (topic, partition)
        self._name = f"{topic}-{partition}"
        self._start = start
        self._ends = ends
        self._say = say

    async def pages(self) -> AsyncGenerator[tuple[ConsumedRecord, ...], None]:
        """Yield records as they are fetched.

        Raises BrokerError for what a retry does not mend, TopicGone, UnreadableResponse.
        """
        offset, end = await self._begin()
        fetch = self._fetch(offset, end)
        try:
            while fetch is not None:
                page = await fetch
                fetch = self._fetch(page.next_offset, end)  # while its caller works on this one
                if end is not None and page.records and page.records[-1].offset >= end:
                    yield tuple(record for record in page.records if record.offset < end)
                elif page.records:
                    yield page.records
        finally:
            if fetch is not None:
                fetch.cancel()
                await asyncio.gather(fetch, return_exceptions=True)

    async def _begin(self) -> tuple[int, int | None]:
        """Return the first offset to read, and the offset to end before."""
        if self._start.is_offset and not self._ends:
            return int(self._start.text), None
        found = await self._until_responded(lambda: self._client.offsets(*self._place))
        time_ms = self._start.time_ms
        if time_ms is not None:
            first = await self._until_responded(lambda: self._offset_at(time_ms))
            first = first if first >= 0 else found.high_watermark
            return first, found.high_watermark if self._ends else None
        return self._start.offset_in(found), found.high_watermark if self._ends else None

    async def _offset_at(self, time_ms: int) -> int:
        """Return the offset of the first record at or after a time; -1 if there is none.

        Raises BrokerError.
        """
        topic, partition = self._place
        try:
            await self._client.topic(topic)  # a broker asked now: leaders move
            addresses = read_broker_addresses(await self._client.lookup.ask("/brokers"))
            view = self._client.lookup.metadata.partition(topic, partition)
            leader = None if view is None else addresses.get(view.leader)
            if leader is not None:
                return await offset_at(leader, self._place, time_ms)
        except (KafkaFailed, NoResponse, UnknownTopic) as error:
            raise BrokerError("LEADER_NOT_AVAILABLE", str(error), is_retriable=True) from error
        message = f"{self._name}: no leader with a Kafka port"
        raise BrokerError("LEADER_NOT_AVAILABLE", message, is_retriable=True)

    def _fetch(self, offset: int, end: int | None) -> "asyncio.Task[RecordPage] | None":
        if end is not None and offset >= end:
            return None
        return asyncio.create_task(self._page(offset), name=f"fetch-{self._name}")

    async def _page(self, offset: int) -> RecordPage:
        try:
            page = await self._until_responded(lambda: self._client.fetch(*self._place, offset))
            self._watch.note(page.topic_id)
            return page
        except BrokerError as rejected:
            is_requested_for = self._start.is_offset and offset == int(self._start.text)
            if rejected.error != OUT_OF_RANGE or is_requested_for:
                raise
            found = await self._until_responded(lambda: self._client.offsets(*self._place))
            first = found.log_start_offset
            if offset >= first:  # the log was cut: there is nothing that follows
                raise
            self._say(
                f"{self._name}: records {offset} to {first - 1} were deleted before they were read"
            )
            return RecordPage((), found.high_watermark, first)

    async def _until_responded(self, ask: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        say_at = loop.time() + SAY_AFTER_SECONDS
        was_rejected = False
        while True:
            try:
                response = await ask()
                if was_rejected:  # another topic of that name answers too
                    await self._watch.check(at_once=True)
                return response
            except BrokerError as rejected:
                was_rejected = True
                if rejected.error == OUT_OF_RANGE:
                    await self._watch.check(at_once=True)
                if not rejected.is_retriable:
                    raise
                if loop.time() >= say_at:
                    say_at = loop.time() + SAY_AGAIN_SECONDS
                    self._say(f"{self._name}: no records: {rejected}; retrying")
            await self._watch.check()
            await asyncio.sleep(PAUSE_SECONDS)
