"""What stalls may not cost: a follower its place in the ISR (S21), a partition its leader again and
again (S20).

Nothing is lost by either, so no invariant speaks of them. Evictions are judged in runs in which
nothing but brokers' own stalls befell the world: who did not stall could have been heard.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import Member, PartitionState
from tidemark_protocol.topic_configs import REPLICA_LAG_TIME_MAX_MS, integer_of

from tests.simulation.checks.session_checks import kinds_so_far
from tests.simulation.checks.violations import Violation

OF_BROKERS = frozenset({"stall_broker"})
FAST_CLOCK = 1.3  # a controller's, at most: its window is that much shorter


def check_evicted_in_vain(
    before: PartitionSlice,
    after: PartitionSlice,
    coverage: Counter[str],
    *,
    excused: Collection[BrokerId],
) -> None:
    """`coverage`: of the world. `excused`: who stalled, or was killed in the end. Raises
    Violation."""
    if kinds_so_far(coverage) != OF_BROKERS:
        return
    for old, new in both(before, after):
        evicted = old.in_sync_ids - new.in_sync_ids - set(excused)
        if evicted:
            raise Violation(
                "S21", f"{after.name}: brokers {sorted(evicted)} never stalled: {old} became {new}"
            )


class MoveChecker:
    """One move off a leader that cannot write in each lag window of its topic, by the clock of the
    controller that decides it; another controller knows nothing of it (S20). `cannot_write(broker,
    controller epoch)`: as that controller knows it. `balances_often`: leadership that goes back to
    a preferred replica may be no such move, and begins no window (L5)."""

    def __init__(
        self,
        cannot_write: Callable[[BrokerId, ControllerEpoch], bool],
        *,
        balances_often: bool = False,
    ) -> None:
        self._cannot_write = cannot_write
        self._balances_often = balances_often
        self._moved_us: dict[tuple[TopicId, int, ControllerEpoch], int] = {}

    def on_slice(self, before: PartitionSlice, after: PartitionSlice, now_us: int) -> None:
        """Raises Violation."""
        epoch = after.controller_epoch
        for old, new in both(before, after):
            previous = Member(old.leader, old.leader_broker_epoch)
            is_moved = old.has_leader and new.has_leader and old.leader != new.leader
            if not is_moved or previous not in new.in_sync_replicas:
                continue  # an election: it had to be
            if not self._cannot_write(old.leader, epoch):
                continue
            if self._balances_often and new.leader == new.replicas[0]:
                continue
            key = (after.topic.topic_id, new.partition, epoch)
            moved_us = self._moved_us.get(key)
            self._moved_us[key] = now_us
            window_us = 1000 * integer_of(REPLICA_LAG_TIME_MAX_MS, after.topic.config) / FAST_CLOCK
            if moved_us is not None and now_us - moved_us < window_us:
                raise Violation(
                    "S20", f"{after.name}: moved again after {now_us - moved_us} us: {old}, {new}"
                )


def both(
    before: PartitionSlice, after: PartitionSlice
) -> Iterator[tuple[PartitionState, PartitionState]]:
    known = {state.partition: state for state in before.partitions}
    return ((known[s.partition], s) for s in after.partitions if s.partition in known)
