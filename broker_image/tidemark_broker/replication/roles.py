"""Apply the roles of this broker's replicas from metadata, and create and remove their logs.

Synchronous. Creating or removing a log syncs its volume, so for a large push a worker does both
between two of its parts (`LogWork`); logs that no worker has created are created here.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tidemark_protocol.controller_messages import TopicPush
from tidemark_protocol.ids import BrokerEpoch, BrokerId, Offset, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_broker.clock import Clock
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.metadata.metadata_cache import MetadataCache, TopicPartition
from tidemark_broker.replication.core.assignment import (
    Idle,
    LocalBroker,
    Reject,
    Remove,
    Role,
    Wait,
    assign,
    is_complete,
)
from tidemark_broker.replication.failed_role_changes import FailedRoleChanges
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_registry import PartitionRegistry, log_roles

LOGS_AT_A_TIME = 128  # made by one job of a worker, which syncs them together
# Taken in one turn of the loop: new leaders and new replicas, each of which may write a file, or
# states that change no more than what is in memory.
ROLES_AT_A_TIME = 16
STATES_AT_A_TIME = 128
REPLICAS_AT_A_TIME = 200  # told of brokers, looked at for retention: a few microseconds each

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogWork:
    """What a worker does before the next part of a push is applied; maybe nothing."""

    make: tuple[tuple[str, TopicId, int], ...] = ()  # topic, topic id, partition
    remove: tuple[TopicPartition, ...] = ()


class Roles:
    def __init__(
        self,
        broker_id: BrokerId,
        metadata: MetadataCache,
        failed_replicas: dict[TopicPartition, str],
        *,
        clock: Clock,
        new_replica: Callable[..., Partition],
        resolve_corruption: Callable[[Partition], None],
        fail_storage: Callable[[Exception], None],
    ) -> None:
        """Create roles of no replicas; heartbeats report `failed_replicas`."""
        self.hosted = PartitionRegistry()
        self.broker_epoch = BrokerEpoch(-1)
        # Replicas that may ask their leader for something else now, for who asks.
        self.touched: dict[TopicPartition, None] = {}
        self.failed_roles = FailedRoleChanges(
            failed_replicas, take=lambda key: self.apply(key, self._clock(), has_space=True)
        )
        self._broker_id = broker_id
        self._metadata = metadata
        self._failed_replicas = failed_replicas
        self._clock = clock
        self._directory: LogManager | None = None
        self._new_replica = new_replica
        self._resolve_corruption = resolve_corruption
        self._fail_storage = fail_storage
        self._to_remove: list[TopicPartition] = []
        self._applied: list[tuple[Partition, PartitionState]] = []  # not logged yet

    def open(self, directory: LogManager) -> None:
        """Create and remove logs in this directory from now on."""
        self._directory = directory

    def set_broker_epoch(self, broker_epoch: BrokerEpoch) -> None:
        self.broker_epoch = broker_epoch

    def life(self) -> LocalBroker:
        return LocalBroker(self._broker_id, self.broker_epoch, self._metadata.brokers)

    # ---- what is to be done in a worker

    def missing_logs(self, entries: Iterable[TopicPush]) -> tuple[tuple[str, TopicId, int], ...]:
        return self.hosted.missing_logs(self.life(), entries)

    def logs_to_retry(self) -> tuple[tuple[str, TopicId, int], ...]:
        """Return the missing logs of roles that could not be applied."""
        topics, states = self._metadata.topics_by_id, self._metadata.partitions
        life = self.life()
        return tuple(
            (topics[key[0]].topic, *key)
            for key in self.failed_roles.keys
            if key[0] in topics and key in states
            if self.hosted.may_make(topics[key[0]], states[key], life)
        )

    def remove_logs(self, removed: tuple[TopicPartition, ...]) -> None:
        """Remove logs, on the loop or in a worker.

        Raises DiskFull, StorageFailed.
        """
        assert self._directory is not None
        self._directory.remove_logs(removed)

    def pop_removed(self) -> tuple[TopicPartition, ...]:
        removed, self._to_remove = tuple(self._to_remove), []
        return removed

    def log_applied(self) -> None:
        """Log the states that were applied since the last call."""
        if self._applied:
            applied, self._applied = self._applied, []
            log_roles(applied)

    def pop_touched(self) -> tuple[TopicPartition, ...]:
        """Return the replicas whose roles or fetches may have changed since the last call."""
        touched = tuple(self.touched)
        self.touched.clear()
        return touched

    # ---- roles

    def turns(self, entries: Iterable[TopicPush]) -> Iterator[tuple[TopicPush, ...]]:
        """Split a push into parts that each take one turn of the loop.

        Fewer turns finish sooner: other work runs after each of them.
        """
        part: list[TopicPush] = []
        room = STATES_AT_A_TIME
        for entry in entries:
            begins = 0
            for at, state in enumerate(entry.partitions):
                work = self._work(entry.topic.topic_id, state)
                if work > room:
                    if at > begins:
                        part.append(replace(entry, partitions=entry.partitions[begins:at]))
                    yield tuple(part)
                    part, room, begins = [], STATES_AT_A_TIME, at
                room -= work
            if begins == 0:
                part.append(entry)
            else:
                part.append(replace(entry, partitions=entry.partitions[begins:]))
        if part:
            yield tuple(part)

    def _work(self, topic_id: TopicId, state: PartitionState) -> int:
        """Return the cost of applying a state, in states that change only memory."""
        replica = self.hosted.by_id.get((topic_id, state.partition))
        if replica is None:
            is_small = self._broker_id not in state.replicas
        else:
            is_new_leader = (
                state.leader == self._broker_id and state.leader_epoch > replica.leader_epoch
            )
            is_small = not is_new_leader and self._broker_id in state.replicas
        return 1 if is_small else STATES_AT_A_TIME // ROLES_AT_A_TIME

    def apply(self, key: TopicPartition, now_ms: int, *, has_space: bool = False) -> None:
        """Do what the newest state of a partition assigns to this broker."""
        state = self._metadata.partitions.get(key)
        topic = self._metadata.topics_by_id.get(key[0])
        self.touched[key] = None
        if state is None or topic is None:
            self.failed_roles.forget(key)
            return
        named = self._metadata.topics.get(topic.topic, topic)
        log = self.hosted.local_log(key, is_name_taken=named.topic_id != key[0])
        broker = self.life()
        match assign(state, log, broker):
            case Wait():
                self.failed_roles.forget(key)
            case Idle(reason):
                self.failed_roles.forget(key)
                self.hosted.by_id[key].become_idle(reason)
            case Remove(reason):
                self.failed_roles.forget(key)
                self.remove(key, reason)
            case Reject(reason):
                self.failed_roles.note(key, reason)
            case role:
                if not is_complete(log):
                    self.hosted.forget_loss(key)
                    self.failed_roles.forget(key)  # which takes no space, as roles do
                replica = self._apply_role(topic, state, role, broker, now_ms)
                if replica is not None:
                    self._on_applied(replica, state, has_space=has_space)

    def _apply_role(
        self,
        topic: TopicState,
        state: PartitionState,
        role: Role,
        broker: LocalBroker,
        now_ms: int,
    ) -> Partition | None:
        """Apply a role, on a new log if there is none; None if the disk did not allow it."""
        key = (topic.topic_id, state.partition)
        try:
            replica = self.hosted.by_id.get(key) or self._create(key, topic.topic)
            replica.apply_topic(topic)
            replica.apply_state(state, role, broker, now_ms)
        except (DiskFull, ValueError) as error:
            self.failed_roles.note(key, str(error))
            return None
        except (StorageError, OSError) as error:
            self._fail_storage(error)
            return None
        return replica

    def _on_applied(self, replica: Partition, state: PartitionState, *, has_space: bool) -> None:
        key = (replica.topic_id, replica.partition)
        if has_space or replica.role != "idle":
            # An idle replica needs no space, so its success does not show that a role can be taken.
            # If it were reported, the controller would grant the role, and take it back, again
            # and again.
            self.failed_roles.forget(key)
        if replica.corruption is None and key not in self.failed_roles:
            self._failed_replicas.pop(key, None)
        self._resolve_corruption(replica)
        self._applied.append((replica, state))

    def _create(self, key: TopicPartition, topic: str) -> Partition:
        assert self._directory is not None, "metadata applied before logs are open"
        previous = self.hosted.by_name.get((topic, key[1]))
        if previous is not None:  # recreated under its name: the directory sets the old one aside
            previous.become_idle("topic re-created")
            self.hosted.discard((previous.topic_id, previous.partition))
            self.hosted.displaced.add((previous.topic_id, previous.partition))
        log = self._directory.create_log(topic, key[0], key[1])
        replica = self._new_replica(log, high_watermark=Offset(0))
        self.hosted.add(replica)
        return replica

    def remove(self, key: TopicPartition, reason: str) -> None:
        """Stop serving and writing a replica; its log is removed with `pop_removed`."""
        replica = self.hosted.discard(key)
        if replica is None:
            return
        self.touched[key] = None
        replica.become_idle(reason)
        self._failed_replicas.pop(key, None)
        assert self._directory is not None
        self._directory.let_go(key)
        self._to_remove.append(key)
        _log.info(
            "replica removed",
            extra={"topic": replica.topic, "partition": replica.partition, "reason": reason},
        )
