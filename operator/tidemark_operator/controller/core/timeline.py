"""Keep the latest decisions of one pool's controller as typed events with what decided them.

An event says what changed and holds the operands: states before and after, the brokers as they were
seen, and how long ago the cause was. Its sentence is made when somebody reads it (`event_texts`),
because a broker that fails changes thousands of partitions at once. Nothing is decided by events,
and they are lost when another controller takes over: its first event says since when it knows.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidemark_protocol.ids import NO_BROKER, BrokerEpoch, BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.api.unclean_election import UncleanElection
from tidemark_operator.controller.core.eligibility import Eligibility, Replica
from tidemark_operator.controller.core.observations import LeaderChange

MAX_EVENTS = 10_000
MAX_AGE_MS = 3_600_000

NO_PARTITION = -1


class Cause(Enum):
    """What had the controller change a partition."""

    EVALUATION = "Evaluation"  # of the brokers as they are now: a fence, a drain, a return
    PROPOSAL = "Proposal"  # of the leader, for the ISR
    REJECTION = "Rejection"  # of such a proposal
    BALANCE = "Balance"  # leadership goes back to the first replica
    REQUEST = "Request"  # by a client that asked for the preferred leader
    STALLED_DISK = "StalledDisk"  # of the leader
    REASSIGNMENT = "Reassignment"
    UNKNOWN = "Unknown"  # read from the store, or a change of the topic


@dataclass(frozen=True, slots=True)
class Grounds:
    """What one decision about a partition was made by."""

    after: PartitionState  # the state that was decided
    cause: Cause
    eligibility: Eligibility
    # Of the replicas in order, with this decision counted.
    leader_counts: tuple[int, ...] = ()
    proposer: BrokerId = NO_BROKER


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """One durable change of one partition, which may be of leader, ISR and replicas together."""

    topic: TopicState
    before: PartitionState
    after: PartitionState
    grounds: Grounds | None = None  # None: not decided here
    election: str = ""  # the value of ElectionKind; "" without a new leader
    unclean_election: UncleanElection | None = None
    # Since when brokers that are fenced are that, Unix ms.
    fenced_at_ms: Mapping[BrokerId, int] = field(default_factory=dict)

    @property
    def broker_id(self) -> BrokerId:
        """Return the leader that the change brought or lost, else the broker that moved."""
        if self.after.leader != self.before.leader:
            return self.after.leader if self.after.has_leader else self.before.leader
        moved = set(self.before.in_sync_ids) ^ set(self.after.in_sync_ids)
        return min(moved, default=NO_BROKER)


@dataclass(frozen=True, slots=True)
class PartitionsCreated:
    topic: TopicState
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class TopicRetired:
    """A topic that is not served any more; its data is retained or deleted."""

    topic: TopicState
    is_retained: bool


class BrokerTurn(Enum):
    """What happened to a broker; the values are reasons of events."""

    REGISTERED = "BrokerRegistered"
    ACTIVE = "BrokerActive"
    SUSPECTED = "BrokerSuspected"
    DRAINING = "BrokerDraining"
    FENCED = "BrokerFenced"
    STORAGE_FAILED = "BrokerStorageFailed"
    WRITE_STALLED = "BrokerWriteStalled"
    WRITES_AGAIN = "BrokerWritesAgain"
    RETIRED = "BrokerRetired"


@dataclass(frozen=True, slots=True)
class BrokerChanged:
    turn: BrokerTurn
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    reason: str = ""
    silence_ms: int | None = None  # since its last heartbeat


@dataclass(frozen=True, slots=True)
class ControllerTookOver:
    controller_epoch: ControllerEpoch
    brokers: int
    partitions: int
    # The controller before stepped down because it heard too few brokers (S18).
    is_second_opinion: bool = False


@dataclass(frozen=True, slots=True)
class RollStep:
    """A step of the operator's rolling restart, or why it waits."""

    broker_id: BrokerId
    is_waiting: bool
    reason: str


class PageAction(Enum):
    """What a person can ask for on the live page."""

    ELECT = "elect"
    DRAIN = "drain"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class ActionRequested:
    """An action that a person asked for on the live page, recorded before it is done."""

    action: PageAction
    broker_id: BrokerId
    requested_by: str  # the address of the request
    topic: TopicState | None = None  # of an election
    partition: int = NO_PARTITION


Fact = (
    PartitionChanged
    | PartitionsCreated
    | TopicRetired
    | BrokerChanged
    | ControllerTookOver
    | RollStep
    | ActionRequested
)


@dataclass(frozen=True, slots=True)
class Event:
    number: int  # from 1 on in each term of a controller
    at_ms: int  # Unix
    fact: Fact

    @property
    def topic(self) -> str:
        match self.fact:
            case PartitionChanged() | PartitionsCreated() | TopicRetired():
                return self.fact.topic.topic
            case ActionRequested(topic=TopicState(topic=name)):
                return name
        return ""

    @property
    def partition(self) -> int:
        match self.fact:
            case PartitionChanged():
                return self.fact.after.partition
            case ActionRequested():
                return self.fact.partition
        return NO_PARTITION

    @property
    def broker_id(self) -> BrokerId:
        match self.fact:
            case PartitionChanged() | BrokerChanged() | RollStep() | ActionRequested():
                return self.fact.broker_id
        return NO_BROKER

    def concerns(self, topic: str, partition: int, broker_id: int) -> bool:
        """Return whether it is of that topic, partition and broker; "", -1 and -1 are any."""
        return (
            topic in ("", self.topic)
            and partition in (NO_PARTITION, self.partition)
            and broker_id in (NO_BROKER, self.broker_id)
        )


class Timeline:
    """The latest events of one pool, by number; older ones are dropped by count and age."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Create an empty one; `now_ms` returns Unix milliseconds."""
        self._now_ms = now_ms
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._newest = 0
        self._grounds: dict[Replica, Grounds] = {}
        # Replaced and never changed in place: events hold what it was.
        self._fenced_at_ms: Mapping[BrokerId, int] = {}
        self._listeners: dict[Callable[[Event], None], None] = {}

    @property
    def newest(self) -> int:
        """Return the number of the newest event, 0 without any."""
        return self._newest

    @property
    def oldest(self) -> int:
        """Return the number of the oldest event that is kept, 0 without any."""
        return self._events[0].number if self._events else 0

    def after(self, number: int, limit: int) -> tuple[Event, ...]:
        """Return the events after that number, oldest first, at most `limit`."""
        first = max(0, number + 1 - self.oldest) if self._events else 0
        last = min(len(self._events), first + limit)
        return tuple(self._events[index] for index in range(first, last))

    def latest(self, wanted: Callable[[Event], bool], limit: int) -> tuple[Event, ...]:
        """Return the newest events that are wanted, newest first, at most `limit`."""
        found: list[Event] = []
        for event in reversed(self._events):
            if len(found) == limit:
                break
            if wanted(event):
                found.append(event)
        return tuple(found)

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call the listener at each new event, until the returned function is called."""
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    def fenced_at_ms(self, broker_id: BrokerId) -> int | None:
        return self._fenced_at_ms.get(broker_id)

    def record(self, fact: Fact) -> None:
        now_ms = self._now_ms()
        if isinstance(fact, BrokerChanged):
            self._record_fence(fact, now_ms)
        self._newest += 1
        event = Event(self._newest, now_ms, fact)
        self._events.append(event)
        while self._events[0].at_ms < now_ms - MAX_AGE_MS:
            self._events.popleft()
        for listener in tuple(self._listeners):
            listener(event)

    def _record_fence(self, fact: BrokerChanged, now_ms: int) -> None:
        fenced = {i: at_ms for i, at_ms in self._fenced_at_ms.items() if i != fact.broker_id}
        if fact.turn in (BrokerTurn.FENCED, BrokerTurn.STORAGE_FAILED):
            fenced[fact.broker_id] = now_ms
        elif fact.turn is not BrokerTurn.ACTIVE:
            return
        self._fenced_at_ms = fenced

    def explain(self, topic_id: TopicId, before: PartitionState, grounds: Grounds) -> None:
        """Keep the grounds of a decision until it is stored; a later decision replaces them."""
        if grounds.after is not before:
            self._grounds[topic_id, before.partition] = grounds

    def record_slice(
        self, previous: PartitionSlice | None, durable: PartitionSlice, elected: list[LeaderChange]
    ) -> None:
        """Record the changes between two durable states of a slice."""
        if previous is None:
            self.record(PartitionsCreated(durable.topic, durable.partitions))
            return
        if durable.is_retained and not previous.is_retained:
            # Its leaders resign in the same write, which is no loss of theirs.
            self.record(TopicRetired(durable.topic, is_retained=True))
            return
        known = {state.partition: state for state in previous.partitions}
        new = tuple(state for state in durable.partitions if state.partition not in known)
        if new:
            self.record(PartitionsCreated(durable.topic, new))
        kinds = {change.partition: change.kind for change in elected}
        for after in durable.partitions:
            before = known.get(after.partition)
            if before is not None and before is not after and before != after:
                self._record_partition(durable, before, after, kinds.get(after.partition, ""))

    def _record_partition(
        self, durable: PartitionSlice, before: PartitionState, after: PartitionState, kind: str
    ) -> None:
        grounds = self._grounds.pop((durable.topic.topic_id, after.partition), None)
        unclean = durable.unclean_election_of(after.partition)
        is_new = unclean is not None and unclean.leader_epoch > before.leader_epoch
        self.record(
            PartitionChanged(
                durable.topic,
                before,
                after,
                grounds if grounds is not None and grounds.after == after else None,
                kind,
                unclean if is_new else None,
                self._fenced_at_ms,
            )
        )

    def forget_topic(self, topic_id: TopicId) -> None:
        """Forget decisions about a topic that were not stored."""
        for replica in [each for each in self._grounds if each[0] == topic_id]:
            del self._grounds[replica]
