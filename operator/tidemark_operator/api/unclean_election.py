"""Record an unclean election durably, with its cause and what it cost.

Such a leader may lack acknowledged records, so the partition keeps which broker became leader, from
which offset, and how many records of other replicas' logs were lost, as far as these have reported
since. It is kept in the slice, in the same write as the election itself.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from tidemark_protocol.controller_messages import CommittedTruncation, ReplicaReport
from tidemark_protocol.ids import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch, Offset


class UncleanCause(Enum):
    ALL_UNCLEAN = "AllUnclean"  # S14: every replica reported, none could prove anything
    UNCLEAN = "Unclean"  # the topic's choice: unclean.leader.election.enable
    CHOSEN = "Chosen"  # a human named the broker, or asked for the longest log of those live
    RESTORED = "Restored"  # S17: the slice was older than what brokers held


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """An unclean election; the new history begins in `leader_epoch`.

    NO_BROKER and -1 while no broker leads yet.
    """

    partition: int
    cause: UncleanCause
    leader_epoch: LeaderEpoch
    leader: BrokerId = NO_BROKER
    start_offset: Offset = Offset(-1)
    unheard: tuple[BrokerId, ...] = ()  # replicas whose logs nobody knew
    lost_records: int = 0  # in logs of former epochs past where they part, as reported so far
    lost_committed: int = 0  # those below a high watermark: acknowledged or read, maybe

    def led_by(
        self, leader: BrokerId, leader_epoch: LeaderEpoch, start_offset: Offset
    ) -> "UncleanElection":
        return replace(self, leader=leader, leader_epoch=leader_epoch, start_offset=start_offset)

    def measured(self, reports: Iterable[ReplicaReport]) -> "UncleanElection":
        """Return the record with what these logs of earlier epochs hold past the start.

        It never falls. A watermark beyond its own log's end has no meaning here: it may be of the
        history that began here, whose records a power loss removed from that log. Nor has the end
        of a log without any epoch: it was dropped and began where its leader's starts.
        """
        if self.leader == NO_BROKER:
            return self
        lost, committed = self.lost_records, self.lost_committed
        for report in reports:
            if report.failed or not NO_EPOCH < report.last_epoch < self.leader_epoch:
                continue
            lost = max(lost, report.log_end_offset - self.start_offset)
            known_to = min(report.high_watermark, report.log_end_offset)
            committed = max(committed, known_to - self.start_offset)
        if (lost, committed) == (self.lost_records, self.lost_committed):
            return self
        return replace(self, lost_records=lost, lost_committed=committed)

    def with_truncations(self, truncations: Iterable[CommittedTruncation]) -> "UncleanElection":
        """Return the record with what followers truncated to follow the history that began here.

        That is exact, because they diverge there. The same truncation again changes nothing.
        """
        if self.leader == NO_BROKER:
            return self
        lost, committed = self.lost_records, self.lost_committed
        for cut in truncations:
            if cut.last_epoch < self.leader_epoch <= cut.leader_epoch:
                lost = max(lost, cut.log_end_offset - cut.to_offset)
                committed = max(committed, cut.high_watermark - cut.to_offset)
        if (lost, committed) == (self.lost_records, self.lost_committed):
            return self
        return replace(self, lost_records=lost, lost_committed=committed)

    def sentence(self, in_sync: Collection[BrokerId] = ()) -> str:
        """Return the sentence of the Topic's condition.

        A broker that had not reported by the election, and is `in_sync` now, has followed the new
        history since: the numbers include what its log lost.
        """
        text = f"partition {self.partition}: {_REASONS[self.cause]}"
        if self.leader == NO_BROKER:
            return f"{text}; no leader is elected yet in leader epoch {self.leader_epoch}"
        text += (
            f"; broker {self.leader} is leader since leader epoch {self.leader_epoch}"
            f" and offset {self.start_offset}; {self.lost_records} records past this"
            f" offset in other logs are lost, {self.lost_committed} of them below a high"
            " watermark"
        )
        missing = [broker_id for broker_id in self.unheard if broker_id not in in_sync]
        if missing:
            names = ", ".join(map(str, missing))
            text += (
                f"; brokers {names} had not reported before the election: records that"
                " they have not reported yet are lost too and not counted"
            )
        return text


_REASONS = {
    UncleanCause.ALL_UNCLEAN: (
        "no replica was known to hold all committed records, so the replica with the longest"
        " log was elected"
    ),
    UncleanCause.UNCLEAN: (
        "no in-sync or eligible replica was live and unclean.leader.election.enable is true,"
        " so the live replica with the longest log was elected"
    ),
    UncleanCause.CHOSEN: "a person chose the leader, or the live replica with the longest log",
    UncleanCause.RESTORED: (
        "its PartitionSlice was older than the brokers' logs (restored from a backup?), so"
        " it was rebuilt"
    ),
}
