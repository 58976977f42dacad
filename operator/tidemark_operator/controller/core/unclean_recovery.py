"""Choose a leader when no valid entry is live (S14).

In this order: once *every* replica has reported and no entry is valid, the longest log of all, if
its broker can lead; the leader that a person chose; where the topic allows unclean election, or a
person asked for one, the longest log among the live. Never merely the first live one. All three
need fresh reports: of logs that do not change since the partition has no leader.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.ids import NO_BROKER, BrokerId, Offset
from tidemark_protocol.partition_state import Member, PartitionState, TopicState
from tidemark_protocol.topic_configs import UNCLEAN_LEADER_ELECTION, text_of

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.unclean_election import UncleanCause
from tidemark_operator.controller.core.eligibility import Eligibility, Replica

ANY_BROKER = NO_BROKER  # a choice that leaves it to the logs: an unclean election, once
LogEnd = tuple[int, int]  # (last epoch, log end offset): which log is the longest


@dataclass(frozen=True, slots=True)
class Reports:
    """The replicas' reports of their logs while their partition has no leader.

    Only then are they still true. A broker that reported without naming the replica has an empty
    one.
    """

    by_broker: Mapping[BrokerId, Mapping[Replica, ReplicaReport]]

    def log_end(self, broker_id: BrokerId, replica: Replica) -> LogEnd | None:
        """Return (last epoch, log end offset), or None if not reported or failed."""
        report = self.by_broker.get(broker_id)
        if report is None:
            return None
        found = report.get(replica)
        if found is None:
            return (-1, 0)
        return None if found.failed else (found.last_epoch, found.log_end_offset)


NO_REPORTS = Reports({})


@dataclass(frozen=True, slots=True)
class UncleanRecovery:
    leader: Member
    cause: UncleanCause
    start_offset: Offset
    unheard: tuple[BrokerId, ...] = ()


# guard: longest-log-leads (S14)
def unclean_recovery(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    reports: Reports,
    choice: LeaderChoice | None,
) -> UncleanRecovery | None:
    replica = (topic.topic_id, partition.partition)
    ends = {
        broker_id: end
        for broker_id in partition.replicas
        if (end := reports.log_end(broker_id, replica)) is not None
    }
    unheard = tuple(broker_id for broker_id in partition.replicas if broker_id not in ends)
    active = tuple(b for b in partition.replicas if eligibility.is_active(b, replica))
    if may_take_longest_of_all(topic, partition, eligibility, unheard):
        longest = max(ends.values())
        leaders = tuple(b for b in active if ends[b] == longest)
        if leaders:
            return _by(leaders[0], UncleanCause.ALL_UNCLEAN, ends, eligibility)
    if (
        choice is not None
        # guard: choice-counts-in-its-epoch (B4)
        and is_chosen(choice, partition)
        and choice.leader in active
    ):
        if choice.leader in ends:
            return _by(choice.leader, UncleanCause.CHOSEN, ends, eligibility, unheard)
        return None  # it is asked for its report first: what is lost is to be known
    is_allowed = allows_unclean_election(topic)
    if not is_allowed and not is_anybody_chosen(choice, partition):
        return None
    if active and all(b in ends for b in active):
        best = max(active, key=lambda b: (ends[b], -partition.replicas.index(b)))
        cause = UncleanCause.UNCLEAN if is_allowed else UncleanCause.CHOSEN
        return _by(best, cause, ends, eligibility, unheard)
    return None


# guard: every-replica-reported (S14)
def may_take_longest_of_all(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    unheard: tuple[BrokerId, ...],
) -> bool:
    """Return whether all replicas reported and no entry is valid (S14).

    With one replica missing, only a person decides; a valid entry is waited for.
    """
    return not unheard and not has_valid_entry(topic, partition, eligibility)


# guard: valid-entry-is-waited-for (S14)
def has_valid_entry(topic: TopicState, partition: PartitionState, eligibility: Eligibility) -> bool:
    replica = (topic.topic_id, partition.partition)
    entries = partition.in_sync_replicas + partition.eligible_leaders
    return any(eligibility.is_valid(member, replica, topic.flush) for member in entries)


# guard: choice-counts-once (B4)
def is_chosen(choice: LeaderChoice, partition: PartitionState) -> bool:
    return not partition.has_leader and choice.leader_epoch == partition.leader_epoch


def is_anybody_chosen(choice: LeaderChoice | None, partition: PartitionState) -> bool:
    return choice is not None and choice.leader == ANY_BROKER and is_chosen(choice, partition)


# guard: unclean-election-is-allowed (B4)
def allows_unclean_election(topic: TopicState) -> bool:
    return text_of(UNCLEAN_LEADER_ELECTION, topic.config) == "true"


def needs_reports(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    choice: LeaderChoice | None,
) -> bool:
    """Return whether a partition without a leader needs fresh reports.

    No entry is valid (S14), or a person chose not to wait for a valid one that is away.
    """
    if partition.has_leader:
        return False
    if choice is not None and is_chosen(choice, partition):
        return True
    return allows_unclean_election(topic) or not has_valid_entry(topic, partition, eligibility)


def _by(
    broker_id: BrokerId,
    cause: UncleanCause,
    ends: Mapping[BrokerId, LogEnd],
    eligibility: Eligibility,
    unheard: tuple[BrokerId, ...] = (),
) -> UncleanRecovery:
    broker_eligibility = eligibility.of(broker_id)
    assert broker_eligibility is not None, broker_id  # it is active
    leader = Member(broker_id, broker_eligibility.broker_epoch)
    return UncleanRecovery(leader, cause, Offset(ends[broker_id][1]), unheard)
