"""Index this broker's replicas by both names, and find logs that are still to be created."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_protocol.controller_messages import TopicPush
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_broker.replication.partition import LocalBroker, Partition

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionRegistry:
    """The same objects by (topic id, partition) and by (topic, partition)."""

    by_id: dict[tuple[TopicId, int], Partition] = field(default_factory=dict)
    by_name: dict[tuple[str, int], Partition] = field(default_factory=dict)
    # Logs that ended below their own checkpointed watermark when they were opened. Once registered,
    # the checkpoint says no more of it (S31), and that controller may not have known the partition.
    short: set[tuple[TopicId, int]] = field(default_factory=set)
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

    # guard: erase-by-newer-state-only (S17)
    def is_older_than_log(self, key: tuple[TopicId, int], state: PartitionState) -> bool:
        """Return whether the state is older than the local log (S17).

        A slice restored from before a move does not name a replica that joined by it. A replica
        that leaves raises the leader epoch (S30), so a log of that epoch or a later one was not
        left behind.
        """
        replica = self.by_id.get(key)
        return replica is not None and replica.log.latest_epoch >= state.leader_epoch

    def may_make(self, topic: TopicState, state: PartitionState, life: LocalBroker) -> bool:
        """Return whether the replica's log is missing and may be created.

        While another topic id still has the name here, creating it would rename that log under the
        broker that leads or follows it.
        """
        return (
            (topic.topic_id, state.partition) not in self.by_id
            and (topic.topic, state.partition) not in self.by_name
            and not self._needs_lost_log((topic.topic_id, state.partition), state, life)
        )

    def _needs_lost_log(
        self, key: tuple[TopicId, int], state: PartitionState, life: LocalBroker
    ) -> bool:
        members = state.in_sync_replicas + state.eligible_leaders
        is_named = any(member.broker_id == life.broker_id for member in members)
        return (is_named and self._is_displaced(key)) or names_earlier_epoch(state, life)

    # guard: displaced-log-is-not-empty (S9)
    def _is_displaced(self, key: tuple[TopicId, int]) -> bool:
        return key in self.displaced

    # guard: short-log-is-not-whole (S9)
    def _is_whole(self, key: tuple[TopicId, int]) -> bool:
        return key in self.by_id and key not in self.short

    def check_log_not_lost(
        self, key: tuple[TopicId, int], state: PartitionState, life: LocalBroker
    ) -> bool:
        """Check before a role is applied that no entry names a log that is lost.

        Raises ValueError: the controller is told that this replica failed, and removes the entry.
        Returns True if that may have been so, and is over.
        """
        if self._is_whole(key):
            return False
        if self._needs_lost_log(key, state, life):
            raise ValueError(
                f"broker {life.broker_id} is in the ISR or ELR, but its log is missing or"
                " incomplete: the replica restarts empty after the controller removes that"
                " entry"
            )
        self.short.discard(key)
        self.displaced.discard(key)
        return True

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


# guard: no-empty-log-for-earlier-life (S9)
def names_earlier_epoch(state: PartitionState, life: LocalBroker) -> bool:
    """Return whether an ISR or ELR entry names an earlier epoch of this broker (S9).

    It says that this broker has what is committed. If its log is gone, an empty one in its place
    would look like that log to all others from then on, and to this broker itself after a restart.
    """
    return any(
        member.broker_id == life.broker_id and member.broker_epoch != life.broker_epoch
        for member in state.in_sync_replicas + state.eligible_leaders
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
