"""Keep facts of a pool that are only reported: planned restarts, clock skew, elections.

No decision depends on them. They are lost when another controller takes over, except a planned
restart, which the next controller recognises by the clean shutdown.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.views import ElectionCounts, ElectionKind

# A broker that is away for longer than this is not being restarted: it is missing.
PLANNED_RESTART_LIMIT_MS = 600_000
SKEW_WINDOW_MS = 60_000
LEADERLESS_GRACE_MS = 60_000  # brokers that start need no human
MAX_LEADERLESS = 10_000


class PlannedRestarts:
    """The brokers from their shutdown until they are in sync again in all their partitions."""

    def __init__(self) -> None:
        self._since_ms: dict[BrokerId, int] = {}
        self._counts: dict[BrokerId, int] = {}

    def __contains__(self, broker_id: BrokerId) -> bool:
        return broker_id in self._since_ms

    def begin(self, broker_id: BrokerId, now_ms: int) -> None:
        if broker_id not in self._since_ms:
            self._since_ms[broker_id] = now_ms
            self._counts[broker_id] = self.count_of(broker_id) + 1

    def count_of(self, broker_id: BrokerId) -> int:
        """Return how many restarts began; a short one may begin and end between two scrapes."""
        return self._counts.get(broker_id, 0)

    def end(self, broker_id: BrokerId) -> None:
        """End the restart of a broker that failed while it served: what follows was not planned."""
        self._since_ms.pop(broker_id, None)

    def evaluate(
        self,
        brokers: dict[BrokerId, BrokerRecord],
        is_in_sync_everywhere: Callable[[BrokerId], bool],
        now_ms: int,
    ) -> None:
        """End the restarts that are over."""
        for broker_id, since_ms in tuple(self._since_ms.items()):
            record = brokers.get(broker_id)
            is_late = now_ms - since_ms > PLANNED_RESTART_LIMIT_MS
            is_back = record is not None and record.state is BrokerControlState.ACTIVE
            if is_late or (is_back and is_in_sync_everywhere(broker_id)):
                del self._since_ms[broker_id]


class LeaderlessSince:
    """The times from which partitions have no leader, as far as that was asked."""

    def __init__(self) -> None:
        self._now_ms = 0
        self._since_ms: dict[tuple[TopicId, int, LeaderEpoch], int] = {}

    def is_lasting(self, topic_id: TopicId, state: PartitionState) -> bool:
        """Return whether the partition has had no leader for the grace period."""
        if len(self._since_ms) > MAX_LEADERLESS:
            self._since_ms.clear()  # of partitions that have leaders again, most of them
        key = (topic_id, state.partition, state.leader_epoch)
        return self._now_ms - self._since_ms.setdefault(key, self._now_ms) >= LEADERLESS_GRACE_MS

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms


class ClockSkews:
    """How far each broker's wall clock is ahead of ours.

    A message's delay only makes it look slower, so the highest of some readings is the best.
    """

    def __init__(self) -> None:
        self._highest: dict[BrokerId, tuple[int, int]] = {}  # (skew, when), this window's
        self._previous: dict[BrokerId, tuple[int, int]] = {}  # the window's before

    def note(self, broker_id: BrokerId, skew_ms: int, now_ms: int) -> None:
        known = self._highest.get(broker_id)
        if known is not None and now_ms - known[1] < SKEW_WINDOW_MS:
            self._highest[broker_id] = (max(known[0], skew_ms), known[1])
            return
        if known is not None:
            self._previous[broker_id] = known
        self._highest[broker_id] = (skew_ms, now_ms)

    def of(self, broker_id: BrokerId) -> int | None:
        """Return the skew in milliseconds, or None without a reading."""
        readings = (self._highest.get(broker_id), self._previous.get(broker_id))
        return max((reading[0] for reading in readings if reading is not None), default=None)


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """A partition's new leader; `kind` is that of ElectionKind."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    previous_leader: BrokerId
    kind: str


@dataclass(frozen=True, slots=True)
class InSyncChange:
    """A partition's new ISR, and which brokers left and joined it."""

    partition: int
    isr: tuple[BrokerId, ...]
    left: tuple[BrokerId, ...]
    joined: tuple[BrokerId, ...]


def in_sync_changes(previous: PartitionSlice | None, durable: PartitionSlice) -> list[InSyncChange]:
    """Return the changes of ISRs between two durable states of a slice."""
    before = {} if previous is None else {state.partition: state for state in previous.partitions}
    changes = []
    for after in durable.partitions:
        known = before.get(after.partition)
        if known is None or known.in_sync_replicas == after.in_sync_replicas:
            continue
        old, new = known.in_sync_ids, after.in_sync_ids
        if old != new:
            isr = tuple(member.broker_id for member in after.in_sync_replicas)
            left, joined = tuple(sorted(old - new)), tuple(sorted(new - old))
            changes.append(InSyncChange(after.partition, isr, left, joined))
    return changes


@dataclass(slots=True)
class Observations:
    planned_restarts: PlannedRestarts = field(default_factory=PlannedRestarts)
    clock_skews: ClockSkews = field(default_factory=ClockSkews)
    leaderless: LeaderlessSince = field(default_factory=LeaderlessSince)
    elections: ElectionCounts = field(default_factory=ElectionCounts)
    # The broker epoch that the broker's next registration ended, before it was fenced.
    ended_epochs: dict[BrokerId, BrokerEpoch] = field(default_factory=dict)

    def record_next_epoch(self, stored: BrokerRecord, clean_stop_epoch: BrokerEpoch) -> None:
        """Record that another process registers, maybe before the stored one was missed."""
        self.ended_epochs[stored.broker_id] = stored.broker_epoch
        if stored.state is BrokerControlState.ACTIVE and clean_stop_epoch != stored.broker_epoch:
            self.planned_restarts.end(stored.broker_id)

    def record_slice(
        self,
        previous: PartitionSlice | None,
        durable: PartitionSlice,
        brokers: dict[BrokerId, BrokerRecord],
    ) -> list[LeaderChange]:
        """Record and return the elections between two durable states of a slice."""
        if previous is None:
            return []
        changes = []
        before = {state.partition: state for state in previous.partitions}
        for after in durable.partitions:
            known = before.get(after.partition)
            if known is None or not after.has_leader or known.leader_epoch >= after.leader_epoch:
                continue
            unclean_election = durable.unclean_election_of(after.partition)
            if unclean_election is not None and unclean_election.leader_epoch == after.leader_epoch:
                kind = ElectionKind.UNCLEAN
            elif self._is_live(known, brokers) or after.leader in self.planned_restarts:
                kind = ElectionKind.PLANNED
            else:
                kind = ElectionKind.CLEAN
            self.elections.note((durable.topic.topic_id, after.partition), kind)
            changes.append(
                LeaderChange(
                    after.partition, after.leader, after.leader_epoch, known.leader, kind.value
                )
            )
        return changes

    def _is_live(self, state: PartitionState, brokers: dict[BrokerId, BrokerRecord]) -> bool:
        leader = brokers.get(state.leader)
        return (
            leader is not None
            and leader.is_live
            and leader.broker_epoch == state.leader_broker_epoch
            and self.ended_epochs.get(state.leader) != leader.broker_epoch
        )
