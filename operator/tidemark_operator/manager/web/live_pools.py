"""Keep the feeds of the pools that open pages show, and send each change to them.

A pool that no page shows costs nothing: its feed is read when a page opens, and dropped a while
after the last page has gone. Changes of a moment are sent together, ten times a second in the long
run; a few may follow each other at once, so that an election does not wait for what came before.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from tidemark_protocol.controller_messages import encode
from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_operator.controller.core.timeline import (
    BrokerChanged,
    Event,
    PartitionChanged,
    PartitionsCreated,
    TopicRetired,
)
from tidemark_operator.controller.core.views import StateChange
from tidemark_operator.controller.http_api import disk_json
from tidemark_operator.controller.service import ControllerService, NotController
from tidemark_operator.manager.web.broker_reads import BrokerReads
from tidemark_operator.manager.web.catching_up_reads import CatchingUp
from tidemark_operator.manager.web.documents import Document, event_document
from tidemark_operator.manager.web.page_stream import PageStream
from tidemark_operator.manager.web.pool_feed import (
    PARTITIONS_PER_PART,
    TOPIC_COSTS,
    Message,
    PoolFeed,
    message,
)

logger = logging.getLogger(__name__)

NO_POOL = "no broker of any pool has registered yet"
MAX_PAGES = 64
CHANGE_SECONDS = 0.1
GATHER_SECONDS = 0.01  # a fence and the elections that follow it are mostly one change
MAX_CREDIT = 8  # changes that may follow each other at once: a fence with its elections
EVENTS_PER_CHANGE = 300
LATEST_EVENTS = 200  # in a snapshot; the page asks for earlier ones
BEAT_SECONDS = 1.0
UNUSED_SECONDS = 30.0
ASKED_SECONDS = 5.0
EVENT_COSTS = 16  # as much as so many partitions


class TooManyPages(Exception):
    """All streams are taken; the text is for the person who opens one more."""


class UnknownPool(Exception):
    """No broker of that pool has registered."""


class LivePools:
    def __init__(
        self,
        service: ControllerService,
        *,
        wall_clock_ms: Callable[[], int],
        max_pages: int = MAX_PAGES,
        reads: BrokerReads | None = None,
    ) -> None:
        self._service = service
        self._wall_clock_ms = wall_clock_ms
        self._max_pages = max_pages
        self._pools: dict[str, LivePool] = {}
        self.reads = reads or BrokerReads()
        self.opened = 0  # streams
        self._is_closed = False

    def on_change(self, change: StateChange) -> None:
        """Mark what changed. Never waits, and costs nothing while no page shows the pool."""
        live = self._pools.get(change.pool)
        if live is not None:
            live.mark(change)

    @property
    def is_idle(self) -> bool:
        """Return whether no pool is followed."""
        return not self._pools

    async def open(self, pool: str) -> "LivePool":
        """Return the pool, read; "" is the first one. Raises UnknownPool, NotController."""
        return await self._live(pool)

    async def open_page(self, pool: str) -> tuple["LivePool", PageStream]:
        """Open a stream. Raises TooManyPages, UnknownPool, NotController."""
        if self._is_closed or self.opened >= self._max_pages:
            raise TooManyPages(
                f"{self._max_pages} pages are open, no more are served: close one of them"
            )
        self.opened += 1
        try:
            return await self._live(pool), PageStream()
        except BaseException:
            self.opened -= 1
            raise

    def close_page(self, live: "LivePool", page: PageStream) -> None:
        self.opened -= 1
        live.leave(page)

    async def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        pools, self._pools = self._pools, {}
        for live in pools.values():
            await live.close()
        await self.reads.close()

    async def _live(self, pool: str) -> "LivePool":
        pool = pool or next(iter(self._service.pools()), "")
        if pool not in self._service.pools():
            if not self._service.is_leading:
                raise NotController("this controller is on standby: ask the leader")
            known = ", ".join(self._service.pools()[:20])
            raise UnknownPool(f"pool {pool}: expected one of {known}" if known else NO_POOL)
        while (live := self._pools.get(pool)) is not None and live.is_over:
            del self._pools[pool]
            await live.close()
        if live is None:
            live = self._pools[pool] = LivePool(
                self._service,
                pool,
                self.reads,
                wall_clock_ms=self._wall_clock_ms,
                on_end=self._ended,
            )
        await live.loaded()
        return live

    def _ended(self, live: "LivePool") -> None:
        if self._pools.get(live.feed.pool) is live:
            del self._pools[live.feed.pool]


class LivePool:
    """One pool while pages show it."""

    def __init__(
        self,
        service: ControllerService,
        pool: str,
        reads: BrokerReads,
        *,
        wall_clock_ms: Callable[[], int],
        on_end: Callable[["LivePool"], None],
    ) -> None:
        self._service = service
        self._term = service.controller_epoch
        self._wall_clock_ms = wall_clock_ms
        self._on_end = on_end
        self.feed = PoolFeed(pool, self._term)
        self.pages: set[PageStream] = set()
        self._changed_topics: dict[TopicId, None] = {}
        self._changed_names: dict[str, None] = {}
        self._are_brokers_changed = True
        self._news = asyncio.Event()
        self._catching_up = CatchingUp(self.feed, reads, self._send)
        self._timeline = service.timeline(pool)
        self._sent_event = self._timeline.newest
        self._unsubscribe = self._timeline.subscribe(self._on_event)
        self._loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._used_s = asyncio.get_running_loop().time()
        self._asked_s = self._used_s - ASKED_SECONDS  # for figures, without a page
        self._task = asyncio.create_task(self._run(), name=f"live page of {pool}")

    @property
    def is_over(self) -> bool:
        """Return whether another term of a controller began, or this feed ended."""
        service = self._service
        is_other = not service.is_leading or service.controller_epoch != self._term
        return is_other or self._task.done()

    async def loaded(self) -> None:
        """Wait until the pool has been read. Raises NotController."""
        await asyncio.shield(self._loaded)

    def mark(self, change: StateChange) -> None:
        if change.kind == "broker":
            self._are_brokers_changed = True
        else:
            self._changed_names[change.name] = None
        self._news.set()

    def _on_event(self, event: Event) -> None:
        match event.fact:
            case PartitionChanged(topic) | PartitionsCreated(topic) | TopicRetired(topic):
                self._changed_topics[topic.topic_id] = None
            case BrokerChanged():
                self._are_brokers_changed = True
        self._news.set()

    def leave(self, page: PageStream) -> None:
        self.pages.discard(page)
        self._used_s = asyncio.get_running_loop().time()

    def begin(self, page: PageStream, version: str) -> AsyncIterator[bytes]:
        """Begin to send changes to the page; return what it needs before them, in parts."""
        self.pages.add(page)
        missed = self.feed.changes_after(version)
        if missed is None:
            latest = self._timeline.after(self._sent_event - LATEST_EVENTS, LATEST_EVENTS)
            return self._snapshot(self.feed.snapshot(), self.feed.version, latest)
        resumed = message("resumed", encode({"version": version}))
        return _each(resumed, *missed)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, self._catching_up.close(), return_exceptions=True)

    async def figures(self) -> Document:
        """Return what changes all the time: heartbeats, disks, replicas that catch up.

        They are read for as long as somebody asks.
        """
        self._asked_s = self._used_s = asyncio.get_running_loop().time()
        if not self.pages:
            await self._catching_up.refresh()
        pool = self.feed.pool
        silence, disks = self._service.broker_silence_ms(pool), self._service.disk_uses(pool)
        return {
            "pool": pool,
            "nowMs": self._wall_clock_ms(),
            "brokers": [
                {"brokerId": i, "silenceMs": ms, **disk_json(disks.get(i))}
                for i, ms in silence.items()
            ],
            "catchingUp": self._catching_up.documents(),
        }

    async def events(self, after: int, limit: int) -> list[Document]:
        """Return events, oldest first, for a page that wants earlier ones than it has."""
        return await self._documents(self._timeline.after(after, limit))

    async def _snapshot(
        self, parts: Iterator[bytes], version: str, latest: Sequence[Event]
    ) -> AsyncIterator[bytes]:
        event = "begin"
        for part in parts:
            yield message(event, part).body
            event = "part"
            await asyncio.sleep(0)
        ended = {"version": version, "events": await self._documents(latest)}
        yield message("end", encode(ended), version=version).body
        yield self._beat().body
        yield self._catching_up.latest.body

    async def _run(self) -> None:
        try:
            await self._load()
            await self._follow()
        except NotController:
            pass  # pages connect again, and are told who leads
        except Exception:  # the page is no reason to end the operator
            logger.exception("live page failed")
        finally:
            self._unsubscribe()
            if not self._loaded.done():
                self._loaded.set_exception(NotController("the pool could not be read"))
                self._loaded.exception()  # nobody may wait for it
            for page in self.pages:
                page.end()
            self._on_end(self)

    async def _load(self) -> None:
        await self._set_topics(self._service.topic_ids(self.feed.pool))
        self.feed.set_brokers(self._service.brokers(self.feed.pool))
        self.feed.forget_changes()
        self._loaded.set_result(None)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        beat_s = loop.time()
        pace = Pace(loop.time())
        while not self.is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(beat_s):
                    await self._news.wait()
            if loop.time() >= beat_s:
                beat_s = loop.time() + BEAT_SECONDS
                if not self.pages and loop.time() - self._used_s > UNUSED_SECONDS:
                    return
                self._mark_what_time_changes()
                self._send(self._beat())
                if self.pages or loop.time() - self._asked_s < ASKED_SECONDS:
                    self._catching_up.begin()
            await asyncio.sleep(GATHER_SECONDS)
            if await self._send_changes():
                await asyncio.sleep(pace.pause_after(loop.time()))

    def _mark_what_time_changes(self) -> None:
        """Mark what no event tells: skews of clocks, and why a partition still has no leader."""
        self._are_brokers_changed = True
        self._changed_topics.update(dict.fromkeys(self.feed.leaderless))

    async def _send_changes(self) -> bool:
        """Send what changed; return whether anything did."""
        self._news.clear()
        names, self._changed_names = self._changed_names, {}
        topics, self._changed_topics = self._changed_topics, {}
        are_brokers_changed, self._are_brokers_changed = self._are_brokers_changed, False
        for name in names:
            topics.update(dict.fromkeys(self.feed.topic_ids_of(name)))
        if are_brokers_changed:
            self.feed.set_brokers(self._service.brokers(self.feed.pool))
        await self._set_topics(topics)
        events = self._timeline.after(self._sent_event, EVENTS_PER_CHANGE)
        documents = await self._documents(events)
        if events:
            self._sent_event = events[-1].number
        change = self.feed.seal(documents)
        if self._sent_event < self._timeline.newest:
            self._news.set()
        if change is not None:
            self._send(change)
        return change is not None

    async def _set_topics(self, topic_ids: Iterable[TopicId]) -> None:
        """Read these topics; let other tasks run in between."""
        turn = Turn()
        for topic_id in topic_ids:
            view = self._service.topic(self.feed.pool, topic_id)
            for _ in self.feed.set_topic(topic_id, view):
                await turn.spend(PARTITIONS_PER_PART)
            await turn.spend(TOPIC_COSTS + (len(view.partitions) if view else 0))

    async def _documents(self, events: Sequence[Event]) -> list[Document]:
        turn = Turn()
        documents = []
        for event in events:
            documents.append(event_document(event))
            await turn.spend(EVENT_COSTS)
        return documents

    def _beat(self) -> Message:
        """Return that the stream lives, how long brokers have been silent, and their disks."""
        silence: dict[BrokerId, int | None] = self._service.broker_silence_ms(self.feed.pool)
        disks = self._service.disk_uses(self.feed.pool)
        disk = {i: (use.free_bytes, use.size_bytes, use.state.value) for i, use in disks.items()}
        return message(
            "beat", encode({"nowMs": self._wall_clock_ms(), "silenceMs": silence, "disk": disk})
        )

    def _send(self, sent: Message) -> None:
        for page in tuple(self.pages):
            page.push(sent)


class Pace:
    """Bounds how often changes are sent, with a few that need not wait."""

    def __init__(self, now_s: float) -> None:
        self._credit = float(MAX_CREDIT)
        self._at_s = now_s

    def pause_after(self, now_s: float) -> float:
        """Return how long to wait after a change that was sent now."""
        earned = (now_s - self._at_s) / CHANGE_SECONDS
        self._credit = min(MAX_CREDIT, self._credit + earned) - 1
        self._at_s = now_s
        return max(0.0, -self._credit * CHANGE_SECONDS)


class Turn:
    """Bounds the work that a task does before others have their turn, counted in partitions."""

    def __init__(self) -> None:
        self._done = 0

    async def spend(self, partitions: int) -> None:
        self._done += partitions
        if self._done >= PARTITIONS_PER_PART:
            self._done = 0
            await asyncio.sleep(0)


async def _each(*messages: Message) -> AsyncIterator[bytes]:
    for each in messages:
        yield each.body
