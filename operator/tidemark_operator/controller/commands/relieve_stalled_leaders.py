"""Move leadership off brokers that are alive but cannot write (S20).

A disk that hangs blocks only the workers that sync: the broker goes on polling, so no session ends.
Its heartbeats carry the age of its oldest unfinished append and of its last disk probe. Only these
ages of the leader itself count, because a follower's stall shows in nothing that a leader measures.
The lag rule checks followers, so a leader that lost leadership here stays in sync as long as it
keeps up. There is one move for each partition in a lag window: if all disks hang, leadership does
not wander.
"""

import logging
from collections.abc import Callable, Container

from tidemark_protocol.controller_messages import HeartbeatRequest
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState, TopicState
from tidemark_protocol.topic_configs import REPLICA_LAG_TIME_MAX_MS, integer_of

from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.decision import ChangeSlice, Deferred, Steps
from tidemark_operator.controller.core.elections import LeaderCounts, leader_moved_off
from tidemark_operator.controller.core.eligibility import Eligibility, Replica
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.timeline import BrokerChanged, BrokerTurn, Cause

logger = logging.getLogger(__name__)


class StalledLeaders:
    """The stalled leaders of one pool, as one controller sees them."""

    def __init__(self, pool: PoolState, *, now_ms: Callable[[], int], stall_limit_ms: int) -> None:
        self._pool = pool
        self._now_ms = now_ms
        self._stall_limit_ms = stall_limit_ms
        self._moved_at_ms: dict[Replica, int] = {}
        # Put off, and maybe stored all the same: off whom, and when.
        self._perhaps_moved: dict[Replica, tuple[BrokerId, int]] = {}

    def note(self, request: HeartbeatRequest) -> bool:
        """Record a heartbeat; return whether `move_leaders_off` is due.

        It is due if the broker cannot write now.
        """
        notes = self._pool.soft_state_of(request.broker_id)
        is_stalled = self._cannot_write(request)
        if is_stalled != notes.is_write_stalled:
            logger.warning(
                "broker cannot write" if is_stalled else "broker can write again",
                extra={
                    "broker_id": request.broker_id,
                    "oldest_append_age_ms": request.oldest_append_age_ms,
                    "disk_probe_age_ms": request.disk_probe_age_ms,
                },
            )
            turn = BrokerTurn.WRITE_STALLED if is_stalled else BrokerTurn.WRITES_AGAIN
            self._pool.timeline.record(BrokerChanged(turn, request.broker_id, request.broker_epoch))
        notes.is_write_stalled = is_stalled
        return is_stalled

    def _cannot_write(self, request: HeartbeatRequest) -> bool:
        oldest_ms = max(request.oldest_append_age_ms, request.disk_probe_age_ms)
        return oldest_ms >= self._stall_limit_ms

    def move_leaders_off(self, pool: PoolState, outcome_unknown: Container[str]) -> Steps[None]:
        """Move what stalled brokers lead to in-sync replicas that can write, if there are any."""
        eligibility, counts = pool.eligibility(), pool.leader_counts()
        for name in sorted(pool.slices):
            value = pool.slices[name]
            if name not in outcome_unknown:
                yield from self._move_leaders_off(value, eligibility, counts)

    def _move_leaders_off(
        self, value: PartitionSlice, eligibility: Eligibility, counts: LeaderCounts
    ) -> Steps[None]:
        topic = value.topic
        wanted = value.with_partitions(
            tuple(
                self._with_leaders_moved(topic, state, eligibility, counts)
                for state in value.partitions
            )
        )
        if wanted is value:
            return
        moved = [
            (before, after)
            for before, after in zip(value.partitions, wanted.partitions, strict=True)
            if after.leader != before.leader
        ]
        try:
            # What is stored is not what we knew: the next heartbeat asks again.
            outcome = yield ChangeSlice(value, lambda found: wanted if found is value else found)
        except Deferred as error:
            logger.warning(
                "leadership move deferred", extra={"slice": value.name, "error": str(error)}
            )
            now_ms = self._forget_old()
            for before, after in moved:
                self._perhaps_moved[topic.topic_id, after.partition] = (before.leader, now_ms)
            return
        stored = outcome.stored.get(value.name)
        if stored is None or stored.partitions != wanted.partitions:
            return
        now_ms = self._forget_old()
        numbers = [after.partition for _, after in moved]
        self._moved_at_ms.update(((topic.topic_id, number), now_ms) for number in numbers)
        logger.warning(
            "leadership moved off a broker that cannot write",
            extra={"topic": value.topic.topic, "partitions": numbers},
        )

    def _forget_old(self) -> int:
        """Forget moves older than any lag window, and of deleted topics; return the time."""
        now_ms = self._now_ms()
        since_ms = now_ms - REPLICA_LAG_TIME_MAX_MS.maximum
        self._moved_at_ms = {
            replica: at_ms for replica, at_ms in self._moved_at_ms.items() if at_ms > since_ms
        }
        self._perhaps_moved = {
            replica: move for replica, move in self._perhaps_moved.items() if move[1] > since_ms
        }
        return now_ms

    def _with_leaders_moved(
        self,
        topic: TopicState,
        state: PartitionState,
        eligibility: Eligibility,
        counts: LeaderCounts,
    ) -> PartitionState:
        replica = (topic.topic_id, state.partition)
        if not state.has_leader or eligibility.can_write(state.leader):
            return state
        may_grant = self._pool.may_grant(replica, state, eligibility)
        self._record_outcome(replica, state)
        if self._has_moved_lately(topic, replica) or not may_grant:
            return state
        after = leader_moved_off(topic, state, eligibility, leader_counts=counts)
        self._pool.explain(topic, state, after, Cause.STALLED_DISK, eligibility, counts)
        return after

    def _record_outcome(self, replica: Replica, state: PartitionState) -> None:
        """Record the outcome of a deferred move from the state that was read since.

        If another broker leads, the move was made.
        """
        previous, at_ms = self._perhaps_moved.pop(replica, (state.leader, 0))
        if previous != state.leader:
            self._moved_at_ms[replica] = at_ms

    # guard: one-move-in-lag-window (S20)
    def _has_moved_lately(self, topic: TopicState, replica: Replica) -> bool:
        moved_at_ms = self._moved_at_ms.get(replica)
        window_ms = integer_of(REPLICA_LAG_TIME_MAX_MS, topic.config)
        return moved_at_ms is not None and self._now_ms() - moved_at_ms < window_ms
