"""Hold all that a controller knows of one pool, and decide about complete slices.

Decisions are level-triggered: `slice_after_elections` returns what a slice should be now, whatever
the event; so a failed write is simply decided again later. `brokers` may be ahead of the store by
one fence only (a fence is always safe); everything else here is durable.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark_protocol.controller_messages import BrokerState, ReplicaReport, ReportedEpoch
from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.api.broker import NO_ROUND, BrokerControlState, BrokerRecord
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_operator.controller.core.broker_soft_state import BrokerSoftState
from tidemark_operator.controller.core.deleted_topics import Tombstone
from tidemark_operator.controller.core.elections import (
    ElectionEvidence,
    LeaderCounts,
    may_grant,
    partition_after_election,
    preferred_leader_restored,
    retained_or_moved,
)
from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility, Replica
from tidemark_operator.controller.core.known_slices import KnownSlices
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.observations import Observations
from tidemark_operator.controller.core.sessions import Sessions
from tidemark_operator.controller.core.stale_slices import ReportedEpochs, holders_of, rebuilt
from tidemark_operator.controller.core.timeline import Cause, Grounds, Timeline
from tidemark_operator.controller.core.unclean_recovery import Reports, needs_reports
from tidemark_operator.controller.core.views import BrokerView

MAX_REPLACED = 16  # of each broker: no message is on its way for so many lives


@dataclass(slots=True)
class PoolState:
    pool: str
    controller_epoch: ControllerEpoch
    image: MetadataImage
    sessions: Sessions
    timeline: Timeline
    brokers: dict[BrokerId, BrokerRecord] = field(default_factory=dict)
    notes: dict[BrokerId, BrokerSoftState] = field(default_factory=dict)
    slices: KnownSlices = field(default_factory=KnownSlices)
    # Served partitions without a leader: in which leader epoch, and the image version that says so.
    leaderless_since: dict[Replica, tuple[int, int]] = field(default_factory=dict)
    held: ReportedEpochs = field(default_factory=ReportedEpochs)
    behind: dict[Replica, int] = field(default_factory=dict)  # known to be (S17), and since when
    reports_wanted: int = -1  # since which image version, of every live broker (S17); -1: not
    choices: dict[Replica, LeaderChoice] = field(default_factory=dict)
    # Deleted topics, and the image version that says so; slices of theirs that are still there.
    tombstones: dict[TopicId, tuple[Tombstone, int]] = field(default_factory=dict)
    leftovers: dict[str, PartitionSlice] = field(default_factory=dict)
    observations: Observations = field(default_factory=Observations)
    replaced: dict[BrokerId, deque[str]] = field(default_factory=dict)  # former incarnations
    highest_producer_id_round: int = NO_ROUND  # beside those of `brokers`: reported, not stored

    def soft_state_of(self, broker_id: BrokerId) -> BrokerSoftState:
        notes = self.notes.get(broker_id)
        if notes is None:
            notes = self.notes[broker_id] = BrokerSoftState()
        return notes

    def current(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerRecord | None:
        """Return the record of that broker epoch, or None if it is not the registered one."""
        record = self.brokers.get(broker_id)
        return record if record is not None and record.broker_epoch == broker_epoch else None

    def record_replaced(self, previous: BrokerRecord) -> None:
        """Record that another process was registered after this one."""
        known = self.replaced.setdefault(previous.broker_id, deque(maxlen=MAX_REPLACED))
        known.append(previous.incarnation)

    def eligibility(self, *overriding: BrokerEligibility) -> Eligibility:
        eligibility = {}
        for broker_id, record in self.brokers.items():
            notes = self.soft_state_of(broker_id)
            eligibility[broker_id] = BrokerEligibility(
                broker_id,
                record.broker_epoch,
                record.clean_since,
                record.disk_since,
                is_live=record.is_live,
                is_stopping=record.is_stopping,
                lost_replicas=notes.lost_replicas,
                lost_below=notes.lost_below,
                failed_replicas=notes.failed_replicas,
                has_spoken=self._has_heard(broker_id),
                unannounced_replicas=notes.unannounced_replicas,
                is_write_stalled=notes.is_write_stalled,
            )
        eligibility.update(
            (broker_eligibility.broker_id, broker_eligibility) for broker_eligibility in overriding
        )
        return Eligibility(eligibility)

    def leader_counts(self) -> LeaderCounts:
        return LeaderCounts(counts=self.slices.leaders())

    def evidence(
        self, replica: Replica, state: PartitionState, eligibility: Eligibility
    ) -> ElectionEvidence:
        """Return the evidence for an election among brokers as they were seen in `eligibility`."""
        return ElectionEvidence(
            self._reports_for(replica),
            self.choices.get(replica),
            self._is_confirmed(replica, state, eligibility),
        )

    def _reports_for(self, replica: Replica) -> Reports:
        """Return reports of brokers that knew that the partition has no leader.

        Their logs do not change (S14).
        """
        since = self.leaderless_since.get(replica)
        return Reports({} if since is None else self.reports_from(since[1]))

    def reports_from(self, version: int) -> dict[BrokerId, dict[Replica, ReplicaReport]]:
        return {
            broker_id: notes.report
            for broker_id, notes in self.notes.items()
            if notes.report is not None and notes.report_version >= version
        }

    def _is_confirmed(
        self, replica: Replica, state: PartitionState, eligibility: Eligibility
    ) -> bool:
        """Return whether all live replicas have reported what they hold above the slice (S17).

        Each applied a push of ours, or registered with us, since the takeover, and had done so when
        `eligibility` was read.
        """
        if not eligibility.have_spoken(state.replicas, replica):
            return False
        return all(
            record is None
            or not record.is_live
            or (
                self._has_heard(broker_id)
                and replica not in self.soft_state_of(broker_id).unannounced_replicas
            )
            for broker_id in state.replicas
            for record in (self.brokers.get(broker_id),)
        )

    def _has_heard(self, broker_id: BrokerId) -> bool:
        return (
            self.applied_version(broker_id) >= 0
            or self.soft_state_of(broker_id).report_version >= 0
        )

    def lowest_applied_version(self) -> int:
        """Return the version that each live broker has applied, as far as reported."""
        live = [record.broker_id for record in self.brokers.values() if record.is_live]
        return min(map(self.applied_version, live), default=-1)

    def applied_version(self, broker_id: BrokerId) -> int:
        """Return the broker's applied version of our images, or -1."""
        notes = self.soft_state_of(broker_id)
        is_ours = notes.applied_controller_epoch == self.controller_epoch
        return notes.applied_version if is_ours else -1

    def slice_after_elections(
        self, value: PartitionSlice, eligibility: Eligibility, leader_counts: LeaderCounts
    ) -> PartitionSlice:
        partitions = []
        recoveries = {
            unclean_election.partition: unclean_election for unclean_election in value.recoveries
        }
        for state in value.partitions:
            replica = (value.topic.topic_id, state.partition)
            after, unclean_election = self._evaluated(value, state, eligibility, leader_counts)
            partitions.append(after)
            self.explain(value.topic, state, after, Cause.EVALUATION, eligibility, leader_counts)
            unclean_election = unclean_election or recoveries.get(state.partition)
            if unclean_election is not None:
                recoveries[state.partition] = unclean_election.measured(self._reports_of(replica))
        return value.with_partitions(tuple(partitions)).with_unclean_elections(
            tuple(recoveries[number] for number in sorted(recoveries))
        )

    def _evaluated(
        self,
        value: PartitionSlice,
        state: PartitionState,
        eligibility: Eligibility,
        leader_counts: LeaderCounts,
    ) -> tuple[PartitionState, UncleanElection | None]:
        replica = (value.topic.topic_id, state.partition)
        if self.is_stale_slice(replica, state):
            return self._rebuilt_when_all_said(replica, state)
        # guard: retained-data-gets-no-unclean-election (I20)
        if value.is_retained:
            kept = retained_or_moved(
                value.topic,
                state,
                eligibility,
                leader_counts=leader_counts,
                is_confirmed=self._is_confirmed(replica, state, eligibility),
            )
            return kept, None
        election = partition_after_election(
            value.topic,
            state,
            eligibility,
            leader_counts=leader_counts,
            evidence=self.evidence(replica, state, eligibility),
        )
        unclean_election, previous = (
            election.unclean_election,
            value.unclean_election_of(state.partition),
        )
        if unclean_election is not None and previous is not None and previous.leader == NO_BROKER:
            # The rebuild of this partition waited for just this leader (S17).
            unclean_election = replace(unclean_election, cause=previous.cause)
        return election.partition, unclean_election

    def is_stale_slice(self, replica: Replica, state: PartitionState) -> bool:
        """Return whether a broker holds later epochs than the slice (S17).

        Nothing is decided by such a slice.
        """
        return replica in self.behind and self.held.minimum_epochs_above(replica, state) is not None

    # guard: slice-is-not-behind (S17)
    def may_grant(self, replica: Replica, state: PartitionState, eligibility: Eligibility) -> bool:
        """Return whether a leader may be assigned (S17).

        Not by a slice that is an old backup, or may be one.
        """
        evidence = self.evidence(replica, state, eligibility)
        return may_grant(evidence) and not self.is_stale_slice(replica, state)

    def _rebuilt_when_all_said(
        self, replica: Replica, state: PartitionState
    ) -> tuple[PartitionState, UncleanElection | None]:
        floor = self.held.minimum_epochs_above(replica, state)
        assert floor is not None, replica
        said = self.reports_from(floor.recorded_at_version)
        if any(record.is_live and i not in said for i, record in self.brokers.items()):
            return state, None  # they are asked: `wants_report_from`
        after = rebuilt(state, floor, holders_of(replica, said))
        return after, UncleanElection(state.partition, UncleanCause.RESTORED, after.leader_epoch)

    def _reports_of(self, replica: Replica) -> list[ReplicaReport]:
        reports = (notes.report for notes in self.notes.values() if notes.report is not None)
        return [report[replica] for report in reports if replica in report]

    def balanced_slice(
        self, value: PartitionSlice, eligibility: Eligibility, leader_counts: LeaderCounts
    ) -> PartitionSlice:
        if value.is_retained:
            return value

        def balanced(state: PartitionState) -> PartitionState:
            replica = (value.topic.topic_id, state.partition)
            if not self.may_grant(replica, state, eligibility):
                return state
            after = preferred_leader_restored(
                value.topic, state, eligibility, leader_counts=leader_counts
            )
            self.explain(value.topic, state, after, Cause.BALANCE, eligibility, leader_counts)
            return after

        return value.with_partitions(tuple(map(balanced, value.partitions)))

    def explain(
        self,
        topic: TopicState,
        before: PartitionState,
        after: PartitionState,
        cause: Cause,
        eligibility: Eligibility,
        leader_counts: LeaderCounts | None = None,
        proposer: BrokerId = NO_BROKER,
    ) -> None:
        """Keep what decided about a partition, for the event that its write brings."""
        if after is before:
            return
        counts = () if leader_counts is None else tuple(leader_counts[b] for b in after.replicas)
        grounds = Grounds(after, cause, eligibility, counts, proposer)
        self.timeline.explain(topic.topic_id, before, grounds)

    def record_durable(self, value: PartitionSlice, *, version: int) -> None:
        """Record that this slice is stored now; `version` is of the image before it has the slice.

        What was durable once is never undone, except by a backup restored in its place (S17).
        """
        previous = self.slices.get(value.name)
        if previous is not None and previous.topic.topic_id == value.topic.topic_id:
            now = {state.partition: state for state in value.partitions}
            for state in previous.partitions:
                after = now.get(state.partition)
                if after is None or _is_older(after, state):
                    self.record_known(value.topic.topic_id, state, version=version)
        self.slices[value.name] = value
        for state in value.partitions:
            replica = (value.topic.topic_id, state.partition)
            self._record_stale(replica, state)
            for member in state.in_sync_replicas + state.eligible_leaders:
                if (notes := self.notes.get(member.broker_id)) is not None:
                    notes.record_entry(replica, member)

    def record_put_back(self, value: PartitionSlice) -> None:
        for state in value.partitions:
            for member in state.in_sync_replicas + state.eligible_leaders:
                if (record := self.brokers.get(member.broker_id)) is not None:
                    self.soft_state_of(member.broker_id).record_entry_put_back(
                        (value.topic.topic_id, state.partition), member, record.broker_epoch
                    )

    def record_known(self, topic_id: TopicId, state: PartitionState, *, version: int) -> None:
        replica = (topic_id, state.partition)
        self.held.note(replica, state.leader_epoch, state.partition_epoch, version=version)

    def record_reported_epochs(
        self, held: Iterable[ReportedEpoch], *, version: int
    ) -> tuple[PartitionSlice, ...]:
        """Record reported epochs; return the slices that are stale by them."""
        held = tuple(held)
        for each in held:
            self.held.record_reported_epochs(each, version=version)
        return self._behind_by([(each.topic_id, each.partition) for each in held])

    def record_reported(
        self, reports: Iterable[ReplicaReport], *, version: int
    ) -> tuple[PartitionSlice, ...]:
        """Record the logs found at a start; return the slices that are stale by them."""
        reports = tuple(reports)
        self.held.record_reports(reports, version=version)
        return self._behind_by([(report.topic_id, report.partition) for report in reports])

    def _behind_by(self, replicas: Iterable[Replica]) -> tuple[PartitionSlice, ...]:
        """Return the slices that became stale."""
        found: dict[str, PartitionSlice] = {}
        for value, state in self.places_of(replicas).values():
            if self._record_stale((value.topic.topic_id, state.partition), state):
                found[value.name] = value
        return tuple(found.values())

    def places_of(
        self, replicas: Iterable[Replica]
    ) -> dict[Replica, tuple[PartitionSlice, PartitionState]]:
        """Return slice and state of the partitions that a slice names."""
        wanted = dict.fromkeys(replicas)
        found: dict[Replica, tuple[PartitionSlice, PartitionState]] = {}
        for topic_id in dict.fromkeys(topic_id for topic_id, _ in wanted):
            for value in self.slices.of_topic(topic_id):
                for state in value.partitions:
                    replica = (topic_id, state.partition)
                    if replica in wanted:
                        found[replica] = (value, state)
        return found

    def _record_stale(self, replica: Replica, state: PartitionState) -> bool:
        """Record whether the slice is stale; return whether that is new."""
        floor = self.held.minimum_epochs_above(replica, state)
        if floor is None:
            self.behind.pop(replica, None)
            return False
        is_change = self.behind.get(replica) != floor.recorded_at_version
        self.behind[replica] = floor.recorded_at_version
        return is_change

    def record_leaderless(self, value: PartitionSlice, *, version: int) -> None:
        """Record partitions without a leader; `version` is of the image that has them."""
        for state in value.partitions:
            replica = (value.topic.topic_id, state.partition)
            if (
                state.has_leader
                # guard: retained-data-waits-for-no-report (I20)
                or value.is_retained
            ):
                self.leaderless_since.pop(replica, None)
                self.choices.pop(replica, None)
                continue
            since = self.leaderless_since.get(replica)
            if since is None or since[0] != state.leader_epoch:
                self.leaderless_since[replica] = (state.leader_epoch, version)

    def finished_tombstones(self) -> Iterator[Tombstone]:
        """Yield deletions that each broker with a possible replica has applied.

        Brokers that are Gone do not count.
        """
        if not self.tombstones:
            return
        gone = {i for i, r in self.brokers.items() if r.state is BrokerControlState.GONE}
        lowest = min((self.applied_version(i) for i in self.brokers if i not in gone), default=-1)
        for tombstone, version in self.tombstones.values():  # in the order of their versions
            if version > lowest:
                return
            if all(broker_id in self.brokers for broker_id in tombstone.awaited):
                yield tombstone

    def forget_topic(self, topic_id: TopicId) -> None:
        self.held.forget(topic_id)
        self.timeline.forget_topic(topic_id)
        self.observations.elections.forget(topic_id)
        known: tuple[dict[Replica, Any], ...] = (self.leaderless_since, self.choices, self.behind)
        for notes in known:
            for replica in [replica for replica in notes if replica[0] == topic_id]:
                del notes[replica]

    def wants_report_from(self, broker_id: BrokerId) -> bool:
        """Return whether a live broker should report its logs again.

        It has applied all pushes, and its report is from before a partition lost its leader, or
        before a slice was found stale, or new partitions wait for it (S17).
        """
        reported, applied = (
            self.soft_state_of(broker_id).report_version,
            self.applied_version(broker_id),
        )
        wanted = (self.reports_wanted, *self.behind.values())
        if any(reported < version <= applied for version in wanted):
            return True
        waiting = [
            replica
            for replica, (_, version) in self.leaderless_since.items()
            if reported < version <= applied
        ]
        if not waiting:
            return False
        eligibility = self.eligibility()
        return any(
            not value.is_retained
            and broker_id in partition.replicas
            and needs_reports(value.topic, partition, eligibility, self.choices.get(replica))
            for replica, (value, partition) in self.places_of(waiting).items()
        )

    def highest_broker_epoch(self) -> BrokerEpoch:
        """Return the highest epoch of Broker objects and of entries.

        An object may have been deleted by hand, and an entry of an epoch that is given again would
        stand for what the new process does not hold (S2).
        """
        epochs = [record.broker_epoch for record in self.brokers.values()]
        return max([self.slices.highest_broker_epoch, *epochs])

    def next_producer_id_round(self) -> int:
        """Return a round above each one that any broker used (S5)."""
        rounds = [record.producer_id_round for record in self.brokers.values()]
        return 1 + max(self.highest_producer_id_round, *rounds)

    def record_producer_id_round(self, producer_id_round: int) -> None:
        self.highest_producer_id_round = max(self.highest_producer_id_round, producer_id_round)

    def cluster_id(self) -> str:
        """Return the cluster id that the pool's first broker decided; "" without a broker."""
        return next((r.cluster_id for r in self.brokers.values() if r.cluster_id), "")

    def topic_slices(self, topic_id: TopicId) -> list[PartitionSlice]:
        return self.slices.of_topic(topic_id)

    def assigned(self) -> Iterator[tuple[TopicId, tuple[PartitionState, ...]]]:
        for value in self.slices.values():
            yield value.topic.topic_id, value.partitions

    def is_reported(self, topic_id: TopicId, partitions: Iterable[int]) -> bool:
        """Return whether a broker found a replica of one of these partitions on its disk."""
        replicas = [(topic_id, number) for number in partitions]
        return any(
            replica in (notes.report or {}) for notes in self.notes.values() for replica in replicas
        )

    def broker_states(self, *, leaving: Collection[BrokerId] = ()) -> tuple[BrokerState, ...]:
        """Return the brokers' states as pushes carry them.

        `leaving`: brokers that are fenced, and shown as stopping until their partitions have other
        leaders and ISRs.
        """
        return tuple(
            BrokerState(
                broker_id,
                record.broker_epoch,
                is_fenced=not record.is_live and broker_id not in leaving,
                is_stopping=record.is_stopping or broker_id in leaving,
                endpoints=record.endpoints,
                rack=record.rack,
            )
            for broker_id, record in sorted(self.brokers.items())
            if record.state is not BrokerControlState.GONE
        )

    def broker_views(self) -> tuple[BrokerView, ...]:
        return tuple(
            BrokerView(
                broker_id,
                record.broker_epoch,
                record.state.value,
                record.endpoints,
                record.rack,
                record.incarnation,
                broker_id in self.observations.planned_restarts,
                self.observations.planned_restarts.count_of(broker_id),
                self.observations.clock_skews.of(broker_id),
            )
            for broker_id, record in sorted(self.brokers.items())
        )


def _is_older(state: PartitionState, than: PartitionState) -> bool:
    return state.leader_epoch < than.leader_epoch or state.partition_epoch < than.partition_epoch
