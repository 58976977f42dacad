"""I12, I17 to I21, L6: leaders, locks, placement, moves, deletions, idleness, conditions.

Pure: each function says what is wrong with what the run saw, "" if nothing is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemark_operator.api.broker import BrokerRecord, read_broker
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE
from tidemark_operator.controller.core.reassignment import is_moving
from tidemark_operator.controller.core.views import TopicView
from tidemark_protocol.ids import BrokerId, PartitionEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks.cluster_observer import ClusterObserver, LiveBroker
from tests.simulation.checks.violations import Violation

REGISTERED_FOR_US = 1_000_000  # only such brokers was a placement surely made over
QUIET_SECONDS = 1.0
QUIET_TIMES = 4  # seconds in which nothing became different
NOISY_TIMES = 20  # seconds in all

Replica = tuple[TopicId, int]


def crowded_racks(
    replicas: Collection[BrokerId], racks: Mapping[BrokerId, str], present: Collection[BrokerId]
) -> str:
    """I18: as many racks as there are replicas, or all. `racks`: of all brokers; `present`: those
    that were there when the partition was placed."""
    used = {racks[broker_id] for broker_id in replicas}
    possible = {racks[broker_id] for broker_id in present}
    if len(used) >= min(len(replicas), len(possible)):
        return ""
    return f"replicas {list(replicas)} stand in racks {sorted(used)}, of {sorted(possible)}"


def left_too_early(old: PartitionState, new: PartitionState) -> str:
    """I19: nobody leaves before the whole target is in sync. A move that is cancelled, or gets
    another target, gives up only those that it was adding, and never all that is in sync."""
    leaving = set(old.replicas) - set(new.replicas)
    if leaving and old.in_sync_ids and old.in_sync_ids <= leaving:
        return f"brokers {sorted(leaving)} left, and nobody else was in sync"
    missing = set(new.replicas) - new.in_sync_ids
    if not leaving or not missing or leaving <= set(old.adding_replicas):
        return ""
    return f"brokers {sorted(leaving)} left while {sorted(missing)} were not in sync"


def unnamed_leaderless(view: TopicView) -> str:
    """L6: of each partition that nobody leads a condition says what to do."""
    if view.is_retained:
        return ""
    for state in view.partitions:
        begins = f"partition {state.partition} has no leader"
        if not state.has_leader and not any(text.startswith(begins) for text in view.notices):
            return f"{view.topic.topic}: {begins}, and no condition says so"
    return ""


def check_led_at_rest(cluster: ClusterObserver) -> None:
    """I12: a fenced broker leads nothing, once its controller has nothing left to write. I20: and
    no broker leads what is retained, but while it moves."""
    for record, value, state in cluster.led_at_rest():
        if value.is_retained and not is_moving(state):
            raise Violation("I20", f"{value.name}: {state} is retained, moves not, and is led")
        is_present = record is not None and record.broker_epoch == state.leader_broker_epoch
        if record is None or not is_present or not record.is_live or record.is_stopping:
            raise Violation(
                "I12", f"{value.name}: {state}, all is written, and its leader {record}"
            )


def check_locks(cluster: ClusterObserver, live: Iterable[LiveBroker]) -> None:
    """I17."""
    open_in: dict[str, int] = {}
    for broker in live:
        volume = cluster.open_volume(broker)
        if volume is None:
            continue
        other = open_in.setdefault(volume, broker.process)
        if other != broker.process:
            raise Violation("I17", f"{volume} is open in processes {other} and {broker.process}")


class Erasures:
    """I20: no slice and no replica's files go unless their topic was deleted, or the replica moved
    away. Whoever is in sync has come back, and its log counts again."""

    def __init__(self, was_asked: Callable[[TopicId], bool]) -> None:
        self._was_requested = was_asked
        self._hosted: dict[int, frozenset[Replica]] = {}  # by process
        self._moved_off: dict[tuple[Replica, BrokerId], None] = {}

    def record_state(
        self, topic_id: TopicId, state: PartitionState, brokers: Iterable[Any]
    ) -> None:
        for broker_id in brokers:
            replica = (topic_id, state.partition)
            if broker_id not in state.replicas:
                self._moved_off[replica, broker_id] = None
            elif broker_id in state.in_sync_ids:
                self._moved_off.pop((replica, broker_id), None)

    def on_slice_gone(self, name: str, topic_id: TopicId) -> None:
        if not self._was_requested(topic_id):
            raise Violation("I20", f"slice {name} of topic id {topic_id} is deleted, nobody asked")

    def look(self, broker: LiveBroker) -> None:
        hosted = broker.partitions._hosted.by_id.keys()
        known = self._hosted.get(broker.process)
        if known == hosted:
            return
        self._hosted[broker.process] = frozenset(hosted)
        for replica in () if known is None else sorted(known - hosted):
            is_moved = (replica, broker.broker_id) in self._moved_off
            if not is_moved and not self._was_requested(replica[0]):
                raise Violation(
                    "I20", f"broker {broker.broker_id} removed its replica {replica}, nobody asked"
                )


@dataclass(frozen=True, slots=True)
class _ClockReading:
    requested: int  # writes of slices and Brokers that the store was asked for
    # Without the partition epoch and the resource version, which each write raises.
    states: Mapping[Replica, PartitionState]
    brokers: tuple[BrokerRecord | None, ...]


class QuietTime:
    """I21: applying the same again to a cluster in which all is well writes nothing, second after
    second. What is different afterwards had to be written: leadership that goes back to a preferred
    replica (L5), a broker whose turn in a rolling restart came only now, a storage failure that a
    slow link held back. It has to end all the same. What came late may also be taken back at once,
    as a proposal to shrink an ISR. After either two seconds in a row have to be quiet, as one alone
    is what a slow repetition leaves."""

    def __init__(self, cluster: ClusterObserver) -> None:
        self._cluster = cluster
        self._before = self._moment()
        self._written: list[int] = []  # in each second
        self._unchanged: list[int] = []  # in those after which nothing was different

    def is_over(self) -> bool:
        """At the end of each second, if it is. Raises Violation where it had to be by now."""
        before, now = self._before, self._moment()
        self._before = now
        self._written.append(now.requested - before.requested)
        if (now.states, now.brokers) == (before.states, before.brokers):
            self._unchanged.append(now.requested - before.requested)
        if not any(self._written[-2:]):
            return True
        is_needless = any(self._unchanged) and len(self._unchanged) >= QUIET_TIMES
        if is_needless or len(self._written) >= NOISY_TIMES:
            raise Violation("I21", f"{self._written} writes in seconds where all was well")
        return False

    def _moment(self) -> _ClockReading:
        writes = self._cluster.cluster.store.writes_requested
        return _ClockReading(
            writes[PARTITION_SLICE.kind] + writes[BROKER.kind],
            {
                (topic_id, state.partition): replace(state, partition_epoch=PartitionEpoch(0))
                for _, topic_id, state in self._cluster.served_partitions()
            },
            tuple(read_broker(item) for item in self._cluster.cluster.store.objects(BROKER)),
        )
