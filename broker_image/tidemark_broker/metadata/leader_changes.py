"""Wait for leader changes before answering which brokers lead (docs/decisions/0063).

A client whose leader dies asks another broker immediately, before the controller has moved
leadership and often before that broker itself has seen its connection to the leader break: a
response of that moment names the dead leader again, and librdkafka asks again only a second later.
So a metadata request waits for `NOTICE_SECONDS`, and while a suspect leads what it asks for until
that is decided, for `VERDICT_SECONDS` at most. And a broker that was live a moment ago stays in the
response: librdkafka forgets the new leader too when the old one disappears in the same response.
"""

import asyncio
import contextlib
from collections.abc import Collection

from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tidemark_broker.clock import Clock, Scheduler, Timer, monotonic_ms
from tidemark_broker.metadata.metadata_cache import MetadataCache

NOTICE_SECONDS = 0.02
VERDICT_SECONDS = 0.3
REPORTED_MS = 3_000  # after it was live for the last time


class LeaderChanges:
    def __init__(
        self, metadata: MetadataCache, *, scheduler: Scheduler, clock: Clock = monotonic_ms
    ) -> None:
        self._metadata = metadata
        self._scheduler = scheduler
        self._clock = clock
        self._live: frozenset[BrokerId] = frozenset()
        self._left_at_ms: dict[BrokerId, int] = {}
        self._suspects: dict[BrokerId, tuple[BrokerEpoch, Timer]] = {}
        self._waited_for: dict[BrokerId, BrokerEpoch] = {}  # in this life of theirs
        self._doubtful: frozenset[str] = frozenset()  # topics of which suspects lead something
        self._is_stopped = False
        self._changed = asyncio.Event()  # set when the topics in doubt are others, and replaced
        metadata.on_image(self.on_metadata)

    async def verdicts(self, topics: Collection[str] | None) -> None:
        """Wait until what metadata say of the leaders of these topics (None: of all) is decided."""
        await asyncio.sleep(NOTICE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VERDICT_SECONDS):
                while self._is_in_doubt(topics):
                    await self._changed.wait()

    def _is_in_doubt(self, topics: Collection[str] | None) -> bool:
        return bool(self._doubtful) if topics is None else not self._doubtful.isdisjoint(topics)

    def suspect(self, broker_id: BrokerId) -> None:
        """Suspect a broker whose connection broke.

        It is waited for once in an epoch, because connections may be refused for long.
        """
        broker = self._metadata.brokers.get(broker_id)
        if self._is_stopped or broker is None or broker.is_fenced:
            return
        if self._waited_for.get(broker_id) == broker.broker_epoch:
            return
        self._waited_for[broker_id] = broker.broker_epoch
        previous = self._suspects.pop(broker_id, None)  # of a life before this one
        if previous is not None:
            previous[1].cancel()
        timer = self._scheduler.call_later(VERDICT_SECONDS, lambda: self._clear(broker_id))
        self._suspects[broker_id] = (broker.broker_epoch, timer)
        self._check()

    def on_response(self, broker_id: BrokerId) -> None:
        """Clear a suspect that answered: only a connection was lost.

        An accepted connection would not show that: the kernel accepts one for a stopped process.
        """
        self._waited_for.pop(broker_id, None)
        self._clear(broker_id)

    def on_metadata(self) -> None:
        brokers = self._metadata.brokers
        live = frozenset(each for each, broker in brokers.items() if not broker.is_fenced)
        now_ms = self._clock()
        for broker_id in self._live - live:
            self._left_at_ms[broker_id] = now_ms
        for broker_id in live:
            self._left_at_ms.pop(broker_id, None)
        self._live = live
        for broker_id, (broker_epoch, _) in tuple(self._suspects.items()):
            if broker_id not in live or brokers[broker_id].broker_epoch != broker_epoch:
                self._clear(broker_id)
        if self._suspects:
            self._check()

    def live_and_stopping(self) -> list[BrokerState]:
        """Return live brokers and those that left a moment ago, by id."""
        since_ms = self._clock() - REPORTED_MS
        return [
            broker
            for broker_id, broker in sorted(self._metadata.brokers.items())
            if not broker.is_fenced or self._left_at_ms.get(broker_id, since_ms - 1) >= since_ms
        ]

    def stop(self) -> None:
        """Stop waiting permanently; followers here may go on for a while."""
        self._is_stopped = True
        for broker_id in tuple(self._suspects):
            self._clear(broker_id)

    def _clear(self, broker_id: BrokerId) -> None:
        cleared = self._suspects.pop(broker_id, None)
        if cleared is not None:
            cleared[1].cancel()
            self._check()

    def _check(self) -> None:
        """Check once for all waiting requests: there may be many, and many partitions."""
        topics, states = self._metadata.topics_by_id, self._metadata.partitions
        doubtful = frozenset(
            topics[topic_id].topic
            for (topic_id, _), state in (states.items() if self._suspects else ())
            if state.leader in self._suspects and topic_id in topics
        )
        if doubtful != self._doubtful:
            self._doubtful = doubtful
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
