"""S32: which leader epochs a log cannot speak of any more, and who need not be asked. Pure."""

from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member, PartitionState

from tidemark_broker.replication.effects import LogView, ReplicaFetch


# guard: no-agreement-on-forgotten-epoch (S32)
def is_forgotten(epoch: LeaderEpoch, log: LogView) -> bool:
    """It lies below the log start, and so does the answer to where it ended."""
    return epoch < log.first_epoch and log.log_start_offset > 0


def is_counted_on(fetch: ReplicaFetch, state: PartitionState) -> bool:
    """It has all that is committed (I6), and must not let go of it to copy it again."""
    entry = Member(fetch.broker_id, fetch.broker_epoch)
    return entry in (*state.in_sync_replicas, *state.eligible_leaders)


def agreed_end(
    fetch: ReplicaFetch, log: LogView, state: PartitionState
) -> tuple[LeaderEpoch, Offset] | None:
    """Up to where a follower's log is the leader's, for all that its last epoch tells; None if the
    leader lost that epoch. Below the log start: nothing that the leader has is agreed."""
    epoch = fetch.last_fetched_epoch
    if not is_forgotten(epoch, log):
        return log.end_offset_for(epoch)
    if is_counted_on(fetch, state):
        return epoch, log.log_start_offset
    return epoch, Offset(log.log_start_offset - 1)
