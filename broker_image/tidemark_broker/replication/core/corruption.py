"""Decide when a replica with a corrupt batch is reported, and when it is rebuilt.

The batch is never served (I10). While another replica can lead, this one is reported failed: the
controller removes it from every set (S9) and moves leadership. The replica truncates its log before
the batch and fetches the rest again only when the controller has stored that, and the state applied
then names it in no set: by an earlier state, whose successor it may not have received, it might be
the leader by now. It stays reported until it holds all that it held: a fetch that it sent before
the truncation, or a proposal that followed from one, may still be under way, and must not bring it
back into the ISR with less. So it fetches with the untruncated log until its leader has said what
it has of that: what the leader never had (after an unclean election) would be waited for without
end. For the high watermark (I2) this is a re-creation. A replica that is alone continues with
everything but that batch: dropping the only copy would lose what is valid.
"""

from dataclasses import dataclass

from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import PartitionState


@dataclass(slots=True)
class Corruption:
    broker_id: BrokerId
    offset: Offset  # a batch that holds it, or one before it, is corrupt
    reason: str
    is_unreadable: bool = False  # nothing worse was met: a later start may read it again
    is_acknowledged: bool = False  # by the controller, which lets it into no set any more
    valid_from: Offset | None = None  # cut: it is over once the log ends here again
    truncated_in_epoch: LeaderEpoch = LeaderEpoch(-1)
    refetch_target: Offset = Offset(0)  # to where a former damage was to be filled again
    refetch_epoch: LeaderEpoch = LeaderEpoch(-1)

    def require_refetch(self, previous: "Corruption | None") -> None:
        """Require a refetch again: corruption was found while the log is being refilled.

        A fetch from before the first truncation still counts.
        """
        if previous is not None and previous.valid_from is not None:
            self.refetch_target, self.refetch_epoch = (
                previous.valid_from,
                previous.truncated_in_epoch,
            )

    def cut(self, shared_end: Offset, leader_epoch: LeaderEpoch) -> None:
        needs_refetch = self.refetch_epoch == leader_epoch
        self.valid_from = max(shared_end, self.refetch_target) if needs_refetch else shared_end
        self.truncated_in_epoch = leader_epoch

    def may_be_truncated(self, state: PartitionState | None) -> bool:
        """Return whether no ISR or ELR entry names this replica, so that it may be truncated."""
        if self.valid_from is not None or state is None:
            return False
        return (
            # guard: damage-cut-once-out-of-isr (I6)
            is_in_no_set(state, self.broker_id)
            # Who has not heard of it may count on what is here, whatever the applied state says.
            # guard: damage-cut-once-reported (I6)
            and self.is_acknowledged
        )

    def may_fetch(self, state: PartitionState | None, knows_what_is_shared: bool) -> bool:
        """Return whether the replica may fetch.

        After the truncation, and before it until the leader's response says what is to come back.
        """
        if self.valid_from is not None:
            return True
        return self.may_be_truncated(state) and not knows_what_is_shared

    # guard: damage-lasts-until-refetched (I10)
    def is_over(self, log_end_offset: Offset, leader_epoch: LeaderEpoch) -> bool:
        """Return whether the replica holds all that it held, or follows in a later leader epoch.

        In a later leader epoch no fetch from before the truncation counts.
        """
        if self.valid_from is None:
            return False
        return log_end_offset >= self.valid_from or leader_epoch > self.truncated_in_epoch


def is_in_no_set(state: PartitionState, broker_id: BrokerId) -> bool:
    """Return whether the broker is neither in sync nor eligible, under any epoch (I6)."""
    members = (*state.in_sync_replicas, *state.eligible_leaders)
    return all(member.broker_id != broker_id for member in members)


def is_alone(state: PartitionState | None, broker_id: BrokerId) -> bool:
    """Return whether no other replica could lead."""
    if state is None:
        return True
    members = (*state.in_sync_replicas, *state.eligible_leaders)
    return all(member.broker_id == broker_id for member in members)
