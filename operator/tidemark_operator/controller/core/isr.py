"""Check a leader's ISR proposal (AlterPartition; KIP-497, KIP-841, KIP-903).

The checks and their order are Kafka's (ReplicationControlManager.validateAlterPartitionData),
without leader recovery states, which Tidemark does not have. A rejected change is itself a change:
it raises the partition epoch, so that a delayed write of a deposed controller, or one of ours whose
response was lost, cannot be stored after the rejection was sent (S3).
"""

from dataclasses import dataclass

from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerId
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility
from tidemark_operator.controller.core.partition_change import changed, raised


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check; `partition` must be durable before the response is sent."""

    error: ErrorCode
    partition: PartitionState


def checked_proposal(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    *,
    sender: BrokerId,
    proposal: IsrProposal,
) -> Verdict:
    error = _check(partition, sender, proposal)
    if error is not ErrorCode.NONE:
        return Verdict(error, partition)
    in_sync: list[Member] = []
    for member in proposal.new_in_sync_replicas:
        admitted = _admitted(topic, member, partition, eligibility)
        if admitted is None:
            # guard: refused-join-raises-partition-epoch (S3)
            return Verdict(ErrorCode.INELIGIBLE_REPLICA, raised(partition))  # S3
        in_sync.append(admitted)
    in_sync.sort(key=lambda member: partition.replicas.index(member.broker_id))
    if set(in_sync) == set(partition.in_sync_replicas):
        return Verdict(ErrorCode.NONE, partition)
    return Verdict(
        ErrorCode.NONE, changed(topic, partition, eligibility, in_sync_replicas=tuple(in_sync))
    )


def _check(partition: PartitionState, sender: BrokerId, proposal: IsrProposal) -> ErrorCode:
    if (
        proposal.leader_epoch > partition.leader_epoch
        or proposal.partition_epoch > partition.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER  # KAFKA-14154: we are the stale side
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    proposed = [member.broker_id for member in proposal.new_in_sync_replicas]
    if len(set(proposed)) != len(proposed) or not set(proposed) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in proposed:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


# guard: join-names-present-life (S2)
def _admitted(
    topic: TopicState,
    member: Member,
    partition: PartitionState,
    eligibility: Eligibility,
) -> Member | None:
    """Return the entry to write, or None for a broker that may not be in an ISR now.

    Epoch -1 means that the leader has seen no fetch yet of a member that is in the ISR already: its
    stored entry counts. For a new member -1 is rejected (stricter than Kafka).
    """
    replica = (topic.topic_id, partition.partition)
    broker_eligibility = eligibility.of(member.broker_id)
    if broker_eligibility is None or not eligibility.is_active(member.broker_id, replica):
        return None
    stored = next((m for m in partition.in_sync_replicas if m.broker_id == member.broker_id), None)
    if stored is None and not _has_spoken(broker_eligibility):
        return None
    if member.broker_epoch == NO_EPOCH:
        if stored is None or not eligibility.is_valid(stored, replica, topic.flush):
            return None
        return eligibility.renewed(stored, replica, topic.flush)
    return member if member.broker_epoch == broker_eligibility.broker_epoch else None


# guard: joiner-has-reported (S9)
def _has_spoken(broker_eligibility: BrokerEligibility) -> bool:
    """Return whether the broker has reported to this controller.

    A leader may ask for what its follower held before it reported the replica failed (S9).
    """
    return broker_eligibility.has_spoken
