"""Leaders that are leaving, for those who ask where leaders are.

A client whose leader dies asks any other broker at once, before the controller has moved leadership
and often before that broker itself has seen its connection to the leader break: an answer of that
moment names the dead leader again, and librdkafka asks anew a second later only. So who asks waits
for `NOTICE_SECONDS`, and while a leader is a suspect of ours until there is a verdict, for
`VERDICT_SECONDS` at most. And a broker that was live a moment ago stays among the
brokers told: librdkafka forgets the new leader too when the old one disappears in the same answer.
"""

import asyncio

from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tidemark_broker.runtime.metadata import MetadataCache
from tidemark_broker.runtime.scheduling import Clock, Scheduler, Timer, monotonic_ms

NOTICE_SECONDS = 0.02
VERDICT_SECONDS = 0.3
TOLD_MS = 10_000  # after it was live for the last time


class Departures:
    def __init__(
        self, metadata: MetadataCache, *, scheduler: Scheduler, clock: Clock = monotonic_ms
    ) -> None:
        self._metadata = metadata
        self._scheduler = scheduler
        self._clock = clock
        self._live: frozenset[BrokerId] = frozenset()
        self._left_at_ms: dict[BrokerId, int] = {}
        self._suspects: dict[BrokerId, tuple[BrokerEpoch, Timer]] = {}
        self._asked_for: dict[BrokerId, BrokerEpoch] = {}  # suspected in this life, and waited for
        self._settled = asyncio.Event()
        self._settled.set()

    async def verdicts(self) -> None:
        """Returns when what metadata say of leaders is worth telling."""
        await asyncio.sleep(NOTICE_SECONDS)
        await self._settled.wait()

    def suspect(self, broker_id: BrokerId) -> None:
        """Its connection broke. Waited for once in a life, as it may be refused for long."""
        broker = self._metadata.brokers.get(broker_id)
        if broker is None or broker.is_fenced or not self._leads(broker_id):
            return
        if self._asked_for.get(broker_id) == broker.broker_epoch:
            return
        self._asked_for[broker_id] = broker.broker_epoch
        timer = self._scheduler.call_later(VERDICT_SECONDS, lambda: self._end(broker_id))
        self._suspects[broker_id] = (broker.broker_epoch, timer)
        self._settled.clear()

    def on_connected(self, broker_id: BrokerId) -> None:
        """It is there: only a connection was lost."""
        self._asked_for.pop(broker_id, None)
        self._end(broker_id)

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
            is_present = broker_id in live and brokers[broker_id].broker_epoch == broker_epoch
            if not is_present or not self._leads(broker_id):
                self._end(broker_id)

    def brokers_to_tell(self) -> list[BrokerState]:
        """Live ones and those that left a moment ago, by id."""
        since_ms = self._clock() - TOLD_MS
        return [
            broker
            for broker_id, broker in sorted(self._metadata.brokers.items())
            if not broker.is_fenced or self._left_at_ms.get(broker_id, since_ms - 1) >= since_ms
        ]

    def stop(self) -> None:
        for broker_id in tuple(self._suspects):
            self._end(broker_id)

    def _leads(self, broker_id: BrokerId) -> bool:
        return any(state.leader == broker_id for state in self._metadata.partitions.values())

    def _end(self, broker_id: BrokerId) -> None:
        ended = self._suspects.pop(broker_id, None)
        if ended is None:
            return
        ended[1].cancel()
        if not self._suspects:
            self._settled.set()
