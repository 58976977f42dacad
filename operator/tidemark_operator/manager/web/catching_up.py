"""Know which replicas catch up, how far behind they are, how quick, and how long they still take.

A replica catches up while its broker is up and the replica is not in the ISR. What is in sync costs
nothing here: only replicas that are not are kept.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import islice

from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

WINDOW_SECONDS = 10.0
LEAST_SECONDS = 0.9  # between two readings, for a rate
MAX_PARTITIONS = 64  # that are read at once

PartitionKey = tuple[TopicId, int]
ReplicaKey = tuple[TopicId, int, BrokerId]


class OutOfSync:
    """The served replicas of a pool that are not in their ISR, by broker."""

    def __init__(self) -> None:
        self._of_broker: dict[BrokerId, dict[PartitionKey, PartitionState]] = {}
        self._brokers: dict[PartitionKey, tuple[BrokerId, ...]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def set(self, topic_id: TopicId, state: PartitionState) -> None:
        """Record a partition's state, which replaces the one before."""
        key = (topic_id, state.partition)
        self.forget(topic_id, state.partition)
        if len(state.in_sync_replicas) == len(state.replicas) or not state.has_leader:
            return
        in_sync = state.in_sync_ids
        self._brokers[key] = tuple(each for each in state.replicas if each not in in_sync)
        for broker_id in self._brokers[key]:
            self._of_broker.setdefault(broker_id, {})[key] = state

    def forget(self, topic_id: TopicId, partition: int) -> None:
        key = (topic_id, partition)
        for broker_id in self._brokers.pop(key, ()):
            del self._of_broker[broker_id][key]

    def catching_up(
        self, up: Iterable[BrokerId], limit: int = MAX_PARTITIONS
    ) -> dict[PartitionKey, PartitionState]:
        """Return some partitions with replicas that catch up on these brokers, each one's share."""
        kept = [self._of_broker[each] for each in up if self._of_broker.get(each)]
        share = -(-limit // max(1, len(kept)))
        found: dict[PartitionKey, PartitionState] = {}
        for partitions in kept:
            found.update(islice(partitions.items(), share))
        return dict(islice(found.items(), limit))


@dataclass(frozen=True, slots=True)
class Progress:
    """How a replica catches up."""

    lag_records: int
    records_per_second: float | None  # that it copies; None: not known yet
    to_go_ms: int | None  # None: not known, or it does not come closer


class ProgressTracker:
    """The latest readings of replicas that catch up."""

    def __init__(self) -> None:
        self._readings: dict[ReplicaKey, deque[tuple[float, int, int]]] = {}

    def record(self, key: ReplicaKey, at_s: float, leader_end: int, end: int) -> Progress:
        """Record the log end offsets of the leader and of the replica; return its progress."""
        readings = self._readings.setdefault(key, deque())
        if readings and end < readings[-1][2]:
            readings.clear()  # truncated, or another log: it starts again
        readings.append((at_s, leader_end, end))
        while at_s - readings[0][0] > WINDOW_SECONDS:
            readings.popleft()
        lag = max(0, leader_end - end)
        first_s, first_leader_end, first_end = readings[0]
        if at_s - first_s < LEAST_SECONDS:
            return Progress(lag, None, None)
        rate = (end - first_end) / (at_s - first_s)
        closing = (first_leader_end - first_end - lag) / (at_s - first_s)
        return Progress(lag, rate, int(1000 * lag / closing) if closing > 0 else None)

    def keep(self, keys: Set[ReplicaKey]) -> None:
        """Forget all other replicas."""
        for key in self._readings.keys() - keys:
            del self._readings[key]


def replicas_of(
    partitions: Iterable[tuple[PartitionKey, PartitionState]], up: Set[BrokerId]
) -> Iterator[ReplicaKey]:
    """Yield the replicas of these partitions that catch up."""
    for (topic_id, number), state in partitions:
        in_sync = state.in_sync_ids
        for broker_id in state.replicas:
            if broker_id in up and broker_id not in in_sync:
                yield topic_id, number, broker_id
