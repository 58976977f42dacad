"""Detect slices that are older than what a broker holds: restored from a backup (S17).

Polls report epochs held above the pushed ones, registrations the last epoch of each log, and what
this controller itself knew to be durable counts too. A partition whose slice is below that is
stale: nothing is decided by it, and no leader is assigned. Once each live broker has reported its
logs, it is rebuilt above all that was reported, without a leader and without an entry; then the
longest log of all leads (S14).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidemark_protocol.controller_messages import ReplicaReport, ReportedEpoch
from tidemark_protocol.ids import (
    NO_BROKER,
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.controller.core.eligibility import Replica


@dataclass(frozen=True, slots=True)
class MinimumEpochs:
    """The lowest epochs that a true state can have."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    recorded_at_version: int  # of the image: reports count from brokers that applied that much

    # guard: slice-below-held-epochs (S17)
    def is_above(self, state: PartitionState) -> bool:
        return (
            state.leader_epoch < self.leader_epoch or state.partition_epoch < self.partition_epoch
        )


class ReportedEpochs:
    def __init__(self) -> None:
        self._floors: dict[TopicId, dict[int, MinimumEpochs]] = {}

    def note(
        self, replica: Replica, leader_epoch: int, partition_epoch: int, *, version: int
    ) -> None:
        topic_id, partition = replica
        floors = self._floors.setdefault(topic_id, {})
        known = floors.get(partition)
        if known is not None:
            leader_epoch = max(leader_epoch, known.leader_epoch)
            partition_epoch = max(partition_epoch, known.partition_epoch)
            if (leader_epoch, partition_epoch) == (known.leader_epoch, known.partition_epoch):
                return
        floors[partition] = MinimumEpochs(
            LeaderEpoch(leader_epoch), PartitionEpoch(partition_epoch), version
        )

    def record_reported_epochs(self, held: ReportedEpoch, *, version: int) -> None:
        # The same partition epoch with another state: two histories, and ours is the younger one.
        above = int(held.has_other_state)
        replica = (held.topic_id, held.partition)
        self.note(replica, held.leader_epoch, held.partition_epoch + above, version=version)

    def record_reports(self, reports: Iterable[ReplicaReport], *, version: int) -> None:
        """Record reported logs: a log cannot hold an epoch that was never durable in its slice."""
        for report in reports:
            if report.last_epoch > NO_EPOCH:
                replica = (report.topic_id, report.partition)
                self.note(replica, report.last_epoch, NO_EPOCH, version=version)

    def minimum_epochs_above(self, replica: Replica, state: PartitionState) -> MinimumEpochs | None:
        """Return the epochs above the state, or None if it is as new as all reports."""
        floor = self.minimum_epochs_of(replica)
        return floor if floor is not None and floor.is_above(state) else None

    def minimum_epochs_of(self, replica: Replica) -> MinimumEpochs | None:
        """Return the known epochs, or None if none was reported or durable here."""
        topic_id, partition = replica
        return self._floors.get(topic_id, {}).get(partition)

    def forget(self, topic_id: TopicId) -> None:
        self._floors.pop(topic_id, None)


def rebuilt(
    state: PartitionState, floor: MinimumEpochs, holders: Iterable[BrokerId]
) -> PartitionState:
    """Return the partition rebuilt above `floor`, without leader and entries.

    `holders` reported a log of it. Those that the slice does not name become replicas too, which
    leave once its own are in sync: theirs may be the longest log.
    """
    unknown = tuple(sorted(set(holders) - set(state.replicas)))
    return replace(
        state,
        replicas=state.replicas + unknown,
        removing_replicas=state.removing_replicas + unknown,
        leader=NO_BROKER,
        leader_broker_epoch=BrokerEpoch(NO_EPOCH),
        leader_epoch=LeaderEpoch(max(state.leader_epoch, floor.leader_epoch) + 1),
        in_sync_replicas=(),
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(max(state.partition_epoch, floor.partition_epoch) + 1),
    )


def holders_of(
    replica: Replica, reports: Mapping[BrokerId, Mapping[Replica, ReplicaReport]]
) -> tuple[BrokerId, ...]:
    return tuple(sorted(broker_id for broker_id, report in reports.items() if replica in report))
