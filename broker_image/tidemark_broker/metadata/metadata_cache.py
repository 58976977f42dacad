"""Keep what the controller pushed of this pool: brokers, topics, partition states.

It keeps the newest of everything by epochs and returns what changed; it never acts on it. A push
may be applied in parts, so that a large one does not delay others: its version counts once all of
it is. Pushes of an older (controller epoch, image version) are dropped (S25); a partition's state
never goes back to a lower partition epoch (I14): such a one is recorded as held above the push
(S17). Absence means nothing, only an explicit entry deletes (S12).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidemark_protocol.controller_messages import (
    BrokerState,
    ClientQuota,
    ListenerAddress,
    MetadataPush,
    ReportedEpoch,
    TopicPush,
)
from tidemark_protocol.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

INTERNAL = ""  # the listener without a name


class Leader(NamedTuple):
    broker_id: BrokerId
    leader_epoch: LeaderEpoch


TopicPartition = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class MetadataChanges:
    """The changes of one push, `deleted` and `partitions` in the push's own order.

    A topic id is deleted completely, also what this cache never had of it: a process may have just
    started.
    """

    is_dropped: bool = False
    brokers_changed: bool = False
    topics: tuple[TopicState, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    deleted: tuple[TopicId, ...] = ()
    deleted_names: tuple[str, ...] = ()  # which no other topic has taken over


@dataclass(frozen=True, slots=True)
class PushBegun:
    """A push whose topics are still to be applied.

    Deletions come first: what they free is available to topics of the same names.
    """

    brokers_changed: bool
    deletions: tuple[TopicPush, ...]
    topics: tuple[TopicPush, ...]


class MetadataCache:
    """The metadata of a broker. One event loop owns it; every method is synchronous."""

    def __init__(self, tls_listeners: frozenset[str] = frozenset()) -> None:
        """Create an empty cache; `tls_listeners` are this broker's named ones with TLS."""
        self.tls_listeners = tls_listeners
        self.controller_epoch = ControllerEpoch(-1)
        self.image_version = -1
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[TopicId, TopicState] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.brokers: Mapping[BrokerId, BrokerState] = {}
        self.move_bytes_per_second = 0
        self.quotas: tuple[ClientQuota, ...] = ()
        self.addresses: Mapping[tuple[str, BrokerId], ListenerAddress] = {}
        self.retained: dict[TopicId, None] = {}  # kept without a Topic: clients do not see them
        self._held: dict[TopicPartition, ReportedEpoch] = {}
        self._numbers: dict[TopicId, set[int]] = {}  # of the partitions that are known
        self._image_handlers: list[Callable[[], None]] = []

    def on_image(self, handler: Callable[[], None]) -> None:
        """Call the handler after each push once it is applied, in the order of these calls."""
        self._image_handlers.append(handler)

    def notify(self) -> None:
        """Call the handlers: the roles of a push are applied too."""
        for handler in self._image_handlers:
            handler()

    @property
    def has_come(self) -> bool:
        """Return whether there is any metadata.

        Without it the broker answers nothing about topics.
        """
        return self.image_version >= 0

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        known = self.topics.get(topic)
        return None if known is None else self.partitions.get((known.topic_id, partition))

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists, also while its state is withheld (S3)."""
        known = self.topics.get(topic)
        return known is not None and 0 <= partition < known.partition_count

    def served_topic(self, topic: str) -> TopicState | None:
        """Return the topic as clients see it: not a deleted one whose data is retained."""
        known = self.topics.get(topic)
        return None if known is None or known.topic_id in self.retained else known

    def leader_of(self, topic: str, partition: int) -> Leader | None:
        """Return the leader, or None while there is none or its broker is unknown."""
        state = self.partition(topic, partition)
        if state is None or not state.has_leader:
            return None
        if state.leader not in self.brokers:
            return None
        return Leader(state.leader, state.leader_epoch)

    @property
    def held_epochs(self) -> tuple[ReportedEpoch, ...]:
        """Return partitions with epochs above those last pushed, for the next heartbeat."""
        return tuple(self._held.values())

    def apply_push(self, push: MetadataPush) -> MetadataChanges:
        """Apply a push in one turn."""
        begun = self.begin(push)
        if begun is None:
            return MetadataChanges(is_dropped=True)
        changes = self.apply_topics(push.topics)
        self.finish(push)
        return replace(changes, brokers_changed=begun.brokers_changed)

    # guard: absence-is-no-deletion (I20)
    def begin(self, push: MetadataPush) -> "PushBegun | None":
        """Apply a push except its topics; None: it is dropped.

        Then call `apply_topics`, part by part, then `finish`.
        """
        if self._is_older(push):
            return None
        self.move_bytes_per_second = push.move_bytes_per_second
        if push.quotas is not None and push.quotas != self.quotas:
            self.quotas = push.quotas
        if push.addresses is not None:
            self.addresses = {(each.listener, each.broker_id): each for each in push.addresses}
        brokers = {broker.broker_id: broker for broker in push.brokers}
        brokers_changed = brokers != self.brokers
        if brokers_changed:
            self.brokers = brokers
        deletions = tuple(entry for entry in push.topics if entry.is_deleted)
        others = tuple(entry for entry in push.topics if not entry.is_deleted)
        return PushBegun(brokers_changed, deletions, others)

    def takes(self, push: MetadataPush) -> bool:
        return not self._is_older(push)

    def finish(self, push: MetadataPush) -> None:
        """Record that all topics of the push are applied; heartbeats say so from now on."""
        self.controller_epoch, self.image_version = push.controller_epoch, push.image_version

    def apply_topics(self, entries: Iterable[TopicPush]) -> MetadataChanges:
        topics: list[TopicState] = []
        changed: list[TopicPartition] = []
        deleted: list[TopicId] = []
        deleted_names: list[str] = []
        for entry in entries:
            if entry.is_deleted:
                self._delete(entry)
                deleted.append(entry.topic.topic_id)
                if entry.topic.topic not in self.topics:
                    deleted_names.append(entry.topic.topic)
                continue
            self._record_retained(entry)
            if self._apply_topic(entry.topic):
                topics.append(entry.topic)
            topic_id = entry.topic.topic_id
            changed.extend(
                (topic_id, state.partition)
                for state in entry.partitions
                if self.apply_partition(topic_id, state)
            )
        return MetadataChanges(
            topics=tuple(topics),
            partitions=tuple(changed),
            deleted=tuple(deleted),
            deleted_names=tuple(deleted_names),
        )

    # guard: older-push-is-dropped (S25)
    def _is_older(self, push: MetadataPush) -> bool:
        """Return whether the push is of an earlier controller or image (S25)."""
        version = (push.controller_epoch, push.image_version)
        return version < (self.controller_epoch, self.image_version)

    # guard: metadata-keeps-newer-state (I14)
    def apply_partition(self, topic_id: TopicId, state: PartitionState) -> bool:
        """Apply a partition's state; return whether it is new here.

        Equal partition epochs are the same state, or the slice was restored from a backup and went
        on differently (S17).
        """
        key = (topic_id, state.partition)
        known = self.partitions.get(key)
        if known is not None:
            is_older = (
                state.partition_epoch < known.partition_epoch
                or state.leader_epoch < known.leader_epoch
            )
            is_another = state != known and state.partition_epoch == known.partition_epoch
            if is_older or is_another:
                self._held[key] = ReportedEpoch(
                    topic_id,
                    state.partition,
                    known.leader_epoch,
                    known.partition_epoch,
                    has_other_state=is_another,
                )
                return False
            self._held.pop(key, None)
            if known == state:
                return False
        self.partitions[key] = state
        self._numbers.setdefault(topic_id, set()).add(state.partition)
        return True

    def _record_retained(self, entry: TopicPush) -> None:
        if entry.is_retained:
            self.retained[entry.topic.topic_id] = None
        else:
            self.retained.pop(entry.topic.topic_id, None)

    def _apply_topic(self, topic: TopicState) -> bool:
        # A topic recreated under its name: the name means the newer id from here on.
        is_new = self.topics_by_id.get(topic.topic_id) != topic
        self.topics[topic.topic] = topic
        self.topics_by_id[topic.topic_id] = topic
        return is_new

    def _delete(self, entry: TopicPush) -> None:
        topic_id = entry.topic.topic_id
        self.topics_by_id.pop(topic_id, None)
        self.retained.pop(topic_id, None)
        named = self.topics.get(entry.topic.topic)
        if named is not None and named.topic_id == topic_id:
            del self.topics[entry.topic.topic]
        for number in self._numbers.pop(topic_id, ()):
            del self.partitions[topic_id, number]
            self._held.pop((topic_id, number), None)


def parts_of(entries: Iterable[TopicPush], *, partitions: int) -> Iterator[tuple[TopicPush, ...]]:
    """Yield the entries in parts of at most so many partitions.

    A topic without any counts as one.
    """
    part: list[TopicPush] = []
    room = partitions
    for entry in entries:
        at, end = 0, len(entry.partitions)
        while at < max(1, end):
            taken = entry.partitions[at : at + room]
            part.append(entry if len(taken) == end else replace(entry, partitions=taken))
            at += max(1, len(taken))
            room -= max(1, len(taken))
            if room == 0:
                yield tuple(part)
                part, room = [], partitions
    if part:
        yield tuple(part)
