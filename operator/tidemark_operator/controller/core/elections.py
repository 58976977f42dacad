"""Elect leaders from the complete state, never from the event.

`partition_after_election` returns the state that a partition should have given the present brokers:
dead, stopping and invalid members are out of the ISR (I13), a fenced leader is replaced (I12).
Who leads, in this order:

1. the present leader, while it is live, of the same broker epoch and in sync;
2. live valid ISR members, those that are being removed last;
3. if the ISR is empty, live valid eligible leaders;
4. an unclean election (`unclean_recovery`: S14, a person's choice, the topic's config), which
   leaves an `UncleanElection`;
5. no broker.

Among equals a broker that can write comes first, then the one that leads the fewest partitions,
then the order of assignment (`_best_candidate`).

Not elected here: leaders of new partitions (`new_partitions.py`), leaders that return to the
first replica (`preferred_leader_restored`), and those that leave a stalled disk
(`leader_moved_off`).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidemark_protocol.ids import NO_BROKER, BrokerId, LeaderEpoch, PartitionEpoch
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.unclean_election import UncleanElection
from tidemark_operator.controller.core.eligibility import Eligibility, Replica
from tidemark_operator.controller.core.partition_change import (
    COMMIT_RULE_ISR,
    NOBODY,
    Leadership,
    changed,
    raised,
)
from tidemark_operator.controller.core.reassignment import (
    completed,
    is_moving,
    may_complete,
    without_progress_of_leavers,
)
from tidemark_operator.controller.core.unclean_recovery import (
    NO_REPORTS,
    Reports,
    UncleanRecovery,
    unclean_recovery,
)


@dataclass(frozen=True, slots=True)
class ElectionEvidence:
    """What is known of one partition besides its slice and the brokers' eligibility."""

    reports: Reports = NO_REPORTS
    choice: LeaderChoice | None = None
    # Every live replica has received this state and could have reported that it has a newer one
    # (S17): before that a slice may be an old backup, and no leader is elected from it.
    is_confirmed: bool = True


NO_EVIDENCE = ElectionEvidence()


class LeaderCounts:
    """The number of partitions that each broker leads, updated during one event's elections."""

    def __init__(
        self,
        partitions: Iterable[PartitionState] = (),
        *,
        counts: Counter[BrokerId] | None = None,
    ) -> None:
        """Count the leaders of `partitions`, or use known `counts`."""
        led = Counter(state.leader for state in partitions if state.has_leader)
        self._counts = led if counts is None else counts

    def __getitem__(self, broker_id: BrokerId) -> int:
        return self._counts[broker_id]

    def note(self, before: PartitionState, after: PartitionState) -> None:
        if before.leader == after.leader:
            return
        if before.has_leader:
            self._counts[before.leader] -= 1
        if after.has_leader:
            self._counts[after.leader] += 1


@dataclass(frozen=True, slots=True)
class Election:
    partition: PartitionState
    unclean_election: UncleanElection | None = (
        None  # a last resort was used: a condition has to say so
    )


def partition_after_election(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    *,
    leader_counts: LeaderCounts,
    evidence: ElectionEvidence = NO_EVIDENCE,
) -> Election:
    """Return the state that a partition should have; the same value if nothing changes."""
    is_completed = (
        is_moving(partition)
        and may_grant(evidence)
        and may_complete(partition, _live_in_sync(topic, partition, eligibility))
    )
    before = completed(partition) if is_completed else partition
    election = _after_election(topic, before, eligibility, leader_counts, evidence)
    after = election.partition
    if is_completed:
        if after.partition_epoch == partition.partition_epoch:
            after = raised(after)
        after = without_progress_of_leavers(partition, after)
    leader_counts.note(partition, after)
    return election if after is election.partition else replace(election, partition=after)


def _live_in_sync(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility
) -> list[Member]:
    replica = (topic.topic_id, partition.partition)
    in_sync = _remaining_in_sync(topic, partition, eligibility)
    return [member for member in in_sync if eligibility.is_active(member.broker_id, replica)]


def retained_or_moved(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    *,
    leader_counts: LeaderCounts,
    is_confirmed: bool,
) -> PartitionState:
    """Return the state of a retained partition, which is led only while it moves (I20).

    The leader has each committed record: there is no unclean election, because no client waits
    for the data. Leadership ends in the write that completes the move.
    """
    if not is_moving(partition):
        return _stripped(topic, partition, eligibility)
    evidence = ElectionEvidence(is_confirmed=is_confirmed)
    after = partition_after_election(
        topic, partition, eligibility, leader_counts=leader_counts, evidence=evidence
    ).partition
    # guard: retained-led-only-while-moving (I20)
    if is_moving(after):
        return after
    resigned = changed(
        topic, after, eligibility, in_sync_replicas=after.in_sync_replicas, leadership=NOBODY
    )
    leader_counts.note(after, resigned)
    # One write is one step of both epochs (I14), also if the move's end raised them already.
    return replace(
        resigned,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )


def _stripped(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility
) -> PartitionState:
    """Return a retained partition without its invalid entries; nothing else changes (S2)."""
    replica = (topic.topic_id, partition.partition)
    entries = partition.in_sync_replicas + partition.eligible_leaders
    if all(eligibility.is_valid(member, replica, topic.flush) for member in entries):
        return partition
    in_sync = tuple(
        m for m in partition.in_sync_replicas if eligibility.is_valid(m, replica, topic.flush)
    )
    return changed(topic, partition, eligibility, in_sync_replicas=in_sync)


def _after_election(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    leader_counts: LeaderCounts,
    evidence: ElectionEvidence,
) -> Election:
    replica = (topic.topic_id, partition.partition)
    in_sync = _remaining_in_sync(topic, partition, eligibility)
    if _may_keep_leading(partition, in_sync, eligibility, replica):
        return Election(changed(topic, partition, eligibility, in_sync_replicas=in_sync))
    if may_grant(evidence):
        candidates = [m for m in in_sync if eligibility.is_active(m.broker_id, replica)]
        if candidates:
            staying = [m for m in candidates if m.broker_id not in partition.removing_replicas]
            leader = _best_candidate(staying or candidates, partition, eligibility, leader_counts)
            return Election(_granted(topic, partition, eligibility, leader, in_sync))
        candidates = [] if in_sync else _active_elr_members(topic, partition, eligibility)
        if candidates:
            leader = _best_candidate(candidates, partition, eligibility, leader_counts)
            return Election(_granted(topic, partition, eligibility, leader, (leader,)))
        recovery_plan = unclean_recovery(
            topic, partition, eligibility, evidence.reports, evidence.choice
        )
        if recovery_plan is not None:
            return _taken(topic, partition, eligibility, recovery_plan)
    leadership_none = NOBODY if partition.has_leader else None
    return Election(
        changed(topic, partition, eligibility, in_sync_replicas=in_sync, leadership=leadership_none)
    )


# guard: slice-is-confirmed (S17)
def may_grant(evidence: ElectionEvidence) -> bool:
    """Return whether a leader may be assigned (S17)."""
    return evidence.is_confirmed


def _taken(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    recovery_plan: UncleanRecovery,
) -> Election:
    # Replicas that were in sync or eligible need not have the history that begins now.
    emptied = replace(partition, in_sync_replicas=(), eligible_leaders=())
    after = _granted(topic, emptied, eligibility, recovery_plan.leader, (recovery_plan.leader,))
    unclean_election = UncleanElection(
        partition.partition,
        recovery_plan.cause,
        after.leader_epoch,
        after.leader,
        recovery_plan.start_offset,
        recovery_plan.unheard,
    )
    return Election(after, unclean_election)


def preferred_leader_restored(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    *,
    leader_counts: LeaderCounts,
) -> PartitionState:
    """Give leadership back to the first replica if it is live, in sync and can write (L5)."""
    preferred = partition.replicas[0]
    if not partition.has_leader or partition.leader == preferred:
        return partition
    replica = (topic.topic_id, partition.partition)
    member = next((m for m in partition.in_sync_replicas if m.broker_id == preferred), None)
    if member is None or not eligibility.is_active(preferred, replica):
        return partition
    if not eligibility.is_valid(member, replica, topic.flush) or not eligibility.can_write(
        preferred
    ):
        return partition
    after = _granted(topic, partition, eligibility, member, partition.in_sync_replicas)
    leader_counts.note(partition, after)
    return after


def leader_moved_off(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    *,
    leader_counts: LeaderCounts,
) -> PartitionState:
    """Move leadership to another in-sync replica that can write, if there is one (S20).

    The ISR stays.
    """
    replica = (topic.topic_id, partition.partition)
    candidates = [
        member
        for member in partition.in_sync_replicas
        if member.broker_id != partition.leader
        and eligibility.is_valid(member, replica, topic.flush)
        and eligibility.is_active(member.broker_id, replica)
        and eligibility.can_write(member.broker_id)
    ]
    if not candidates:
        return partition
    leader = _best_candidate(candidates, partition, eligibility, leader_counts)
    after = _granted(topic, partition, eligibility, leader, partition.in_sync_replicas)
    leader_counts.note(partition, after)
    return after


# guard: last-member-stays (I13)
def _remaining_in_sync(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility
) -> tuple[Member, ...]:
    replica = (topic.topic_id, partition.partition)
    valid = tuple(
        m for m in partition.in_sync_replicas if eligibility.is_valid(m, replica, topic.flush)
    )
    active = tuple(m for m in valid if eligibility.is_active(m.broker_id, replica))
    if not active and topic.commit_rule == COMMIT_RULE_ISR:
        return valid  # I13: who was last in sync stays, without a leader
    return active


def _active_elr_members(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility
) -> list[Member]:
    replica = (topic.topic_id, partition.partition)
    return [
        member
        for member in partition.eligible_leaders
        if eligibility.is_valid(member, replica, topic.flush)
        and eligibility.is_active(member.broker_id, replica)
    ]


def _may_keep_leading(
    partition: PartitionState,
    in_sync: tuple[Member, ...],
    eligibility: Eligibility,
    replica: Replica,
) -> bool:
    broker_eligibility = eligibility.of(partition.leader)
    return (
        partition.leader != NO_BROKER
        and broker_eligibility is not None
        and eligibility.is_active(partition.leader, replica)
        and broker_eligibility.broker_epoch
        == partition.leader_broker_epoch  # S2: the grant names a life
        and any(member.broker_id == partition.leader for member in in_sync)
    )


def _granted(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    leader: Member,
    in_sync: tuple[Member, ...],
) -> PartitionState:
    life = eligibility.renewed(leader, (topic.topic_id, partition.partition), topic.flush)
    return changed(
        topic,
        partition,
        eligibility,
        in_sync_replicas=in_sync,
        leadership=Leadership(life.broker_id, life.broker_epoch),
    )


def _best_candidate(
    candidates: list[Member],
    partition: PartitionState,
    eligibility: Eligibility,
    leader_counts: LeaderCounts,
) -> Member:
    return min(
        candidates,
        key=lambda member: (
            not eligibility.can_write(member.broker_id),  # S20
            leader_counts[member.broker_id],
            partition.replicas.index(member.broker_id),
        ),
    )
