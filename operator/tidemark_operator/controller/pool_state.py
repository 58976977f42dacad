"""All that a controller holds of one pool, and the decisions over whole slices (pure).

Decisions are level-triggered: `settled_slice` says what a slice should be now, whatever the event;
so a write that failed is simply decided again later. `brokers` may run ahead of the store by one
fence only (a fence is always safe); everything else here is durable.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tidemark_protocol.controller_messages import BrokerState, ReplicaReport
from tidemark_protocol.ids import (
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.controller.broker_record import BrokerRecord
from tidemark_operator.controller.elections import (
    LeaderCounts,
    Reports,
    needs_reports,
    preferred_leader_restored,
    settled,
)
from tidemark_operator.controller.partition_change import changed
from tidemark_operator.controller.producer_id_rounds import NO_ROUND
from tidemark_operator.controller.slices import PARTITIONS_PER_SLICE, PartitionSlice, slice_name
from tidemark_operator.controller.standing import Replica, Standing, Standings
from tidemark_operator.controller.views import BrokerView, TopicView


@dataclass(slots=True)
class BrokerNotes:
    """What a broker told this controller; gone with the controller, void for another life."""

    applied_controller_epoch: ControllerEpoch = ControllerEpoch(NO_EPOCH)
    applied_version: int = -1
    report: dict[Replica, ReplicaReport] | None = None
    reported_at: int = -1  # PoolState.next_moment
    lost_replicas: frozenset[Replica] = frozenset()
    lost_below: BrokerEpoch = BrokerEpoch(NO_EPOCH)
    failed_replicas: frozenset[Replica] = frozenset()
    drained_at_version: int | None = None
    drained_at_ms: int = -1
    was_told_to_stop: bool = False


@dataclass(slots=True)
class PoolState:
    pool: str
    controller_epoch: ControllerEpoch
    brokers: dict[BrokerId, BrokerRecord] = field(default_factory=dict)
    notes: dict[BrokerId, BrokerNotes] = field(default_factory=dict)
    slices: dict[str, PartitionSlice] = field(default_factory=dict)
    leaderless_since: dict[Replica, int] = field(default_factory=dict)  # moments
    moment: int = 0
    notices: dict[TopicId, dict[int, str]] = field(default_factory=dict)
    highest_producer_id_round: int = NO_ROUND  # beside those of `brokers`: reported, not stored

    def notes_of(self, broker_id: BrokerId) -> BrokerNotes:
        return self.notes.setdefault(broker_id, BrokerNotes())

    def next_moment(self) -> int:
        """Orders reports and losses of leadership; clocks may show both the same millisecond."""
        self.moment += 1
        return self.moment

    def standings(self, *overriding: Standing) -> Standings:
        standings = {}
        for broker_id, record in self.brokers.items():
            notes = self.notes_of(broker_id)
            standings[broker_id] = Standing(
                broker_id,
                record.broker_epoch,
                record.clean_since,
                is_live=record.is_live,
                is_stopping=record.is_stopping,
                lost_replicas=notes.lost_replicas,
                lost_below=notes.lost_below,
                failed_replicas=notes.failed_replicas,
            )
        standings.update((standing.broker_id, standing) for standing in overriding)
        return Standings(standings)

    def served_partitions(self) -> Iterator[tuple[PartitionSlice, PartitionState]]:
        for value in self.slices.values():
            if not value.is_retained:
                for partition in value.partitions:
                    yield value, partition

    def leader_counts(self) -> LeaderCounts:
        return LeaderCounts(partition for _, partition in self.served_partitions())

    def reports_for(self, replica: Replica) -> Reports:
        """Those taken since the partition has no leader: its logs stand still since then (S14)."""
        since = self.leaderless_since.get(replica)
        if since is None:
            return Reports({})
        return Reports(
            {
                broker_id: notes.report
                for broker_id, notes in self.notes.items()
                if notes.report is not None and notes.reported_at > since
            }
        )

    def settled_slice(
        self, value: PartitionSlice, standings: Standings, leader_counts: LeaderCounts
    ) -> PartitionSlice:
        if value.is_retained:
            return value.with_partitions(
                tuple(_stripped(value, state, standings) for state in value.partitions)
            )
        partitions = []
        for state in value.partitions:
            replica = (value.topic.topic_id, state.partition)
            election = settled(
                value.topic,
                state,
                standings,
                leader_counts=leader_counts,
                reports=self.reports_for(replica),
            )
            if election.by_longest_log:
                self._note_longest_log(replica, election.partition)
            partitions.append(election.partition)
        return value.with_partitions(tuple(partitions))

    def balanced_slice(
        self, value: PartitionSlice, standings: Standings, leader_counts: LeaderCounts
    ) -> PartitionSlice:
        if value.is_retained:
            return value
        return value.with_partitions(
            tuple(
                preferred_leader_restored(
                    value.topic, state, standings, leader_counts=leader_counts
                )
                for state in value.partitions
            )
        )

    def note_durable(self, value: PartitionSlice) -> None:
        """This slice is what is stored now."""
        self.slices[value.name] = value
        moment = self.next_moment()
        for state in value.partitions:
            replica = (value.topic.topic_id, state.partition)
            if state.has_leader:
                self.leaderless_since.pop(replica, None)
            else:
                self.leaderless_since.setdefault(replica, moment)

    def wants_report_from(self, broker_id: BrokerId) -> bool:
        """A live broker whose report of a leaderless partition is older than its leaderlessness."""
        if not self.leaderless_since:
            return False
        notes = self.notes_of(broker_id)
        standings = self.standings()
        return any(
            not partition.has_leader
            and broker_id in partition.replicas
            and needs_reports(value.topic, partition, standings)
            and notes.reported_at
            < self.leaderless_since.get((value.topic.topic_id, partition.partition), 0)
            for value, partition in self.served_partitions()
        )

    def highest_broker_epoch(self) -> BrokerEpoch:
        """Of Broker objects and of entries: an object may have been deleted by hand, and an entry
        of an epoch that is given out again would prove what a new life does not hold (S2)."""
        epochs = [record.broker_epoch for record in self.brokers.values()]
        for value in self.slices.values():
            for state in value.partitions:
                entries = state.in_sync_replicas + state.eligible_leaders
                epochs += [member.broker_epoch for member in entries]
                epochs.append(state.leader_broker_epoch)
        return max(epochs, default=BrokerEpoch(0))

    def next_producer_id_round(self) -> int:
        """Above every one known as used, by whatever broker (S5)."""
        rounds = [record.producer_id_round for record in self.brokers.values()]
        return 1 + max(self.highest_producer_id_round, *rounds)

    def note_producer_id_round(self, producer_id_round: int) -> None:
        self.highest_producer_id_round = max(self.highest_producer_id_round, producer_id_round)

    def cluster_id(self) -> str:
        """The pool's first broker decided it; "": no broker yet."""
        return next((r.cluster_id for r in self.brokers.values() if r.cluster_id), "")

    def topic_slices(self, topic_id: TopicId) -> list[PartitionSlice]:
        found = [value for value in self.slices.values() if value.topic.topic_id == topic_id]
        return sorted(found, key=lambda value: value.index)

    def assigned(self) -> dict[TopicId, tuple[PartitionState, ...]]:
        partitions: dict[TopicId, tuple[PartitionState, ...]] = {}
        for value in self.slices.values():
            topic_id = value.topic.topic_id
            partitions[topic_id] = partitions.get(topic_id, ()) + value.partitions
        return partitions

    def is_reported(self, topic_id: TopicId, partitions: Iterable[int]) -> bool:
        """Some broker found a replica of one of these on its disk."""
        replicas = [(topic_id, number) for number in partitions]
        return any(
            replica in (notes.report or {}) for notes in self.notes.values() for replica in replicas
        )

    def broker_states(self) -> tuple[BrokerState, ...]:
        return tuple(
            BrokerState(
                broker_id,
                record.broker_epoch,
                is_fenced=not record.is_live,
                is_stopping=record.is_stopping,
                endpoints=record.endpoints,
                rack=record.rack,
            )
            for broker_id, record in sorted(self.brokers.items())
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
            )
            for broker_id, record in sorted(self.brokers.items())
        )

    def topic_view(self, topic_id: TopicId, hidden: frozenset[str]) -> TopicView | None:
        """`hidden`: slices that are unreadable now (S3)."""
        slices = self.topic_slices(topic_id)
        if not slices:
            return None
        count = max(value.topic.partition_count for value in slices)
        newest = slices[-1]
        present = {value.index for value in slices}
        expected = range(-(-count // PARTITIONS_PER_SLICE))
        return TopicView(
            topic=replace(newest.topic, partition_count=count),
            partitions=tuple(
                state for value in slices if value.name not in hidden for state in value.partitions
            ),
            object_name=newest.object_name,
            deletion_policy=newest.deletion_policy,
            is_retained=newest.is_retained,
            missing_slices=tuple(
                slice_name(newest.object_name, index) for index in expected if index not in present
            ),
            notices=tuple(self.notices.get(topic_id, {}).values()),
        )

    def _note_longest_log(self, replica: Replica, state: PartitionState) -> None:
        topic_id, number = replica
        self.notices.setdefault(topic_id, {})[number] = (
            f"partition {number}: no replica could prove that it has every committed record;"
            f" the longest log, on broker {state.leader}, was taken in leader epoch"
            f" {state.leader_epoch}"
        )


def _stripped(value: PartitionSlice, state: PartitionState, standings: Standings) -> PartitionState:
    """A retained partition loses its void entries and nothing else (S2)."""
    replica = (value.topic.topic_id, state.partition)
    entries = state.in_sync_replicas + state.eligible_leaders
    if all(standings.is_valid(member, replica) for member in entries):
        return state
    in_sync = tuple(m for m in state.in_sync_replicas if standings.is_valid(m, replica))
    return changed(value.topic, state, standings, in_sync_replicas=in_sync)
