"""Which replica a consumer should read from, as the leader decides it (KIP-392).

Kafka's RackAwareReplicaSelector: the leader unless it stands in another rack than the consumer and
an in-sync replica of that rack has the offset. Only the committed in-sync set counts, never a
proposed one (KAFKA-14372), and of a member only the life that the entry names (S2).
"""

from collections.abc import Mapping

from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.ids import BrokerId, Offset
from tidemark_protocol.partition_state import Member

from tidemark_broker.replication.leader import PartitionLeader


def preferred_replica(
    leader: PartitionLeader,
    brokers: Mapping[BrokerId, BrokerState],
    *,
    rack: str,
    offset: Offset,
) -> BrokerId:
    """The leader itself if nobody is nearer. Among equals the one that has most, then the one that
    was caught up last, then the lowest id."""
    own = brokers.get(leader.broker_id)
    if not rack or (own is not None and own.rack == rack):
        return leader.broker_id
    nearest: tuple[int, int, int] | None = None
    for member in leader.in_sync_replicas:
        follower = leader.follower(member.broker_id)
        if follower is None or not may_be_preferred(leader, brokers, member, offset):
            continue
        if brokers[member.broker_id].rack == rack:
            rank = (-follower.log_end_offset, -follower.last_caught_up_ms, int(member.broker_id))
            nearest = rank if nearest is None else min(nearest, rank)
    return leader.broker_id if nearest is None else BrokerId(nearest[2])


# guard: preferred-follower-has-offset (B10)
def may_be_preferred(
    leader: PartitionLeader,
    brokers: Mapping[BrokerId, BrokerState],
    member: Member,
    offset: Offset,
) -> bool:
    """An in-sync follower that serves, in the life of its entry, known to have the offset. Of one
    that has deleted it a client would be sent back here, and there again."""
    broker = brokers.get(member.broker_id)
    follower = leader.follower(member.broker_id)
    return (
        broker is not None
        and follower is not None
        and member in leader.in_sync_replicas
        and not broker.is_fenced
        and not broker.is_stopping
        and broker.broker_epoch == member.broker_epoch
        and follower.broker_epoch == member.broker_epoch
        and follower.log_start_offset <= offset <= follower.log_end_offset
    )
