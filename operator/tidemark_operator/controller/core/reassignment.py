"""Other brokers for a partition: what begins, completes and cancels a move (KIP-455). Pure.

While it moves, `replicas` is the target followed by those that are to leave; `adding_replicas` and
`removing_replicas` say which. The target's last member coming in sync completes it: who is to leave
leaves replicas and ISR in one write, and an election follows if it led. Until then everybody
counts as before, so that no failure in the middle costs more than without the move. Another target
replaces the first; the original one cancels. Whoever leaves erases its log and may be added again
at once, so the write that lets it go raises the leader epoch (S30, docs/decisions/0059).

A retained partition has no leader; it gets one for the time of its move (`elections.kept_or_moved`,
docs/decisions/0145).
"""

from collections.abc import Sequence
from dataclasses import replace

from tidemark_protocol.ids import BrokerId, LeaderEpoch
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.controller.core.eligibility import Standings
from tidemark_operator.controller.core.partition_change import NOBODY, changed, raised

MAX_REPLICAS = 10


class CannotReassign(Exception):
    """The partition cannot be moved so now; the text says why and what to wait for or to change."""


def target_of(partition: PartitionState) -> tuple[BrokerId, ...]:
    """Where it is, or is on its way to."""
    return tuple(b for b in partition.replicas if b not in partition.removing_replicas)


def original_of(partition: PartitionState) -> tuple[BrokerId, ...]:
    """Where it was before the move under way: the target that cancels it."""
    return tuple(b for b in partition.replicas if b not in partition.adding_replicas)


def is_moving(partition: PartitionState) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


# guard: move-waits-for-obstacle (I19)
def obstacle(
    partition: PartitionState, target: Sequence[BrokerId], *, is_retained: bool = False
) -> str:
    """Why that target cannot be taken up now; "": it can."""
    if not target or len(set(target)) != len(target) or len(target) > MAX_REPLICAS:
        return f"expected 1 to {MAX_REPLICAS} distinct brokers, found {list(target)}"
    if not partition.has_leader and not is_retained:
        return "it has no leader: a move waits until it has one"
    kept = {*target, *original_of(partition)}
    # Of a retained partition an eligible leader may be the one that has everything.
    eligible = partition.eligible_leaders if is_retained else ()
    if kept.isdisjoint(each.broker_id for each in partition.in_sync_replicas or eligible):
        # Of those that stay nobody surely has every committed record.
        return f"none of brokers {sorted(kept)} is in sync: a move waits until one is"
    return ""


def reassigned(
    topic: TopicState,
    partition: PartitionState,
    standings: Standings,
    target: tuple[BrokerId, ...],
    *,
    is_retained: bool = False,
) -> PartitionState:
    """On its way to `target`; the same value when it is already. Raises CannotReassign."""
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
    # A leader that was only being added.
    leaves = partition.has_leader and partition.leader not in moving.replicas
    after = changed(
        topic,
        moving,
        standings,
        in_sync_replicas=in_sync,
        leadership=NOBODY if leaves else None,  # the settling that follows elects
    )
    if after.partition_epoch == partition.partition_epoch:
        after = raised(after)
    return without_progress_of_leavers(partition, after)


# guard: move-completes-with-target-in-sync (I19)
def may_complete(partition: PartitionState, in_sync: Sequence[Member]) -> bool:
    """`in_sync`: live and valid members. Nobody leaves before the whole target has it all."""
    present = {member.broker_id for member in in_sync}
    return is_moving(partition) and present.issuperset(target_of(partition))


def completed(partition: PartitionState) -> PartitionState:
    """Without those that were to leave; the caller raises the partition epoch, elects if the
    leader is one of them, and sees to S30."""
    target = target_of(partition)
    return replace(
        partition,
        replicas=target,
        adding_replicas=(),
        removing_replicas=(),
        in_sync_replicas=_members(partition, target),
    )


def without_progress_of_leavers(before: PartitionState, after: PartitionState) -> PartitionState:
    """S30: `after` in a leader epoch in which nothing counts that a broker fetched which left. The
    leader may hear of its leaving and of its return at once, and its old fetches may come late."""
    if somebody_left(before, after) and after.leader_epoch == before.leader_epoch:
        return replace(after, leader_epoch=LeaderEpoch(before.leader_epoch + 1))
    return after


# guard: leaving-raises-leader-epoch (S30)
def somebody_left(before: PartitionState, after: PartitionState) -> bool:
    return not set(before.replicas) <= set(after.replicas)


def _members(partition: PartitionState, of: Sequence[BrokerId]) -> tuple[Member, ...]:
    return tuple(member for member in partition.in_sync_replicas if member.broker_id in of)
