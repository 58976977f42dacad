"""Own one replica on this broker: its log, its present role, and the requests that wait for it.

It performs the effects of `PartitionLeader` and `PartitionFollower` in order and decides nothing
about replication. What must be durable (a new epoch in the cache) precedes what reports it. Appends
are inline: a hop to a thread costs more than the write. Synchronous; one event loop owns it.

`CommittedTruncations` keeps truncations of committed records until the controller has recorded the
loss. It is in memory: a process that ends before leaves a line in its log and its metric, nothing
else.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidemark_protocol.controller_messages import (
    BrokerState,
    CommittedTruncation,
    IsrProposal,
    IsrResult,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId
from tidemark_protocol.partition_state import FLUSH_ALWAYS, PartitionState, TopicState

from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import Batch
from tidemark_broker.log.errors import DiskFull, LocalLogCorrupt, OffsetGap
from tidemark_broker.log.log_config import settings_of_topic
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.replication.core.assignment import Follow, Lead, LocalBroker, Role
from tidemark_broker.replication.core.corruption import Corruption, is_in_no_set
from tidemark_broker.replication.core.effects import (
    AppendRecords,
    FollowLogStart,
    HighWatermarkAdvanced,
    LeaderAssignment,
    LeaderEffect,
    LeaderResponse,
    LeaderSettings,
    ProposeIsr,
    ReplicaFetch,
    RestartLogAt,
    TruncateLog,
)
from tidemark_broker.replication.core.follower import (
    FollowerFetch,
    LeaderContact,
    PartitionFollower,
)
from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_broker.replication.core.remote_replica import FollowerContact
from tidemark_broker.replication.core.replica_digest import ReplicaDigest
from tidemark_broker.replication.delayed_produce import DelayedProducePurgatory
from tidemark_broker.replication.partition_snapshot import (
    IsrChanges,
    PartitionSnapshot,
    follower_snapshots,
)

DEFAULT_REPLICA_LAG_MAX_MS = 10_000
MAX_EXPIRY_PAUSE_MS = 600_000  # Kafka's producer.id.expiration.check.interval.ms


@dataclass(frozen=True, slots=True)
class PartitionEvents:
    """The handlers of a replica's events, as `partition_observer` describes them."""

    submit: Callable[[IsrProposal], None]
    append: Callable[["Partition"], None]
    high_watermark: Callable[["Partition"], None]
    log_start: Callable[["Partition"], None]
    role_change: Callable[["Partition"], None]
    flush_needed: Callable[["Partition"], None]
    truncate: Callable[["Partition"], None]
    committed_truncation: Callable[[CommittedTruncation], None]


class Partition:
    def __init__(
        self, log: PartitionLog, *, high_watermark: Offset, events: PartitionEvents
    ) -> None:
        self.log = log
        self.topic = log.topic
        self.topic_id = log.topic_id
        self.partition = log.partition
        self.topic_state: TopicState | None = None
        self.state: PartitionState | None = None
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.produces = DelayedProducePurgatory()
        self.corruption: Corruption | None = None  # a corrupt batch was met on our disk
        self.readers: dict[int, Callable[[], None]] = {}  # parked consumer reads, by arrival
        self.next_tick_ms = 0
        self.duplicate_batches = 0  # answered from the log instead of appended
        # From the checkpoint, and no further than the log goes (I1).
        start, end = log.log_start_offset, log.log_end_offset
        self._idle_high_watermark = max(start, min(high_watermark, end))
        self._durable_end_offset = Offset(-1)
        self._settings = LeaderSettings()
        self._events = events
        self.isr_changes = IsrChanges()
        self.digest: ReplicaDigest | None = None  # updated by `ReplicaDigests` once it is requested
        # The highest watermark that this replica knows of, its own or its leader's.
        self._heard_high_watermark = high_watermark
        self._election_gap = 0
        self._largest_append = 0
        self._past_truncated = 0
        self._past_committed_truncated = 0

    # ---- what is true now

    @property
    def high_watermark(self) -> Offset:
        core = self.leader or self.follower
        return self._idle_high_watermark if core is None else core.high_watermark

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(NO_EPOCH) if self.state is None else self.state.leader_epoch

    @property
    def role(self) -> str:
        if self.leader is not None:
            return "leader"
        return "idle" if self.follower is None else "follower"

    @property
    def max_batch_bytes(self) -> int:
        return self.log.settings.max_batch_bytes

    @property
    def replica_lag_max_ms(self) -> int:
        return self._setting("replica.lag.time.max.ms", DEFAULT_REPLICA_LAG_MAX_MS)

    def _setting(self, name: str, default: int) -> int:
        if self.topic_state is None:
            return default
        try:
            return int(self.topic_state.config[name])
        except (KeyError, ValueError):
            return default

    # ---- roles

    def apply_topic(self, topic: TopicState) -> None:
        if topic == self.topic_state:
            return
        self.topic_state = topic
        self.log.settings = settings_of_topic(topic.config)
        previous_lag_max_ms = self._settings.replica_lag_max_ms
        self._settings = LeaderSettings(
            commits_by_isr_alone=topic.commit_rule == "Isr",
            flushes_always=topic.flush == FLUSH_ALWAYS,
            replica_lag_max_ms=self.replica_lag_max_ms,
        )
        if previous_lag_max_ms != self.replica_lag_max_ms:
            self.next_tick_ms = 0  # it was set by the former window, which may have been hours
        if self.leader is not None:
            self.leader.on_settings(self._settings)

    def apply_state(
        self, state: PartitionState, role: Role, broker: LocalBroker, now_ms: int
    ) -> None:
        """Apply a state that names this broker as a replica, in the role that it assigns.

        Older ones change nothing, equal ones are the same state.
        """
        if self._is_older(state):
            return
        has_new_epoch = state.leader_epoch > self.leader_epoch
        match role:
            case Lead():
                before = self.state
                proposal = None if self.leader is None else self.leader.pending_proposal
                if self.leader is not None and not has_new_epoch:
                    self.state = state
                    self._perform(self.leader.on_state(state, now_ms))
                else:
                    self._become_leader(state, broker, now_ms)
                if before is not None:
                    self.isr_changes.note(before, state, broker.brokers, proposal)
            case Follow():
                if has_new_epoch or self.follower is None:
                    self._become_follower(state)
                assert self.follower is not None
                self.follower.is_isr_or_elr_member = not is_in_no_set(state, broker.broker_id)
                self.state = state
            case _:
                if self.role != "idle":
                    self.become_idle("the partition has no leader")
                self.state = state

    # guard: replica-applies-newer-state (I14)
    def _is_older(self, state: PartitionState) -> bool:
        return self.state is not None and state.partition_epoch < self.state.partition_epoch

    def _become_leader(self, state: PartitionState, broker: LocalBroker, now_ms: int) -> None:
        end = self.log.log_end_offset
        # Before any append, and even if none follows: else the epoch's start is lost (KAFKA-7415).
        self.log.assign_epoch(state.leader_epoch, end)
        high_watermark = self.high_watermark
        previous = self.leader
        self._retire_cores()
        grant = LeaderAssignment(
            self.topic_id, broker.broker_id, broker.broker_epoch, state, self._settings
        )
        leader = PartitionLeader(
            grant,
            broker.brokers,
            log_end_offset=end,
            high_watermark=high_watermark,
            now_ms=now_ms,
            previous=previous,
        )
        self.state = state
        self.leader = leader
        self._election_gap = max(0, self._heard_high_watermark - end)
        self._largest_append = 0
        self._durable_end_offset = Offset(-1)
        self.next_tick_ms = now_ms + self.replica_lag_max_ms // 2
        self._perform(leader.on_granted(now_ms))
        self._ask_flush()
        self._events.role_change(self)
        self._wake_readers()  # those parked here as at a follower: another epoch, another answer

    def _become_follower(self, state: PartitionState) -> None:
        high_watermark = self.high_watermark
        self._retire_cores()
        self.follower = PartitionFollower(
            leader=state.leader, leader_epoch=state.leader_epoch, high_watermark=high_watermark
        )
        self.state = state
        self._durable_end_offset = Offset(-1)
        self._fail_waiting("leadership moved to another broker")

    def become_idle(self, reason: str) -> None:
        self._idle_high_watermark = self.high_watermark
        self._retire_cores()
        self._fail_waiting(reason)

    def _fail_waiting(self, reason: str) -> None:
        self._events.role_change(self)
        self.produces.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        self._wake_readers()

    def _retire_cores(self) -> None:
        if self.leader is not None:
            self._heard_high_watermark = self.leader.high_watermark
        if self.follower is not None:
            if self.follower.leader_high_watermark >= 0:
                self._heard_high_watermark = self.follower.leader_high_watermark
            self._past_truncated += self.follower.truncated_records
            self._past_committed_truncated += self.follower.committed_truncated_records
        self.leader = self.follower = None

    # ---- as leader

    def append(self, batches: list[Batch], now_ms: int) -> tuple[Offset, Offset]:
        """Append batches and return (first offset, end offset).

        Raises DiskFull and StorageFailed, then nothing changed.
        """
        leader = self.leader
        assert leader is not None
        appended = self.log.append_as_leader(batches, leader_epoch=leader.leader_epoch)
        end = self.log.log_end_offset
        if end - appended.first_offset > self._largest_append:
            self._largest_append = end - appended.first_offset
        self._perform(leader.on_append(end, now_ms))
        self._ask_flush()
        self._events.append(self)
        return appended.first_offset, end

    def on_replica_fetch(
        self,
        fetch: ReplicaFetch,
        leader_end: Offset,
        now_ms: int,
        contact: FollowerContact | None = None,
    ) -> None:
        assert self.leader is not None
        self._perform(
            self.leader.on_fetch(fetch, leader_end=leader_end, now_ms=now_ms, contact=contact)
        )

    def on_contact_ended(self, broker_id: BrokerId, contact: FollowerContact) -> None:
        follower = None if self.leader is None else self.leader.follower(broker_id)
        if follower is not None:
            follower.on_contact_ended(contact, self.log.log_end_offset)

    def advance_log_start(self, offset: Offset) -> bool:
        """Advance the log start as `PartitionLog.advance_log_start` does.

        Followers are notified as of a watermark, and a leader because it redirects consumers.
        """
        is_change = self.log.advance_log_start(offset)
        if is_change:
            self._events.high_watermark(self)
            self._events.log_start(self)
        return is_change

    def on_brokers(self, brokers: Mapping[BrokerId, BrokerState], now_ms: int) -> None:
        if self.leader is not None:
            self._perform(self.leader.on_brokers(brokers, now_ms))

    def on_response(self, proposal: IsrProposal, answer: IsrResult, now_ms: int) -> None:
        """Handle a proposal's result after its state went through `apply_state`."""
        if self.leader is not None:
            self._perform(self.leader.on_response(proposal, answer.error, now_ms))

    def on_tick(self, now_ms: int) -> None:
        if self.leader is None:
            return
        self._perform(self.leader.on_pulse(now_ms))
        if now_ms < self.next_tick_ms:
            return
        self.next_tick_ms = now_ms + self.replica_lag_max_ms // 2
        self._perform(self.leader.on_tick(now_ms))

    def expire_producers(self, now_ms: int) -> int:
        """Forget expired producers, as leader and as follower; return when to look again (ms).

        A follower may become leader, and both have to bound their memory (S24)."""
        expiration_ms = self.log.settings.producer_expiration_ms
        self.log.producers.expire(now_ms, expiration_ms=expiration_ms)
        return now_ms + max(1, min(expiration_ms // 10, MAX_EXPIRY_PAUSE_MS))

    def on_stall(self, stall_ms: int, now_ms: int) -> None:
        if self.leader is not None:
            self.leader.on_stall(stall_ms, now_ms)

    def _perform(self, effects: tuple[LeaderEffect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self._on_high_watermark(effect.high_watermark)
            else:
                assert isinstance(effect, ProposeIsr)
                self._events.submit(effect.proposal)

    def _on_high_watermark(self, high_watermark: Offset) -> None:
        self.produces.complete(self.leader)
        self._events.high_watermark(self)
        self._wake_readers()

    def _wake_readers(self) -> None:
        if self.readers:
            for retry in tuple(self.readers.values()):
                retry()

    # ---- as follower

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        follower, corruption = self.follower, self.corruption
        if follower is None:
            return None
        if corruption is not None and not corruption.may_fetch(
            self.state, follower.knows_what_is_shared
        ):
            return None
        if self.has_unsynced(self.log.log_end_offset):
            # S11: the fetch offset is our acknowledgement, so it must be a durable end.
            self._events.flush_needed(self)
            return None
        return follower.next_fetch(self.log, now_ms)

    @property
    def may_be_rebuilt(self) -> bool:
        """Return whether the replica may be rebuilt.

        It follows with corruption that no ISR or ELR entry names, and knows what its leader has of
        it.
        """
        if self.corruption is None or self.follower is None:
            return False
        return self.corruption.may_be_truncated(self.state) and self.follower.knows_what_is_shared

    def on_leader_response(
        self, fetch: FollowerFetch, answer: LeaderResponse, records: memoryview, now_ms: int
    ) -> None:
        """Handle a leader's answer and perform the effects.

        Raises StorageFailed; CorruptBatch, OffsetGap and DiskFull with nothing kept: the same is
        fetched again after a pause. LocalLogCorrupt: a truncation met a corrupt batch.
        """
        follower = self.follower
        if follower is None:
            return
        for effect in follower.on_response(fetch, answer, self.log, now_ms):
            match effect:
                case AppendRecords(leader_high_watermark):
                    self._append_as_follower(follower, leader_high_watermark, records, now_ms)
                case HighWatermarkAdvanced(high_watermark):
                    self._on_high_watermark(high_watermark)
                case FollowLogStart(leader_start_offset):
                    self.log.advance_log_start(follower.log_start_at(leader_start_offset))
                case TruncateLog(to_offset):
                    removed = self._truncate_as_follower(follower, to_offset, now_ms)
                    self._record_truncated(follower, to_offset, removed, fetch.last_fetched_epoch)
                    self._events.truncate(self)
                case RestartLogAt(offset):
                    held_from = max(offset, self.log.log_start_offset)  # an empty log may go back
                    removed = max(0, self.log.log_end_offset - held_from)
                    self.log.truncate_fully_and_start_at(offset)
                    self._record_truncated(follower, held_from, removed, fetch.last_fetched_epoch)
                    follower.on_restarted(offset)
                    self._events.truncate(self)

    def _truncate_as_follower(
        self, follower: PartitionFollower, offset: Offset, now_ms: int
    ) -> int:
        try:
            return self.log.truncate_to(offset)
        except CorruptBatch as error:
            follower.on_truncation_missed(now_ms)
            raise LocalLogCorrupt(offset, error) from error

    def _record_truncated(
        self,
        follower: PartitionFollower,
        to_offset: Offset,
        removed_records: int,
        last_epoch: LeaderEpoch,
    ) -> None:
        self._durable_end_offset = Offset(-1)
        counted = follower.committed_truncated_records
        follower.on_truncated(
            to_offset=to_offset,
            removed_records=removed_records,
            log_end_offset=self.log.log_end_offset,
            last_epoch=last_epoch,
        )
        if follower.untruncated is not None and follower.committed_truncated_records > counted:
            # That loss is counted: it is not the gap of a later election too.
            self._heard_high_watermark = follower.high_watermark
            self._events.committed_truncation(
                CommittedTruncation(
                    self.topic_id,
                    self.partition,
                    follower.leader_epoch,
                    to_offset,
                    *follower.untruncated,
                )
            )

    def on_nothing_new(
        self, fetch: FollowerFetch, now_ms: int, contact: LeaderContact | None = None
    ) -> None:
        if self.follower is not None:
            self.follower.on_nothing_new(fetch, self.log, now_ms, contact)

    def on_leader_contact_ended(self) -> None:
        if self.follower is not None:
            self.follower.on_contact_ended()

    def _append_as_follower(
        self,
        follower: PartitionFollower,
        leader_high_watermark: Offset,
        records: memoryview,
        now_ms: int,
    ) -> None:
        try:
            self.log.append_as_follower(records)
        except (CorruptBatch, OffsetGap, DiskFull):
            follower.on_bad_records(now_ms)
            raise
        for effect in follower.on_appended(leader_high_watermark, self.log.log_end_offset):
            if isinstance(effect, HighWatermarkAdvanced):
                self._on_high_watermark(effect.high_watermark)

    # ---- flush: Always

    @property
    def needs_flush(self) -> bool:
        """Return whether a request waits for a sync; not for a replica without a role."""
        return self.role != "idle" and self.has_unsynced(self.log.log_end_offset)

    def has_unsynced(self, end_offset: Offset) -> bool:
        """Return whether, with `flush: Always`, our disk lacks something below that offset."""
        return self._settings.flushes_always and self._durable_end_offset < end_offset

    def _ask_flush(self) -> None:
        if self.needs_flush:
            self._events.flush_needed(self)

    def on_flushed(self, end_offset: Offset, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        """Record a flush; the arguments are from before it began."""
        if leader_epoch != self.leader_epoch:
            return  # the role changed meanwhile: its first flush is asked anew
        # Not `end_offset` alone: the log may have been truncated and rewritten meanwhile (S11).
        self._durable_end_offset = min(end_offset, self.log.recovery_point)
        if self.leader is not None:
            self._perform(self.leader.on_flushed(self._durable_end_offset, now_ms))
            self.produces.on_synced(self._durable_end_offset)

    # ---- /metrics

    def snapshot(self, now_ms: int) -> PartitionSnapshot:
        """Return one consistent snapshot: between two awaits nothing changes."""
        state, leader, follower = self.state, self.leader, self.follower
        log = self.log
        return PartitionSnapshot(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            is_leader=leader is not None,
            leader_epoch=self.leader_epoch,
            epoch_start_offset=self._epoch_start_offset(),
            log_start_offset=log.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=log.log_end_offset,
            size_bytes=log.size_bytes,
            state=state,
            replica_lag_max_ms=self._settings.replica_lag_max_ms,
            followers=() if leader is None else follower_snapshots(leader, now_ms),
            isr_shrinks=self.isr_changes.shrinks,
            isr_expands=self.isr_changes.expands,
            truncated_records=self._past_truncated
            + (follower.truncated_records if follower else 0),
            committed_truncated_records=self._past_committed_truncated
            + (follower.committed_truncated_records if follower else 0),
            election_gap_records=self._election_gap,
            largest_append_records=self._largest_append,
            producer_ids=len(log.producers),
            duplicate_batches=self.duplicate_batches,
            digest=None if self.digest is None else self.digest.shown(now_ms),
        )

    def _epoch_start_offset(self) -> Offset:
        if self.leader is not None:
            return self.leader.epoch_start_offset
        start = self.log.epoch_start_offset(self.leader_epoch)
        return Offset(-1) if start is None else start


MAX_REPORTED = 256  # in one heartbeat; the others are in the next ones

_log = logging.getLogger(__name__)


class CommittedTruncations:
    def __init__(self) -> None:
        self._unrecorded: dict[tuple[TopicId, int, LeaderEpoch], CommittedTruncation] = {}

    # guard: committed-truncation-is-reported (S28)
    def note(self, cut: CommittedTruncation) -> None:
        """Record a truncation; a later one in the same leader epoch includes it."""
        _log.error(
            "committed records truncated",
            extra={
                "topic_id": cut.topic_id,
                "partition": cut.partition,
                "leader_epoch": cut.leader_epoch,
                "from_offset": cut.to_offset,
                "high_watermark": cut.high_watermark,
                "log_end_offset": cut.log_end_offset,
            },
        )
        self._unrecorded[cut.topic_id, cut.partition, cut.leader_epoch] = cut

    def unrecorded(self) -> tuple[CommittedTruncation, ...]:
        """Return the truncations for the next heartbeat."""
        return tuple(self._unrecorded.values())[:MAX_REPORTED]

    def record_recorded(self, truncations: Iterable[CommittedTruncation]) -> None:
        """Remove those of one heartbeat; one that has grown since is reported again."""
        for cut in truncations:
            key = (cut.topic_id, cut.partition, cut.leader_epoch)
            if self._unrecorded.get(key) == cut:
                del self._unrecorded[key]
