"""One machine with its log, and the broker process that may run on it: the production cores joined
as `replication/partition.py` joins them, without bytes, tasks and clocks.

It is always 0 o'clock here: what a time rule decides is a move of its own (`lags`), since safety
may depend on no clock.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from tidemark_broker.replication.core.effects import (
    AppendRecords,
    FollowerEffect,
    HighWatermarkAdvanced,
    LeaderAssignment,
    LeaderEffect,
    LeaderResponse,
    LeaderSettings,
    RestartLogAt,
    TruncateLog,
)
from tidemark_broker.replication.core.follower import FollowerFetch, PartitionFollower
from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_broker.replication.core.remote_replica import NEVER_MS
from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.model.replicas import copied_core, core_key
from tests.model.small_log import Record, SmallLog

TOPIC_ID = TopicId("00000000-0000-0000-0000-000000000001")
NOW_MS = 0

Brokers = Mapping[BrokerId, BrokerState]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A produce with acks=all that waits for the watermark."""

    end_offset: Offset
    value: str


class Process:
    """One life of a broker. `heard` orders pushes: the epoch of the controller heard last."""

    def __init__(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, watermark: Offset) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.heard = -1
        self.brokers: Brokers = {}
        self.state: PartitionState | None = None
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.idle_watermark = watermark
        self.waiting: tuple[Waiting, ...] = ()

    def copied(self) -> "Process":
        copy = Process.__new__(Process)
        copy.__dict__.update(self.__dict__)
        if self.leader is not None:
            copy.leader = copied_core(self.leader)
        if self.follower is not None:
            copy.follower = copied_core(self.follower)
        return copy

    @property
    def high_watermark(self) -> Offset:
        core = self.leader or self.follower
        return self.idle_watermark if core is None else core.high_watermark

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(-1) if self.state is None else self.state.leader_epoch


class SmallBroker:
    """Copied before it is changed (`Cluster.own`)."""

    def __init__(self, broker_id: BrokerId, log: SmallLog) -> None:
        self.broker_id = broker_id
        self.log = log
        self.durable_end = Offset(0)  # what this process knows to be synced
        self.synced_end = Offset(0)  # what a power loss leaves at least
        self.checkpoint = Offset(0)  # the high watermark that the next start finds
        # Entries of lives up to here prove nothing, whatever anybody thinks: data was lost.
        self.lost_in = BrokerEpoch(-1)
        self.last_incarnation = BrokerEpoch(-1)
        self.process: Process | None = None
        self.settings = LeaderSettings()
        self._key: int | None = None

    def copied(self) -> "SmallBroker":
        copy = SmallBroker.__new__(SmallBroker)
        copy.__dict__.update(self.__dict__)
        copy._key = None
        if self.process is not None:
            copy.process = self.process.copied()
        return copy

    def key(self) -> int:
        """Hash of everything that counts: equal for brokers that can never behave differently."""
        if self._key is None:
            self._key = hash(self._computed_key())
        return self._key

    def _computed_key(self) -> Hashable:
        process = self.process
        ends = (self.durable_end, self.synced_end)
        disk = (ends, self.log, self.checkpoint, self.lost_in, self.last_incarnation)
        if process is None:
            return disk
        return (
            disk,
            process.broker_epoch,
            process.heard,
            tuple((b.broker_epoch, b.is_fenced, b.is_stopping) for b in process.brokers.values()),
            process.state,
            process.waiting,
            process.idle_watermark if not (process.leader or process.follower) else None,
            None if process.leader is None else core_key(process.leader),
            None if process.follower is None else core_key(process.follower),
        )

    @property
    def high_watermark(self) -> Offset:
        return self.checkpoint if self.process is None else self.process.high_watermark


class Running:
    """A broker whose process runs, and who hears what it does. Methods as in Partition."""

    def __init__(
        self,
        broker: SmallBroker,
        *,
        acknowledged: Callable[[SmallBroker, Waiting], None],
        refused: Callable[[SmallBroker, Waiting], None],
    ) -> None:
        assert broker.process is not None
        self.broker = broker
        self.process = broker.process
        self._acknowledged = acknowledged
        self._rejected = refused

    # ---- roles

    def apply_brokers(self, brokers: Brokers) -> None:
        process = self.process
        if brokers == process.brokers:
            return
        process.brokers = brokers
        if process.leader is not None:
            self.perform(process.leader.on_brokers(brokers, NOW_MS))

    def apply_state(self, state: PartitionState) -> None:
        process = self.process
        known = process.state
        if known is not None and (
            state.partition_epoch < known.partition_epoch or state.leader_epoch < known.leader_epoch
        ):
            return
        has_new_epoch = state.leader_epoch > process.leader_epoch
        is_own_grant = state.leader_broker_epoch == process.broker_epoch  # S2
        if state.leader == process.broker_id and is_own_grant:
            if process.leader is not None and not has_new_epoch:
                process.state = state
                self.perform(process.leader.on_state(state, NOW_MS))
            else:
                self._become_leader(state)
        elif state.has_leader and state.leader != process.broker_id:
            if has_new_epoch or process.follower is None:
                self._become_follower(state)
            process.state = state
        else:
            process.idle_watermark = process.high_watermark
            process.leader = process.follower = None
            self._fail_waiting()
            process.state = state

    def _become_leader(self, state: PartitionState) -> None:
        process, broker = self.process, self.broker
        watermark = process.high_watermark
        previous = process.leader
        end = broker.log.log_end_offset
        broker.log = broker.log.with_epoch(state.leader_epoch)
        process.follower = None
        process.state = state
        process.leader = PartitionLeader(
            LeaderAssignment(
                TOPIC_ID, process.broker_id, process.broker_epoch, state, broker.settings
            ),
            process.brokers,
            log_end_offset=end,
            high_watermark=watermark,
            now_ms=NOW_MS,
            previous=previous,
        )
        self.perform(process.leader.on_granted(NOW_MS))

    def _become_follower(self, state: PartitionState) -> None:
        process = self.process
        watermark = process.high_watermark
        process.leader = None
        process.follower = PartitionFollower(
            leader=state.leader, leader_epoch=state.leader_epoch, high_watermark=watermark
        )
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        for entry in self.process.waiting:
            self._rejected(self.broker, entry)
        self.process.waiting = ()

    # ---- as leader

    def append(self, value: str, *, waits: bool) -> None:
        leader, broker = self.process.leader, self.broker
        assert leader is not None
        broker.log = broker.log.appended((leader.leader_epoch, value))
        end = broker.log.log_end_offset
        if waits:
            self.process.waiting = (*self.process.waiting, Waiting(end, value))
        self.perform(leader.on_append(end, NOW_MS))

    def lags(self, broker_id: BrokerId) -> None:
        """A lag window in which that follower was not caught up has passed."""
        leader = self.process.leader
        assert leader is not None
        replica = leader.follower(broker_id)
        assert replica is not None
        replica.last_caught_up_ms = replica.last_fetch_ms = NEVER_MS
        self.perform(leader.on_tick(NOW_MS))

    def flush(self) -> None:
        broker, leader = self.broker, self.process.leader
        broker.durable_end = broker.synced_end = broker.log.log_end_offset
        if leader is not None:
            self.perform(leader.on_flushed(broker.durable_end, NOW_MS))

    def perform(self, effects: tuple[LeaderEffect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self._complete()
        leader = self.process.leader
        if leader is not None:
            leader._join_not_before_ms = NEVER_MS  # pacing: any later fetch may propose

    def _complete(self) -> None:
        process = self.process
        leader = process.leader
        if leader is None:
            return
        while process.waiting and process.waiting[0].end_offset <= leader.high_watermark:
            entry, *rest = process.waiting
            process.waiting = tuple(rest)
            tell = self._acknowledged if leader.has_enough_in_sync_replicas else self._rejected
            tell(self.broker, entry)

    # ---- as follower

    def next_fetch(self) -> FollowerFetch | None:
        follower, broker = self.process.follower, self.broker
        if follower is None:
            return None
        if broker.settings.flushes_always and broker.durable_end < broker.log.log_end_offset:
            return None  # S11: the fetch offset is an acknowledgement
        return follower.next_fetch(broker.log, NOW_MS)

    def on_leader_response(
        self, fetch: FollowerFetch, answer: LeaderResponse, records: tuple[Record, ...]
    ) -> None:
        follower, broker = self.process.follower, self.broker
        if follower is None:
            return
        self._follow(follower, follower.on_response(fetch, answer, broker.log, NOW_MS), records)
        follower.wake_at_ms = follower._failures = 0  # pacing

    def _follow(
        self,
        follower: PartitionFollower,
        effects: tuple[FollowerEffect, ...],
        records: tuple[Record, ...],
    ) -> None:
        broker = self.broker
        for effect in effects:
            match effect:
                case AppendRecords(leader_high_watermark):
                    for record in records:
                        broker.log = broker.log.appended(record)
                    follower.on_appended(leader_high_watermark, broker.log.log_end_offset)
                case TruncateLog(to_offset):
                    before, last_epoch = broker.log.log_end_offset, broker.log.latest_epoch
                    broker.log = broker.log.truncated(to_offset)
                    end = broker.log.log_end_offset
                    broker.durable_end = min(broker.durable_end, end)
                    broker.synced_end = min(broker.synced_end, end)
                    follower.on_truncated(
                        to_offset=to_offset,
                        removed_records=before - end,
                        log_end_offset=end,
                        last_epoch=last_epoch,
                    )
                case RestartLogAt(offset):
                    broker.log = SmallLog((), (), offset)
                    broker.durable_end = broker.synced_end = offset
                    follower.on_restarted(offset)
                case HighWatermarkAdvanced():
                    pass


def settings_of(commit_rule: str, flush: str) -> LeaderSettings:
    return replace(
        LeaderSettings(),
        commits_by_isr_alone=commit_rule == "Isr",
        flushes_always=flush == "Always",
    )
