"""Index this broker's replicas by both names, and find logs that are still to be created."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_protocol.controller_messages import TopicPush
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_broker.replication.core.assignment import LocalBroker, LocalLog, needs_lost_log
from tidemark_broker.replication.partition import Partition

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionRegistry:
    """The same objects by (topic id, partition) and by (topic, partition)."""

    by_id: dict[tuple[TopicId, int], Partition] = field(default_factory=dict)
    by_name: dict[tuple[str, int], Partition] = field(default_factory=dict)
    # When the log was opened, by its own checkpoint. Once the broker is registered the checkpoint
    # does not show it (S31), and that controller may not have known the partition.
    ended_below_high_watermark: set[tuple[TopicId, int]] = field(default_factory=set)
    # Logs that made room for another topic's of their name, in this very life.
    displaced: set[tuple[TopicId, int]] = field(default_factory=set)
    # The partitions of each topic that are here: what is said of a topic costs no look at others.
    _numbers: dict[TopicId, set[int]] = field(default_factory=dict)
    _ids_by_topic: dict[str, set[TopicId]] = field(default_factory=dict)

    def add(self, replica: Partition) -> None:
        self.by_id[replica.topic_id, replica.partition] = replica
        self.by_name[replica.topic, replica.partition] = replica
        self._numbers.setdefault(replica.topic_id, set()).add(replica.partition)
        self._ids_by_topic.setdefault(replica.topic, set()).add(replica.topic_id)

    def discard(self, key: tuple[TopicId, int]) -> Partition | None:
        """Remove a replica under both names and return it."""
        replica = self.by_id.pop(key, None)
        if replica is None:
            return None
        named = (replica.topic, replica.partition)
        if self.by_name.get(named) is replica:
            del self.by_name[named]
        numbers = self._numbers[replica.topic_id]
        numbers.discard(replica.partition)
        if not numbers:
            del self._numbers[replica.topic_id]
            ids = self._ids_by_topic[replica.topic]
            ids.discard(replica.topic_id)
            if not ids:
                del self._ids_by_topic[replica.topic]
        return replica

    def keys_of(self, topic_id: TopicId) -> list[tuple[TopicId, int]]:
        return [(topic_id, number) for number in sorted(self._numbers.get(topic_id, ()))]

    def apply_topic(self, topic: TopicState, present: Mapping[str, TopicState]) -> None:
        """Apply a topic; `present` has the topics by name.

        Requests name topics, so what another topic left under a name is no longer served once the
        name is this one's.
        """
        for key in self.keys_of(topic.topic_id):
            self.by_id[key].apply_topic(topic)
        if present.get(topic.topic) != topic:
            return
        for other_id in sorted(self._ids_by_topic.get(topic.topic, set()) - {topic.topic_id}):
            for key in self.keys_of(other_id):
                if self.by_id[key].role != "idle":
                    self.by_id[key].become_idle("topic re-created")

    def local_log(self, key: tuple[TopicId, int], *, is_name_taken: bool = False) -> LocalLog:
        replica = self.by_id.get(key)
        return LocalLog(
            latest_epoch=None if replica is None else replica.log.latest_epoch,
            ended_below_high_watermark=key in self.ended_below_high_watermark,
            is_displaced=key in self.displaced,
            is_name_taken=is_name_taken,
        )

    def forget_loss(self, key: tuple[TopicId, int]) -> None:
        """Record that no entry means a log that this broker lost: an empty one may begin."""
        self.ended_below_high_watermark.discard(key)
        self.displaced.discard(key)

    def may_make(self, topic: TopicState, state: PartitionState, broker: LocalBroker) -> bool:
        """Return whether the replica's log is missing and may be created.

        While another topic id still has the name here, creating it would rename that log under the
        broker that leads or follows it.
        """
        key = (topic.topic_id, state.partition)
        return (
            key not in self.by_id
            and (topic.topic, state.partition) not in self.by_name
            and not needs_lost_log(state, self.local_log(key), broker)
        )

    def missing_logs(
        self, life: LocalBroker, entries: Iterable[TopicPush]
    ) -> tuple[tuple[str, TopicId, int], ...]:
        """Return (topic, topic id, partition) of logs that these entries need here."""
        return tuple(
            (entry.topic.topic, entry.topic.topic_id, state.partition)
            for entry in entries
            if not entry.is_deleted
            for state in entry.partitions
            if life.broker_id in state.replicas and self.may_make(entry.topic, state, life)
        )


def log_roles(applied: Sequence[tuple[Partition, PartitionState]]) -> None:
    """Write one log line for all applied roles: a line costs more than a role."""
    if len(applied) == 1:
        _log_role(*applied[0])
        return
    _log.info(
        "partition states applied",
        extra={
            "partitions": [
                {
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "role": replica.role,
                    "leader": state.leader,
                    "leader_epoch": state.leader_epoch,
                    "partition_epoch": state.partition_epoch,
                    "in_sync": [member.broker_id for member in state.in_sync_replicas],
                    "log_end_offset": replica.log.log_end_offset,
                }
                for replica, state in applied
            ]
        },
    )


def _log_role(replica: Partition, state: PartitionState) -> None:
    _log.info(
        "partition state applied",
        extra={
            "topic": replica.topic,
            "partition": replica.partition,
            "role": replica.role,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.partition_epoch,
            "in_sync": [member.broker_id for member in state.in_sync_replicas],
            "high_watermark": replica.high_watermark,
            "log_end_offset": replica.log.log_end_offset,
        },
    )
