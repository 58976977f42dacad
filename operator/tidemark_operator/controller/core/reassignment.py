"""Begin, complete and cancel a move of a partition to other brokers (KIP-455).

While it moves, `replicas` is the target followed by the replicas that leave; `adding_replicas` and
`removing_replicas` name them. The move completes when the target's last member is in sync: the
leaving replicas leave replicas and ISR in one write, and an election follows if one of them led.
Until then all count as before, so that no failure in the middle costs more than without the move.
Another target replaces the first; the original one cancels. A replica that leaves erases its log
and may be added again immediately, so the write that removes it raises the leader epoch (S30,
docs/decisions/0059).

A retained partition has no leader; it gets one for the time of its move
(`elections.retained_or_moved`, docs/decisions/0145).
"""

from collections.abc import Sequence
from dataclasses import replace

from tidemark_protocol.ids import BrokerId, LeaderEpoch
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.partition_change import NOBODY, changed, raised

MAX_REPLICAS = 10


class CannotReassign(Exception):
    """An error: the partition cannot be moved so now; the text says why and what to do."""


def target_of(partition: PartitionState) -> tuple[BrokerId, ...]:
    """Return where the partition is, or is being moved to."""
    return tuple(b for b in partition.replicas if b not in partition.removing_replicas)


def original_of(partition: PartitionState) -> tuple[BrokerId, ...]:
    """Return where the partition was before its move: the target that cancels it."""
    return tuple(b for b in partition.replicas if b not in partition.adding_replicas)


def is_moving(partition: PartitionState) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


# guard: move-waits-for-obstacle (I19)
def obstacle(
    partition: PartitionState, target: Sequence[BrokerId], *, is_retained: bool = False
) -> str:
    """Return why that target cannot be accepted now, or ""."""
    if not target or len(set(target)) != len(target) or len(target) > MAX_REPLICAS:
        return f"expected 1 to {MAX_REPLICAS} distinct brokers, found {list(target)}"
    if not partition.has_leader and not is_retained:
        return "it has no leader: the move waits for a leader"
    kept = {*target, *original_of(partition)}
    # Of a retained partition an eligible leader may be the one that has everything.
    eligible = partition.eligible_leaders if is_retained else ()
    if kept.isdisjoint(each.broker_id for each in partition.in_sync_replicas or eligible):
        # Of those that stay nobody surely has every committed record.
        return f"none of brokers {sorted(kept)} is in sync: the move waits until one of them is"
    return ""


def reassigned(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    target: tuple[BrokerId, ...],
    *,
    is_retained: bool = False,
) -> PartitionState:
    """Return the partition on its way to `target`; the same value if it is already.

    Raises CannotReassign.
    """
    if target == target_of(partition):
        return partition
    problem = obstacle(partition, target, is_retained=is_retained)
    if problem:
        raise CannotReassign(f"topic {topic.topic} partition {partition.partition}: {problem}")
    original = original_of(partition)
    removing = tuple(b for b in original if b not in target)
    moving = replace(
        partition,
        replicas=target + removing,
        adding_replicas=tuple(b for b in target if b not in original),
        removing_replicas=removing,
    )
    in_sync = _members(partition, moving.replicas)
    # A leader that was only being added leaves, as does that of retained data that moves no more.
    # guard: cancelled-move-ends-retained-leadership (I20)
    is_at_rest = is_retained and not is_moving(moving)
    leaves = partition.has_leader and (partition.leader not in moving.replicas or is_at_rest)
    after = changed(
        topic,
        moving,
        eligibility,
        in_sync_replicas=in_sync,
        leadership=NOBODY if leaves else None,  # the settling that follows elects
    )
    if after.partition_epoch == partition.partition_epoch:
        after = raised(after)
    return without_progress_of_leavers(partition, after)


# guard: move-completes-with-target-in-sync (I19)
def may_complete(partition: PartitionState, in_sync: Sequence[Member]) -> bool:
    """Return whether the whole target is in sync; `in_sync` has live and valid members."""
    present = {member.broker_id for member in in_sync}
    return is_moving(partition) and present.issuperset(target_of(partition))


def completed(partition: PartitionState) -> PartitionState:
    """Return the partition without the leaving replicas.

    The caller raises the partition epoch, elects if the leader is one of them, and handles S30.
    """
    target = target_of(partition)
    return replace(
        partition,
        replicas=target,
        adding_replicas=(),
        removing_replicas=(),
        in_sync_replicas=_members(partition, target),
    )


def without_progress_of_leavers(before: PartitionState, after: PartitionState) -> PartitionState:
    """Raise the leader epoch if a replica left, so that its earlier fetches do not count (S30).

    The leader may learn of its leaving and of its return together, and its old fetches may arrive
    late.
    """
    if somebody_left(before, after) and after.leader_epoch == before.leader_epoch:
        return replace(after, leader_epoch=LeaderEpoch(before.leader_epoch + 1))
    return after


# guard: leaving-raises-leader-epoch (S30)
def somebody_left(before: PartitionState, after: PartitionState) -> bool:
    return not set(before.replicas) <= set(after.replicas)


def _members(partition: PartitionState, of: Sequence[BrokerId]) -> tuple[Member, ...]:
    return tuple(member for member in partition.in_sync_replicas if member.broker_id in of)
