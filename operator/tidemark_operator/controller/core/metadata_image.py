"""Keep the metadata image of one pool: what brokers receive, in full or as changes.

Only durable state is in it. A version is one step of one controller's image; pushes are ordered by
(controller epoch, image version) (S25). Deleted topics are explicit entries, because absence never
means deletion (S12), for as long as their deletion record exists.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark_protocol.controller_messages import BrokerState, MetadataPush, TopicPush
from tidemark_protocol.ids import ControllerEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.controller.core.views import PoolSettings


@dataclass(slots=True)
class _Topic:
    state: TopicState
    is_retained: bool
    version: int
    changed: int  # the newest version of the topic or of a partition
    partitions: dict[int, PartitionState] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)  # in the order in which they changed
    elected: dict[int, int] = field(default_factory=dict)  # at which version, by leader epoch
    withheld: set[int] = field(default_factory=set)

    def set_partition(self, partition: PartitionState, version: int) -> None:
        number = partition.partition
        previous = self.partitions.get(number)
        self.withheld.discard(number)
        self.partitions[number] = partition
        self.versions.pop(number, None)
        self.versions[number] = version
        if previous is None or previous.leader_epoch != partition.leader_epoch:
            self.elected[number] = version

    def numbers_since(self, version: int) -> tuple[list[int], list[int]]:
        """Return the partitions that changed after that version and are not withheld.

        Elected ones first, then the others.
        """
        elected: list[int] = []
        others: list[int] = []
        for number, changed in reversed(self.versions.items()):
            if changed <= version:
                break
            if number not in self.withheld:
                (elected if self.elected[number] > version else others).append(number)
        return sorted(elected), sorted(others)

    def push_of(self, numbers: Iterable[int]) -> TopicPush:
        partitions = tuple(self.partitions[number] for number in numbers)
        return TopicPush(self.state, partitions, is_retained=self.is_retained)


class MetadataImage:
    def __init__(self, controller_epoch: ControllerEpoch, *, deleted_retained: int) -> None:
        self.controller_epoch = controller_epoch
        self.version = 1
        self._deleted_retained = deleted_retained
        self._brokers: tuple[BrokerState, ...] = ()
        self._settings = PoolSettings()
        # Both in the order in which they changed: a push costs what changed, however many others
        # there are.
        self._topics: dict[TopicId, _Topic] = {}
        self._deleted: dict[TopicId, tuple[TopicState, int]] = {}
        self._ids_by_name: dict[str, dict[TopicId, None]] = {}
        self._finished: dict[TopicId, None] = {}

    def set_brokers(self, brokers: tuple[BrokerState, ...]) -> None:
        if brokers != self._brokers:
            self._brokers = brokers
            self.version += 1

    def set_settings(self, settings: PoolSettings) -> None:
        if settings != self._settings:
            self._settings = settings
            self.version += 1

    def set_partitions(
        self, state: TopicState, partitions: tuple[PartitionState, ...], *, is_retained: bool
    ) -> None:
        """Set partitions of a topic as they are durable now, and no longer withhold them.

        Other partitions of the topic stay.
        """
        topic = self._topics.get(state.topic_id)
        version = self.version + 1
        if topic is None:
            self._withhold_previous(state.topic)
            topic = self._topics[state.topic_id] = _Topic(state, is_retained, version, version)
            self._record_name(state)
            self.version = version
        if topic.state != state or topic.is_retained != is_retained:
            self._forget_name(topic.state)
            self._record_name(state)
            topic.state, topic.is_retained, topic.version = state, is_retained, version
            self.version = version
        for partition in partitions:
            number = partition.partition
            if topic.partitions.get(number) != partition or number in topic.withheld:
                topic.set_partition(partition, version)
                self.version = version
        if self.version == version:
            topic.changed = version
            self._topics[state.topic_id] = self._topics.pop(state.topic_id)

    def _withhold_previous(self, name: str) -> None:
        """Withhold an earlier topic of this name.

        Brokers keep the data of a topic whose slices were deleted by hand (S12), until another
        topic has its name: a broker that received both would displace the earlier one's logs.
        """
        for topic_id in self._ids_by_name.get(name, ()):
            topic = self._topics[topic_id]
            topic.withheld.update(topic.partitions)

    def withhold(self, topic_id: TopicId, partitions: tuple[int, ...]) -> None:
        """Withhold partitions whose last write has an unknown outcome (S3)."""
        topic = self._topics.get(topic_id)
        if topic is not None:
            topic.withheld.update(number for number in partitions if number in topic.partitions)

    # guard: unannounced-partitions (S9)
    def withheld(self) -> frozenset[tuple[TopicId, int]]:
        return frozenset(
            (topic_id, number)
            for topic_id, topic in self._topics.items()
            for number in topic.withheld
        )

    def is_reported(self, topic_id: TopicId, partition: int, version: int) -> bool:
        """Return whether a broker that applied this version knows the partition's present state.

        True also if there is nothing to send.
        """
        topic = self._topics.get(topic_id)
        if topic is None or partition not in topic.partitions:
            return True
        return partition not in topic.withheld and topic.versions[partition] <= version

    def delete(self, state: TopicState) -> None:
        """Add an explicit deletion to pushes, until `finish_deletion`."""
        topic = self._topics.pop(state.topic_id, None)
        if topic is not None:
            self._forget_name(topic.state)
        self.version += 1
        self._deleted.pop(state.topic_id, None)
        self._deleted[state.topic_id] = (state, self.version)

    def _record_name(self, state: TopicState) -> None:
        self._ids_by_name.setdefault(state.topic, {})[state.topic_id] = None

    def _forget_name(self, state: TopicState) -> None:
        ids = self._ids_by_name[state.topic]
        del ids[state.topic_id]
        if not ids:
            del self._ids_by_name[state.topic]

    def finish_deletion(self, topic_id: TopicId) -> None:
        """Remove a deletion that each broker with a possible replica has applied."""
        self._deleted.pop(topic_id, None)
        self._finished[topic_id] = None
        while len(self._finished) > self._deleted_retained:
            del self._finished[next(iter(self._finished))]

    def was_deleted(self, topic_id: TopicId) -> bool:
        return topic_id in self._deleted or topic_id in self._finished

    def push_for(
        self, applied_controller_epoch: ControllerEpoch, applied_version: int
    ) -> MetadataPush | None:
        """Return what a broker that applied this version lacks, or None."""
        is_full = (
            applied_controller_epoch != self.controller_epoch
            or not 0 < applied_version <= self.version
        )
        if not is_full and applied_version == self.version:
            return None
        since = 0 if is_full else applied_version
        topics = [*self._deletions_since(since), *self._changes_since(since)]
        return MetadataPush(
            self.controller_epoch,
            self.version,
            is_full,
            self._brokers,
            tuple(topics),
            self._settings.move_bytes_per_second,
            self._settings.quotas,
            self._settings.addresses,
        )

    def _deletions_since(self, version: int) -> list[TopicPush]:
        found = []
        for state, deleted in reversed(self._deleted.values()):
            if deleted <= version:
                break
            found.append(TopicPush(state, (), is_deleted=True))
        return found[::-1]

    def _changes_since(self, version: int) -> list[TopicPush]:
        """Return the changes after a version: elections first, then changes of ISRs alone.

        Brokers take up thousands of roles one after the other, and the news that a replica left an
        ISR can wait. A topic with both kinds of change comes twice.
        """
        first: list[TopicPush] = []
        then: list[TopicPush] = []
        for topic in reversed(self._topics.values()):
            if topic.changed <= version:
                break
            elected, others = topic.numbers_since(version)
            if elected:
                first.append(topic.push_of(elected))
            if others or (not elected and topic.version > version):
                then.append(topic.push_of(others))
        return [*reversed(first), *reversed(then)]
