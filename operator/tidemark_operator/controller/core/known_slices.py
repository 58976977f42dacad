"""Index the slices of one pool by name and by what decisions ask for.

The indexes are updated with each change, so that one topic costs the same among however many
others.
"""

from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence, ValuesView

from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.partition_slice import PartitionSlice


class KnownSlices(MutableMapping[str, PartitionSlice]):
    def __init__(self) -> None:
        self._by_name: dict[str, PartitionSlice] = {}
        self._by_topic: dict[TopicId, dict[str, PartitionSlice]] = {}
        self._ids_by_topic_name: dict[str, dict[TopicId, None]] = {}
        self._leaders: Counter[BrokerId] = Counter()
        self._out_of_sync: Counter[BrokerId] = Counter()
        # Of every entry and grant that was known once: it only has to be high enough (S2).
        self.highest_broker_epoch = BrokerEpoch(0)
        self.partition_count = 0

    def __getitem__(self, name: str) -> PartitionSlice:
        return self._by_name[name]

    def __setitem__(self, name: str, value: PartitionSlice) -> None:
        previous = self._by_name.get(name)
        if previous is not None:
            self._forget(previous)
        self._by_name[name] = value
        topic = value.topic
        self._by_topic.setdefault(topic.topic_id, {})[name] = value
        self._ids_by_topic_name.setdefault(topic.topic, {})[topic.topic_id] = None
        self._count(value, 1)
        self._raise_highest_epoch(value.partitions)

    def __delitem__(self, name: str) -> None:
        self._forget(self._by_name.pop(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def values(self) -> ValuesView[PartitionSlice]:
        return self._by_name.values()

    def of_topic(self, topic_id: TopicId) -> list[PartitionSlice]:
        """Return the topic's slices in the order of their partitions."""
        found = list(self._by_topic.get(topic_id, {}).values())
        if len(found) > 1:
            found.sort(key=lambda value: value.index)
        return found

    def topic_ids(self) -> tuple[TopicId, ...]:
        """Return all topic ids in the order of their slices' names."""
        last = {topic_id: next(reversed(named)) for topic_id, named in self._by_topic.items()}
        return tuple(sorted(last, key=lambda topic_id: last[topic_id]))

    def topic_ids_named(self, topic: str) -> tuple[TopicId, ...]:
        """Return the topic ids of a name: several if data of an earlier topic is retained."""
        return tuple(self._ids_by_topic_name.get(topic, ()))

    def leaders(self) -> Counter[BrokerId]:
        """Return a copy of how many partitions each broker leads, retained ones that move too."""
        return self._leaders.copy()

    def is_in_sync_everywhere(self, broker_id: BrokerId) -> bool:
        """Return whether all the broker's replicas of served partitions are in sync.

        Replicas that are just being added do not count.
        """
        return not self._out_of_sync[broker_id]

    def _forget(self, value: PartitionSlice) -> None:
        topic = value.topic
        named = self._by_topic[topic.topic_id]
        del named[value.name]
        if not named:
            del self._by_topic[topic.topic_id]
            ids = self._ids_by_topic_name[topic.topic]
            ids.pop(topic.topic_id, None)
            if not ids:
                del self._ids_by_topic_name[topic.topic]
        self._count(value, -1)

    def _count(self, value: PartitionSlice, step: int) -> None:
        self.partition_count += step * len(value.partitions)
        for state in value.partitions:
            if state.has_leader:
                self._leaders[state.leader] += step
            if not value.is_retained and len(state.in_sync_replicas) < len(state.replicas):
                for broker_id in set(state.replicas) - state.in_sync_ids:
                    if broker_id not in state.adding_replicas:
                        self._out_of_sync[broker_id] += step

    def _raise_highest_epoch(self, partitions: Sequence[PartitionState]) -> None:
        highest = self.highest_broker_epoch
        for state in partitions:
            highest = max(highest, state.leader_broker_epoch)
            for member in state.in_sync_replicas + state.eligible_leaders:
                highest = max(highest, member.broker_epoch)
        self.highest_broker_epoch = highest
