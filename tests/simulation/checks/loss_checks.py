"""What a last resort cost, as the controller measured it, against what was really committed.

Pure. An election that no entry could justify leaves a `UncleanElection` in the slice: where its
leader began, and how many committed records other logs held past that. It is told by reports and
heartbeats, so it never says more than was lost; and it says all of it where whoever had committed
most lived on, cut its log and told.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from tidemark_broker.replication.partition import Partition
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.api.unclean_election import UncleanElection
from tidemark_protocol.ids import LeaderEpoch, Offset, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.violations import Violation

TopicPartition = tuple[TopicId, int]


class LossChecker:
    def __init__(self, coverage: Counter[str]) -> None:
        self._coverage = coverage
        self._elected: dict[TopicPartition, list[LeaderEpoch]] = {}
        self._began: dict[tuple[TopicPartition, LeaderEpoch], Offset] = {}

    def on_elected(self, value: PartitionSlice, state: PartitionState) -> None:
        """By the longest log, or uncleanly. Raises Violation unless the same write says so."""
        key = (value.topic.topic_id, state.partition)
        self._elected.setdefault(key, []).append(state.leader_epoch)
        found = value.unclean_election_of(state.partition)
        if found is None or (found.leader, found.leader_epoch) != (
            state.leader,
            state.leader_epoch,
        ):
            raise Violation("loss", f"{value.name}: {state} was elected, recorded is {found}")

    def on_begun(
        self, value: PartitionSlice, number: int, epoch: LeaderEpoch, start_offset: Offset
    ) -> None:
        """Whoever was elected leads. Raises Violation unless it begins where it was said to."""
        self._began[(value.topic.topic_id, number), epoch] = start_offset
        found = value.unclean_election_of(number)
        if found is not None and found.leader_epoch == epoch and found.start_offset != start_offset:
            raise Violation(
                "loss",
                f"{value.name} partition {number}: began at {start_offset}, recorded is {found}",
            )

    def conclude(
        self,
        value: PartitionSlice,
        committed: Mapping[TopicPartition, CommittedLog],
        living: Collection[Partition],
    ) -> None:
        """In the end, when every replica is in sync. `living`: those that have lived on until then
        since they were opened. Raises Violation."""
        for unclean_election in value.recoveries:
            key = (value.topic.topic_id, unclean_election.partition)
            log = committed.get(key)
            if log is None:
                continue
            most = _most_lost(log, unclean_election.leader_epoch)
            least = self._least_lost(key, log, unclean_election, living)
            text = f"{log.name}: {least} to {most} committed records were lost, recorded is"
            if not least <= unclean_election.lost_committed <= most:
                raise Violation("loss", f"{text} {unclean_election}")
            self._coverage["last resorts: committed records lost at most"] += most
            if least:
                self._coverage["last resorts: a loss that is known was recorded"] += 1

    def _least_lost(
        self,
        key: TopicPartition,
        log: CommittedLog,
        unclean_election: UncleanElection,
        living: Collection[Partition],
    ) -> int:
        """What leaders since the election before had committed past where this one's began, who
        lived on: they cut it, and told so. Who dropped its log to begin where its leader's starts
        (S32) tells of no more than what lay past that: where it parts its leader has forgotten. Nor
        does anybody tell of what was too old before it was cut."""
        began = self._began.get((key, unclean_election.leader_epoch))
        if began is None:
            return 0
        before = [epoch for epoch in self._elected[key] if epoch < unclean_election.leader_epoch]
        known = (
            high_watermark - max(began, log.begun_anew.get(replica, 0), log.aged_to.get(replica, 0))
            for epoch, (high_watermark, replica) in log.led.items()
            if max(before, default=0) <= epoch < unclean_election.leader_epoch and replica in living
        )
        return max(0, 0, *known)


def _most_lost(log: CommittedLog, before_epoch: LeaderEpoch) -> int:
    """Whoever led in any former epoch, and wherever the histories parted first."""
    previous = (led[0] for epoch, led in log.led.items() if epoch < before_epoch)
    return max(0, max(previous, default=0) - (log.lost_from or 0))
