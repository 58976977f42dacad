"""Run the coordinator of one `__consumer_offsets` partition in one leader epoch.

It loads what is committed, passes requests to the core and performs its effects in order, one after
the other, also where an effect causes the next input while the one before is performed. Group
records are ordinary acks=all produces. The high watermark tells what became committed, in the order
of the log and however late; the answer to a produce only ends a wait.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.clock import Clock, Scheduler, Timer
from tidemark_broker.coordinator.coordinator_loader import CoordinatorLoader
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.group_coordinator_shard import GroupCoordinatorShard
from tidemark_broker.coordinator.core.requests import (
    AppendRecords,
    ClockReading,
    Effect,
    GroupCounters,
    GroupRequest,
    GroupResponse,
)
from tidemark_broker.coordinator.core.validation import rejection
from tidemark_broker.kafka_wire.records.record_batch import build_batch
from tidemark_broker.replication.delayed_produce import answer
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.record_appender import ACKS_ALL
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.replication.results import ProduceResult


class GroupClock:
    def __init__(self, clock: Clock, wall_clock_s: Callable[[], float]) -> None:
        self.monotonic_ms = clock
        self._wall_clock_s = wall_clock_s

    def now(self) -> ClockReading:
        return ClockReading(self.monotonic_ms(), int(self._wall_clock_s() * 1000))


COORDINATOR_READER = 0  # its place among the replica's readers; those of consumers count from 1
COMMIT_TIMEOUT_MS = 5_000  # offsets.commit.timeout.ms
LOOK_MS = 50  # how late a deadline may be met: to find the next one costs a look at all members
LATE_MS = 500  # a timer this late: the process stood still, and heartbeats wait in its sockets

_log = logging.getLogger(__name__)

ResponseDone = Callable[[GroupResponse], None]


@dataclass(slots=True)
class _Append:
    append_id: int
    early_error: ErrorCode | None = None
    is_handed_over: bool = False


class ShardRunner:
    def __init__(
        self,
        replica: Partition,
        partitions: ReplicaManager,
        settings: GroupSettings,
        counts: GroupCounters,
        *,
        scheduler: Scheduler,
        clock: GroupClock,
    ) -> None:
        leader = replica.leader
        assert leader is not None
        self.core = GroupCoordinatorShard(settings, counts)
        self.replica = replica
        self.leader_epoch = leader.leader_epoch
        self._partitions = partitions
        self._scheduler = scheduler
        self._clock = clock
        self._waiting: dict[int, ResponseDone] = {}
        self._effects: deque[Effect] = deque()
        self._is_performing = False
        self._appended: deque[tuple[Offset, int]] = deque()  # (end offset, append id), by offset
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._was_late = False
        self._is_over = False
        self._load = CoordinatorLoader(
            replica, partitions, scheduler, on_record=self._on_record, on_end=self._on_loaded
        )

    # ---- leadership

    def start(self) -> None:
        self._perform(self.core.become_leader(self.leader_epoch, self._clock.now()))
        self.replica.readers[COORDINATOR_READER] = self._on_watermark
        self._on_watermark()

    def resign(self) -> None:
        """Stop, since another broker leads or none does.

        Waiting clients look for the next coordinator.
        """
        self.replica.readers.pop(COORDINATOR_READER, None)
        self._is_over = True
        self._load.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._perform(self.core.resign(self.leader_epoch, self._clock.now()))

    @property
    def _leads(self) -> bool:
        leader = self.replica.leader
        return leader is not None and leader.leader_epoch == self.leader_epoch

    # ---- requests

    def request(self, request_id: int, request: GroupRequest, done: ResponseDone) -> None:
        """Pass a request to the core; `done` is called once, maybe before this returns."""
        self._waiting[request_id] = done
        try:
            effects = self.core.on_request(request_id, request, self._clock.now())
        except Exception:
            # Asked in a way that we did not foresee: it must not wait, and nobody else with it.
            _log.exception(
                "group request failed",
                extra={"partition": self.replica.partition, "request": type(request).__name__},
            )
            del self._waiting[request_id]
            answer(done, rejection(request, ErrorCode.UNKNOWN_SERVER_ERROR))
            effects = ()  # what the core did before it failed comes with the next look
        self._perform(effects)

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        self._perform(self.core.on_topics_deleted(topics))

    def on_expiry(self) -> None:
        self._perform(self.core.on_expiry(self._clock.now()))

    # ---- effects

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        self._effects.extend(effects)
        if self._is_performing:
            return  # the call that performs effects performs these, too
        self._is_performing = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                if isinstance(effect, AppendRecords):
                    self._append(effect)
                elif effect.request_id in self._waiting:  # else refused when the core failed
                    answer(self._waiting.pop(effect.request_id), effect.answer)
        finally:
            self._is_performing = False
        if self._is_over:
            assert not self._waiting, "a request was left without an answer"
        else:
            self._check_soon()

    def _append(self, effect: AppendRecords) -> None:
        if not self._leads:
            self._rejected(effect.append_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        assert effect.leader_epoch == self.leader_epoch
        append = _Append(effect.append_id)
        batch = build_batch(
            [(record.key, record.value, ()) for record in effect.records],
            timestamp_ms=self._clock.now().wall_ms,
        )
        log = self.replica.log
        end_before = log.log_end_offset
        self._partitions.produces.produce(
            self.replica.topic,
            self.replica.partition,
            memoryview(batch),
            acks=ACKS_ALL,
            timeout_ms=COMMIT_TIMEOUT_MS,
            done=lambda result: self._on_produced(append, result),
        )
        append.is_handed_over = True
        if log.log_end_offset == end_before:
            assert append.early_error is not None, "a produce that neither wrote nor failed"
            self._rejected(append.append_id, append.early_error)
            return
        self._appended.append((log.log_end_offset, append.append_id))
        if append.early_error is not None:
            self._late(append.append_id)
        self._take_committed()

    def _on_produced(self, append: _Append, result: ProduceResult) -> None:
        if result.error is ErrorCode.NONE:
            return  # the watermark says so in its turn
        if append.is_handed_over:
            self._late(append.append_id)
        else:
            append.early_error = result.error

    def _rejected(self, append_id: int, error: ErrorCode) -> None:
        self._perform(self.core.on_rejected(append_id, error, self._clock.now()))

    def _late(self, append_id: int) -> None:
        self._perform(self.core.on_late(append_id, self._clock.now()))

    def _on_watermark(self) -> None:
        if not self._leads:
            return  # the change of role comes next
        self._load.on_watermark()
        self._take_committed()

    def _take_committed(self) -> None:
        while self._appended and self._appended[0][0] <= self.replica.high_watermark:
            _, append_id = self._appended.popleft()
            self._perform(self.core.on_committed(append_id, self._clock.now()))

    # ---- loading

    def _on_record(self, key: bytes, value: bytes | None) -> None:
        self.core.on_record(self.leader_epoch, key, value)

    def _on_loaded(self) -> None:
        self._perform(self.core.on_loaded(self.leader_epoch, self._clock.now()))
        _log.info(
            "group offsets loaded",
            extra={
                "partition": self.replica.partition,
                "leader_epoch": self.leader_epoch,
                "end_offset": self._load.end_offset,
                "groups": len(self.core.list_groups()[1]),
                "unreadable_records": self.core.unreadable_records,
            },
        )

    # ---- time

    def _check_soon(self) -> None:
        """Set the timer to run soon: the next deadline may have become earlier."""
        due_ms = self._clock.monotonic_ms() + LOOK_MS
        if self._timer is None or self._timer_due_ms > due_ms:
            self._set_timer(due_ms)

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(0, due_ms - self._clock.monotonic_ms())
        self._timer = self._scheduler.call_later(delay_ms / 1000, self._check)

    def _check(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        self._was_late = not self._was_late and now_ms > self._timer_due_ms + LATE_MS
        if self._was_late:
            self._set_timer(now_ms + LOOK_MS)
            return
        deadline_ms = self.core.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= now_ms:
            self._perform(self.core.on_tick(self._clock.now()))  # which looks again
        elif deadline_ms is not None:
            self._set_timer(deadline_ms)
