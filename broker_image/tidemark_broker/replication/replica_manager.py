"""Manage all replicas of this broker, for HTTP, the Kafka server and /metrics.

Synchronous: one event loop owns it; only `replica_digest` awaits. It turns metadata into roles and
serves consumers below the high watermark; `record_appender` appends. The cores decide what is in
sync or committed.

`sha256_of` is a digest of a replica, read from its disk, by which tests and people compare
replicas.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from tidemark_protocol.controller_messages import (
    CommittedTruncation,
    IsrProposal,
    IsrResult,
    MetadataPush,
    TopicPush,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, Offset, TopicId
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tidemark_broker.clock import Clock, Scheduler, monotonic_ms
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, StorageError
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.log.disk import DiskSpace
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.metadata.metadata_cache import MetadataCache, TopicPartition, parts_of
from tidemark_broker.replication.core.corruption import Corruption
from tidemark_broker.replication.core.reassignment_throttle import ReassignmentThrottle
from tidemark_broker.replication.corruption_repair import CorruptionRepair
from tidemark_broker.replication.delayed_fetch import DelayedFetch, FetchParams
from tidemark_broker.replication.delayed_produce import ProduceCallback, answer
from tidemark_broker.replication.follower_session import REPLICA_FETCH_MAX_BYTES
from tidemark_broker.replication.log_start_offset import DeleteRecordsResult, delete_records
from tidemark_broker.replication.moved_watermarks import MovedWatermarks
from tidemark_broker.replication.partition import (
    CommittedTruncations,
    Partition,
    PartitionEvents,
)
from tidemark_broker.replication.partition_observer import (
    ManagerEvents,
    PartitionObserver,
    manager_events,
    nothing,
    partition_events,
)
from tidemark_broker.replication.partition_snapshot import PartitionSnapshot, follower_ends
from tidemark_broker.replication.record_appender import RecordAppender
from tidemark_broker.replication.replica_ticks import ReplicaTicks
from tidemark_broker.replication.results import (
    LEADER_ONLY,
    Consumer,
    FetchResult,
    OffsetsResult,
    ProduceResult,
    ReplicaView,
)
from tidemark_broker.replication.roles import (
    LOGS_AT_A_TIME,
    REPLICAS_AT_A_TIME,
    ROLES_AT_A_TIME,
    LogWork,
    Roles,
)

STEP_BYTES = 1024 * 1024


async def sha256_of(replica: Partition, to_offset: int, corrupt: CorruptionRepair) -> str:
    """Return the SHA-256 in hex of the batches from the log start that end below `to_offset`.

    Raises CorruptBatch, which is recorded then.
    """
    log = replica.log
    digest = hashlib.sha256()
    offset = log.log_start_offset
    end = Offset(min(to_offset, log.log_end_offset))
    while offset < end:
        try:
            data = log.read(offset, max_bytes=STEP_BYTES, end_offset=end)
        except CorruptBatch as error:
            corrupt.note(replica, offset, error, "digest")
            raise
        if not data:
            break
        digest.update(data)
        position = 0
        while position < len(data):
            header = read_header(data, position)
            offset = header.next_offset
            position += header.size_bytes
        await asyncio.sleep(0)  # let others run between steps
    return digest.hexdigest()


__all__ = [
    "FetchResult",
    "OffsetsResult",
    "PartitionObserver",
    "ProduceResult",
    "ReplicaManager",
    "ReplicaView",
]


_log = logging.getLogger(__name__)


class ReplicaManager:
    """All replicas of this broker.

    `done` callbacks are called exactly once, maybe before the call returns.
    """

    metadata: MetadataCache

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        scheduler: Scheduler,
        wall_clock_s: Callable[[], float],
        clock: Clock = monotonic_ms,
        replica_fetch_max_bytes: int = REPLICA_FETCH_MAX_BYTES,
        tls_listeners: frozenset[str] = frozenset(),
    ) -> None:
        """Create a manager of no replicas; `open` adds those of the log directory."""
        self.metadata = MetadataCache(tls_listeners)
        self.is_stopped = False
        self.failed_replicas: dict[TopicPartition, str] = {}  # roles not taken, damaged logs
        self.corrupt = CorruptionRepair(
            broker_id,
            failed_replicas=self.failed_replicas,
            recreate=self._recreate,
            fail_storage=self.fail_storage,
            on_corruption=self._on_corruption,
        )
        self.roles = Roles(
            broker_id,
            self.metadata,
            self.failed_replicas,
            clock=clock,
            new_replica=self._new_replica,
            resolve_corruption=self.corrupt.settle,
            fail_storage=self.fail_storage,
        )
        self._hosted = self.roles.hosted
        self.committed_cuts = CommittedTruncations()
        self.join_throttle = ReassignmentThrottle()
        self.replica_fetch_max_bytes = replica_fetch_max_bytes
        self.low_disk_space = ""  # of disk space: why nothing is taken
        self.disk_space = DiskSpace(-1, -1)  # of the volume, at its last check
        self.broker_id = broker_id
        self._scheduler = scheduler
        self._clock = clock
        self.produces = RecordAppender(
            find_leading=self.find_leading,
            fail_storage=self.fail_storage,
            scheduler=scheduler,
            clock=clock,
            wall_clock_s=wall_clock_s,
            low_disk_space=lambda: self.low_disk_space,
        )
        self._reads = 0
        self.ticks = ReplicaTicks(self._hosted.by_id, self.corrupt.settle, clock)
        self._watermarks = MovedWatermarks()
        self._events: PartitionEvents | None = None
        self._manager_events = ManagerEvents()

    # ---- for HTTP and the Kafka listener

    def produce(
        self,
        topic: str,
        partition: int,
        batches: memoryview,
        *,
        acks: int,
        timeout_ms: int,
        done: ProduceCallback,
    ) -> None:
        """Append complete record batches; `batches` is not kept after the call returns.

        Only group coordinators write the offsets topic, by another method.
        """
        if topic == OFFSETS_TOPIC:
            message = f"{topic} is written by group coordinators only: commit offsets instead"
            answer(done, ProduceResult(ErrorCode.INVALID_TOPIC_EXCEPTION, message=message))
            return
        self.produces.produce(
            topic, partition, batches, acks=acks, timeout_ms=timeout_ms, done=done
        )

    def find_leading(self, topic: str, partition: int) -> Partition | ErrorCode:
        """Return the local leader partition, or the error to send."""
        replica = self._served(topic, partition)
        if replica is None or replica.leader is None or self.is_stopped:
            return self.missing_partition_error(topic, partition)
        return replica

    def _served(self, topic: str, partition: int) -> Partition | None:
        """Return the replica that clients may use: retained data led for a move is not served."""
        replica = self._hosted.by_name.get((topic, partition))
        # guard: retained-data-is-not-served (I20)
        is_hidden = replica is not None and replica.topic_id in self.metadata.retained
        return None if is_hidden else replica

    def missing_partition_error(self, topic: str, partition: int) -> ErrorCode:
        is_known = self.metadata.has_partition(topic, partition)
        if is_known or (topic, partition) in self._hosted.by_name:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        done: Callable[[FetchResult], None],
        consumer: Consumer = LEADER_ONLY,
    ) -> Callable[[], None]:
        """Fetch for a consumer below this replica's high watermark.

        The returned function cancels a delayed fetch: `done` is not called after that.
        """
        replica = self._served(topic, partition)
        if replica is None or self.is_stopped:
            answer(done, FetchResult(self.missing_partition_error(topic, partition)))
            return nothing
        self._reads += 1
        read = DelayedFetch(
            replica,
            FetchParams(Offset(offset), max_bytes, min_bytes, consumer, self._clock),
            self.roles.life(),
            key=self._reads,
            done=done,
            storage_failed=self.fail_storage,
            corrupt=lambda error: self.corrupt.note(replica, Offset(offset), error, "fetch"),
        )
        return read.start(self._scheduler, max_wait_ms)

    def offsets(self, topic: str, partition: int) -> OffsetsResult:
        replica = self._served(topic, partition)
        if replica is None or replica.leader is None:
            return OffsetsResult(self.missing_partition_error(topic, partition))
        leader = replica.leader
        error = ErrorCode.OFFSET_NOT_AVAILABLE if leader.hides_latest_offset else ErrorCode.NONE
        return OffsetsResult(
            error,
            replica.log.log_start_offset,
            leader.high_watermark,
            replica.log.log_end_offset,
            leader.leader_epoch,
        )

    def delete_records(
        self, topic: str, partition: int, before_offset: Offset
    ) -> DeleteRecordsResult:
        """Delete records; `UP_TO_HIGH_WATERMARK` (-1) deletes all that is committed."""
        replica = self.find_leading(topic, partition)
        if isinstance(replica, ErrorCode):
            return DeleteRecordsResult(replica)
        return delete_records(replica, before_offset)

    def replica(self, topic: str, partition: int) -> ReplicaView | None:
        replica = self._hosted.by_name.get((topic, partition))
        if replica is None:
            return None
        return ReplicaView(
            replica.role,
            replica.log.log_start_offset,
            replica.high_watermark,
            replica.log.log_end_offset,
            replica.leader_epoch,
            () if replica.leader is None else follower_ends(replica.leader),
        )

    async def replica_digest(self, topic: str, partition: int, to_offset: int) -> str:
        """Return the digest of `sha256_of`.

        Raises KeyError if the replica does not exist here.
        """
        return await sha256_of(self._hosted.by_name[topic, partition], to_offset, self.corrupt)

    def snapshots(self) -> Iterator[PartitionSnapshot]:
        """Yield consistent snapshots; the caller may let other tasks run in between."""
        for replica in self.replicas:
            yield replica.snapshot(self._clock())

    # ---- for the rest of the broker

    @property
    def broker_epoch(self) -> BrokerEpoch:
        return self.roles.broker_epoch

    @property
    def replicas(self) -> tuple[Partition, ...]:
        return tuple(self._hosted.by_id.values())

    def hosted(self, topic_id: TopicId, partition: int) -> Partition | None:
        return self._hosted.by_id.get((topic_id, partition))

    def open(
        self,
        directory: LogManager,
        *,
        submit: Callable[[IsrProposal], None],
        observers: Sequence[PartitionObserver] = (),
    ) -> None:
        """Add the open logs; events go to the observers in this order, and proposals to `submit`.

        Nothing is led or followed before metadata says so.
        """
        local = _LocalState(self.roles.touched, self._watermarks, self.ticks, self.committed_cuts)
        self._events = partition_events((local, *observers), submit)
        self._manager_events = manager_events(observers)
        self.roles.open(directory)
        for (topic_id, partition), log in directory.logs.items():
            watermark = directory.high_watermarks.get((topic_id, partition), Offset(0))
            replica = self._new_replica(log, high_watermark=watermark)
            self._hosted.add(replica)
            if watermark > log.log_end_offset:
                self._hosted.ended_below_high_watermark.add((topic_id, partition))
            self.corrupt.remember(replica)

    def set_broker_epoch(self, broker_epoch: BrokerEpoch) -> None:
        """Set the broker epoch of the registration (S2).

        From now on this broker leads what names that epoch.
        """
        self.roles.set_broker_epoch(broker_epoch)

    def record_disk_space(self, space: DiskSpace) -> None:
        self.disk_space = space

    def set_low_disk_space(self, reason: str) -> None:
        """Reject records for this reason; "" accepts them again."""
        self.low_disk_space = reason

    def apply_push(self, push: MetadataPush) -> bool:
        """Apply a push in one turn, which suits few partitions only; False: it is dropped."""
        is_taken = self.metadata.takes(push)
        for work in self.applying(push):
            self._remove_logs(work.remove)
        return is_taken

    def applying(self, push: MetadataPush) -> Iterator[LogWork]:
        """Apply a push in steps; other tasks may run between them, once each step's work is done.

        One push at a time; its version counts as applied after the last step.
        """
        begun = self.metadata.begin(push)
        if begun is None:
            return
        self.join_throttle.set_rate(self.metadata.move_bytes_per_second, self._clock())
        yield from self._let_go(parts_of(begun.deletions, partitions=ROLES_AT_A_TIME))
        if begun.brokers_changed:
            yield from self._notify_brokers()
        for part in parts_of(begun.topics, partitions=LOGS_AT_A_TIME):
            missing = () if self.is_stopped else self.roles.missing_logs(part)
            if missing:
                yield LogWork(make=missing)
            for few in self.roles.turns(part):
                self._apply_roles(few)
                yield LogWork(remove=self.roles.pop_removed())
        self.metadata.finish(push)
        if self.is_stopped:
            return
        self._manager_events.roles_applied()
        self.metadata.notify()

    def _let_go(self, parts: Iterable[Sequence[TopicPush]]) -> Iterator[LogWork]:
        """Remove the replicas of topics with an explicit deletion (S12)."""
        for part in parts:
            changes = self.metadata.apply_topics(part)
            if self.is_stopped:
                continue
            for topic_id in changes.deleted:
                keys = self._hosted.keys_of(topic_id)
                for at in range(0, len(keys), ROLES_AT_A_TIME):
                    for key in keys[at : at + ROLES_AT_A_TIME]:
                        self.roles.remove(key, "topic deleted")
                    self._manager_events.roles_applied()
                    yield LogWork(remove=self.roles.pop_removed())
            if changes.deleted_names and not self.is_stopped:
                self._manager_events.topics_deleted(changes.deleted_names)
            yield LogWork()

    def _notify_brokers(self) -> Iterator[LogWork]:
        replicas = self.replicas
        for at in range(0, len(replicas), REPLICAS_AT_A_TIME):
            now_ms = self._clock()
            for replica in replicas[at : at + REPLICAS_AT_A_TIME]:
                replica.on_brokers(self.metadata.brokers, now_ms)
            yield LogWork()

    def _apply_roles(self, entries: Sequence[TopicPush]) -> None:
        changes = self.metadata.apply_topics(entries)
        if self.is_stopped:
            return
        now_ms = self._clock()
        for topic in changes.topics:
            self._hosted.apply_topic(topic, self.metadata.topics)
        for key in changes.partitions:
            self._apply_role(key, now_ms)
        if changes.partitions:
            self._roles_applied()

    def _roles_applied(self) -> None:
        self.roles.log_applied()
        self._manager_events.roles_applied()

    def _apply_role(self, key: TopicPartition, now_ms: int) -> None:
        self.roles.apply(key, now_ms)
        replica = self._hosted.by_id.get(key)
        if replica is not None:
            self.ticks.note(replica)  # who is in sync, and who is to be

    def _remove_logs(self, removed: tuple[TopicPartition, ...]) -> None:
        if not removed:
            return
        try:
            self.roles.remove_logs(removed)
        except (StorageError, OSError) as error:
            self.fail_storage(error)

    def retry_failed_roles(self) -> None:
        """Retry roles that could not be applied, now that there is space."""
        self.roles.failed_roles.retry()
        self._remove_logs(self.roles.pop_removed())
        self._roles_applied()

    def on_in_sync_responses(self, responded: Sequence[tuple[IsrProposal, IsrResult]]) -> None:
        """Handle proposals' results in one turn, so they must be few.

        The complete durable states come with errors too: each is applied before its result is
        checked.
        """
        now_ms = self._clock()
        has_changed = False
        for proposal, found in responded:
            if self.is_stopped:
                break
            key = (proposal.topic_id, proposal.partition)
            if found.state is not None and self.metadata.apply_partition(key[0], found.state):
                self._apply_role(key, now_ms)
                has_changed = True
            replica = self._hosted.by_id.get(key)
            if replica is not None:
                replica.on_response(proposal, found, now_ms)
        if has_changed:
            self._remove_logs(self.roles.pop_removed())
            self._roles_applied()

    def on_tick(self) -> None:
        for _ in self.ticking():
            pass

    def ticking(self) -> Iterator[None]:
        """Do the same in steps between which other tasks may run."""
        return self.ticks.steps()

    def on_stall(self, stall_ms: int) -> Iterator[None]:
        """Exclude a stall from lag; other tasks may run in between, but no tick."""
        replicas = self.replicas
        for at in range(0, len(replicas), REPLICAS_AT_A_TIME):
            now_ms = self._clock()
            for replica in replicas[at : at + REPLICAS_AT_A_TIME]:
                replica.on_stall(stall_ms, now_ms)
            yield

    def is_adding(self, replica: Partition) -> bool:
        """Return whether the replica is being moved here and not in sync yet.

        Only such a one is ever slowed down.
        """
        state = replica.state
        return (
            state is not None
            and self.broker_id in state.adding_replicas
            and self.broker_id not in state.in_sync_ids
        )

    def _on_corruption(self, replica: Partition) -> None:
        self.ticks.note(replica)

    def _recreate(self, previous: Partition, corruption: Corruption) -> None:
        """Create the replica again on the valid part of its log.

        Only so may its high watermark fall (I2).
        """
        previous.become_idle("the log is corrupt")
        try:
            removed = previous.log.truncate_before_corruption(corruption.offset)
        except (StorageError, OSError) as error:
            self.fail_storage(error)
            return
        _log.warning(
            "corrupt log truncated, the rest is fetched again",
            extra={
                "topic": previous.topic,
                "partition": previous.partition,
                "log_end_offset": previous.log.log_end_offset,
                "removed_records": removed,
            },
        )
        replica = self._new_replica(previous.log, high_watermark=previous.high_watermark)
        replica.corruption = corruption
        self._hosted.add(replica)
        assert self._events is not None
        self._events.truncate(replica)
        self.roles.apply((replica.topic_id, replica.partition), self._clock())
        self._roles_applied()  # there is something to fetch again

    def record_failures_acknowledged(self, failed: Iterable[TopicPartition]) -> None:
        """Record that the controller removed these replicas from each set.

        What it sent since is applied.
        """
        if self.is_stopped:
            return
        is_change = False
        for key in failed:
            replica = self.hosted(*key)
            if replica is not None:
                is_change |= self.corrupt.record_acknowledged(replica)
                self.roles.touched[key] = None
        if is_change:
            self._manager_events.roles_applied()  # there is something to fetch

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        return self._watermarks.current(self._hosted.by_id)

    def stop(self, reason: str) -> None:
        """Lead and follow nothing any more, and tell all waiting clients to look elsewhere."""
        self.is_stopped = True
        for replica in self.replicas:
            if replica.role != "idle":
                replica.become_idle(reason)

    # ---- inside

    def _new_replica(self, log: PartitionLog, *, high_watermark: Offset) -> Partition:
        assert self._events is not None, "no log is open"
        replica = Partition(log, high_watermark=high_watermark, events=self._events)
        self._watermarks.note(replica)
        self.ticks.add(replica)
        return replica

    def fail_storage(self, error: Exception) -> None:
        """Stop all writes, report the failure and shut down (S8)."""
        if self.is_stopped:
            return
        _log.error("storage failed, broker stops serving", extra={"error": str(error)})
        self.stop("storage failed")
        self._manager_events.storage_failure(error)


class _LocalState(PartitionObserver):
    """What the manager itself keeps of its replicas' events; first in order."""

    def __init__(
        self,
        touched: dict[TopicPartition, None],
        watermarks: MovedWatermarks,
        ticks: ReplicaTicks,
        truncations: CommittedTruncations,
    ) -> None:
        self._touched = touched
        self._watermarks = watermarks
        self._ticks = ticks
        self._truncations = truncations

    def on_role_change(self, replica: Partition) -> None:
        self._touched[replica.topic_id, replica.partition] = None
        self._watermarks.note(replica)
        self._ticks.note(replica)

    def on_append(self, replica: Partition) -> None:
        self._ticks.note(replica)

    def on_high_watermark(self, replica: Partition) -> None:
        self._watermarks.note(replica)

    def on_truncate(self, replica: Partition) -> None:
        self._watermarks.note(replica)

    def on_committed_truncation(self, cut: CommittedTruncation) -> None:
        self._truncations.note(cut)
