"""Decide whether a partition can change at its leader by time alone.

If not, it is not checked until something happens to it: most partitions are idle most of the time.
"""

from tidemark_broker.replication.core.leader import PartitionLeader


def is_settled(leader: PartitionLeader) -> bool:
    """Return whether all replicas are in sync in their entries' epochs and have all records.

    Equal log ends are caught up whatever the time, so no lag window ends here.
    """
    state, end = leader.state, leader.log_end_offset
    if leader.pending_proposal is not None or leader.high_watermark < end:
        return False
    if len(state.in_sync_replicas) < len(state.replicas):
        return False
    for member in state.in_sync_replicas:
        if member.broker_id == leader.broker_id:
            continue
        follower = leader.follower(member.broker_id)
        if follower is None or follower.log_end_offset != end:
            return False
        if follower.broker_epoch != member.broker_epoch:
            return False
    return True
