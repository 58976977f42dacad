"""Find the replicas that a tick may change.

A replica is added when something happened to it, and removed once it is settled, so that a broker
with thousands of idle ones checks none of them. Producers expire by a queue of their own.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping

from tidemark_protocol.ids import TopicId

from tidemark_broker.clock import Clock
from tidemark_broker.replication.core.settled import is_settled
from tidemark_broker.replication.partition import Partition

TICKS_AT_A_TIME = 100  # some microseconds each
EXPIRIES_AT_A_TIME = 100

Key = tuple[TopicId, int]


class ReplicaTicks:
    def __init__(
        self,
        replicas: Mapping[Key, Partition],
        resolve_corruption: Callable[[Partition], None],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._resolve_corruption = resolve_corruption
        self._clock = clock
        self._active: dict[Partition, None] = {}
        self._expiries: list[tuple[int, int, Key]] = []  # when, and in the order of their coming
        self._count = 0
        self.visited = 0  # replicas, since the start

    def add(self, replica: Partition) -> None:
        """Add a new replica."""
        self._active[replica] = None
        self._expect_expiry(0, (replica.topic_id, replica.partition))

    def note(self, replica: Partition) -> None:
        """Add a replica to which something happened."""
        if replica in self._active:
            return
        self._active[replica] = None
        # What may be overdue by now was nobody's before: its lag is judged half a window from here.
        if replica.leader is not None:
            half_ms = replica.replica_lag_max_ms // 2
            replica.next_tick_ms = max(replica.next_tick_ms, self._clock() + half_ms)

    def steps(self) -> Iterator[None]:
        """Do one tick in steps between which other tasks may run."""
        active = tuple(self._active)
        for at in range(0, len(active), TICKS_AT_A_TIME):
            now_ms = self._clock()
            for replica in active[at : at + TICKS_AT_A_TIME]:
                self._visit(replica, now_ms)
            yield
        yield from self._expire_producers()

    def _visit(self, replica: Partition, now_ms: int) -> None:
        self.visited += 1
        if self._replicas.get((replica.topic_id, replica.partition)) is replica:
            replica.on_tick(now_ms)
            self._resolve_corruption(replica)
            if not _is_at_rest(replica):
                return
        self._active.pop(replica, None)

    def _expire_producers(self) -> Iterator[None]:
        self._drop_removed()
        now_ms = self._clock()
        looked_at = 0
        while self._expiries and self._expiries[0][0] <= now_ms:
            _, _, key = heapq.heappop(self._expiries)
            replica = self._replicas.get(key)
            if replica is not None:
                self._expect_expiry(replica.expire_producers(now_ms), key)
            looked_at += 1
            if looked_at % EXPIRIES_AT_A_TIME == 0:
                yield

    def _drop_removed(self) -> None:
        """Drop the queue's entries of removed replicas once they may be the larger part of it.

        They would otherwise stay for the pause between two checks, up to ten minutes: where topics
        come and go all the time, tens of thousands.
        """
        if len(self._expiries) <= 2 * len(self._replicas) + EXPIRIES_AT_A_TIME:
            return
        self._expiries = [entry for entry in self._expiries if entry[2] in self._replicas]
        heapq.heapify(self._expiries)

    def _expect_expiry(self, at_ms: int, key: Key) -> None:
        self._count += 1
        heapq.heappush(self._expiries, (at_ms, self._count, key))


def _is_at_rest(replica: Partition) -> bool:
    if replica.corruption is not None or replica.log.corruption_marker.corruption is not None:
        return False
    return replica.leader is None or is_settled(replica.leader)
