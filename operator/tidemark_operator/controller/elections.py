"""Who leads, decided from the whole state, never from the event (architecture 6).

`settled` gives the state a partition should have now that brokers stand as they do: dead, stopping
and void members out of the ISR (I13), a fenced leader replaced (I12). Order of candidates: live
valid ISR members; live valid eligible leaders; once every replica has reported, the longest log
(S14); else nobody. Among equals the one that leads the fewest partitions, ties in assignment order.
Unclean election by a topic's choice is not here yet: such a partition waits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.ids import NO_BROKER, BrokerId
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.controller.partition_change import (
    COMMIT_RULE_ISR,
    NOBODY,
    Leadership,
    changed,
)
from tidemark_operator.controller.standing import Replica, Standings


@dataclass(frozen=True, slots=True)
class Reports:
    """What replicas said of their logs while their partition had no leader: only then do they
    still tell the truth. A broker that reported without naming the replica has an empty one."""

    by_broker: Mapping[BrokerId, Mapping[Replica, ReplicaReport]]

    def log_end(self, broker_id: BrokerId, replica: Replica) -> tuple[int, int] | None:
        """(last epoch, log end offset); None: not reported, or failed."""
        report = self.by_broker.get(broker_id)
        if report is None:
            return None
        found = report.get(replica)
        if found is None:
            return (-1, 0)
        return None if found.failed else (found.last_epoch, found.log_end_offset)


NO_REPORTS = Reports({})


class LeaderCounts:
    """Partitions led per broker, kept up to date while one event's elections are made."""

    def __init__(self, partitions: Iterable[PartitionState] = ()) -> None:
        self._counts = Counter(state.leader for state in partitions if state.has_leader)

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
    # The last resort (S14) was used: a condition has to say so.
    by_longest_log: bool = False


def settled(
    topic: TopicState,
    partition: PartitionState,
    standings: Standings,
    *,
    leader_counts: LeaderCounts,
    reports: Reports = NO_REPORTS,
) -> Election:
    """The same partition value when there is nothing to do."""
    election = _settled(topic, partition, standings, leader_counts, reports)
    leader_counts.note(partition, election.partition)
    return election


def _settled(
    topic: TopicState,
    partition: PartitionState,
    standings: Standings,
    leader_counts: LeaderCounts,
    reports: Reports,
) -> Election:
    replica = (topic.topic_id, partition.partition)
    in_sync = _remaining_in_sync(topic, partition, standings)
    if _may_keep_leading(partition, in_sync, standings, replica):
        return Election(changed(topic, partition, standings, in_sync_replicas=in_sync))

    candidates = [m for m in in_sync if standings.is_active(m.broker_id, replica)]
    if not candidates and not in_sync:
        candidates = _active_eligible(partition, standings, replica)
        if candidates:
            leader = _preferred(candidates, partition, leader_counts)
            return Election(_granted(topic, partition, standings, leader, (leader,)))
        longest = _longest_log(topic, partition, standings, reports)
        if longest is not None:
            state = _granted(topic, partition, standings, longest, (longest,))
            return Election(state, by_longest_log=True)
    if candidates:
        leader = _preferred(candidates, partition, leader_counts)
        state = _granted(topic, partition, standings, leader, in_sync)
        return Election(state)
    leadership_none = NOBODY if partition.has_leader else None
    return Election(
        changed(topic, partition, standings, in_sync_replicas=in_sync, leadership=leadership_none)
    )


def preferred_leader_restored(
    topic: TopicState,
    partition: PartitionState,
    standings: Standings,
    *,
    leader_counts: LeaderCounts,
) -> PartitionState:
    """Leadership back on the first replica when it is live, in sync and leads fewer (L5)."""
    preferred = partition.replicas[0]
    if not partition.has_leader or partition.leader == preferred:
        return partition
    replica = (topic.topic_id, partition.partition)
    member = next((m for m in partition.in_sync_replicas if m.broker_id == preferred), None)
    if member is None or not standings.is_active(preferred, replica):
        return partition
    if not standings.is_valid(member, replica):
        return partition
    if leader_counts[preferred] >= leader_counts[partition.leader]:
        return partition
    after = _granted(topic, partition, standings, member, partition.in_sync_replicas)
    leader_counts.note(partition, after)
    return after


def needs_reports(topic: TopicState, partition: PartitionState, standings: Standings) -> bool:
    """Nobody leads and no entry is valid: only fresh reports of every replica help (S14)."""
    replica = (topic.topic_id, partition.partition)
    entries = partition.in_sync_replicas + partition.eligible_leaders
    return not partition.has_leader and not any(standings.is_valid(m, replica) for m in entries)


def _remaining_in_sync(
    topic: TopicState, partition: PartitionState, standings: Standings
) -> tuple[Member, ...]:
    replica = (topic.topic_id, partition.partition)
    valid = tuple(m for m in partition.in_sync_replicas if standings.is_valid(m, replica))
    active = tuple(m for m in valid if standings.is_active(m.broker_id, replica))
    if not active and topic.commit_rule == COMMIT_RULE_ISR:
        return valid  # I13: who was last in sync stays, without a leader
    return active


def _active_eligible(
    partition: PartitionState, standings: Standings, replica: Replica
) -> list[Member]:
    return [
        member
        for member in partition.eligible_leaders
        if standings.is_valid(member, replica) and standings.is_active(member.broker_id, replica)
    ]


def _may_keep_leading(
    partition: PartitionState,
    in_sync: tuple[Member, ...],
    standings: Standings,
    replica: Replica,
) -> bool:
    standing = standings.of(partition.leader)
    return (
        partition.leader != NO_BROKER
        and standing is not None
        and standings.is_active(partition.leader, replica)
        and standing.broker_epoch == partition.leader_broker_epoch  # S2: the grant names a life
        and any(member.broker_id == partition.leader for member in in_sync)
    )


def _granted(
    topic: TopicState,
    partition: PartitionState,
    standings: Standings,
    leader: Member,
    in_sync: tuple[Member, ...],
) -> PartitionState:
    life = standings.renewed(leader, (topic.topic_id, partition.partition))
    return changed(
        topic,
        partition,
        standings,
        in_sync_replicas=in_sync,
        leadership=Leadership(life.broker_id, life.broker_epoch),
    )


def _preferred(
    candidates: list[Member], partition: PartitionState, leader_counts: LeaderCounts
) -> Member:
    return min(
        candidates,
        key=lambda member: (
            leader_counts[member.broker_id],
            partition.replicas.index(member.broker_id),
        ),
    )


def _longest_log(
    topic: TopicState, partition: PartitionState, standings: Standings, reports: Reports
) -> Member | None:
    """The replica with the largest (last epoch, log end), if no entry is valid any more, *all*
    replicas reported, and it is live."""
    replica = (topic.topic_id, partition.partition)
    entries = partition.in_sync_replicas + partition.eligible_leaders
    if any(standings.is_valid(member, replica) for member in entries):
        return None
    ends: dict[BrokerId, tuple[int, int]] = {}
    for broker_id in partition.replicas:
        end = reports.log_end(broker_id, replica)
        if end is None:
            return None  # with one missing, only a human decides (S14)
        ends[broker_id] = end
    longest = max(ends.values())
    for broker_id in partition.replicas:
        standing = standings.of(broker_id)
        if (
            ends[broker_id] == longest
            and standing is not None
            and standings.is_active(broker_id, replica)
        ):
            return Member(broker_id, standing.broker_epoch)
    return None
