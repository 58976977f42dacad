"""Elect leaders as a client requests it (Kafka's ElectLeaders, KIP-460).

That is the preferred leader, or, for a partition without an eligible one, the live replica with the
longest log.
"""

from collections.abc import Collection

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    Evaluate,
    NotifyBrokers,
    Steps,
)
from tidemark_operator.controller.core.elections import preferred_leader_restored
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.timeline import Cause
from tidemark_operator.controller.core.unclean_recovery import ANY_BROKER


def elect_preferred(
    pool: PoolState, topic_id: TopicId, partitions: Collection[int]
) -> Steps[dict[int, ErrorCode]]:
    """Elect preferred leaders; return an error code for each partition.

    NONE, ELECTION_NOT_NEEDED (it leads), PREFERRED_LEADER_NOT_AVAILABLE (not live and in sync),
    UNKNOWN_TOPIC_OR_PARTITION. Raises Deferred.
    """
    before = _states(pool, topic_id)
    for value in pool.topic_slices(topic_id):
        if not value.is_retained and not set(partitions).isdisjoint(value.numbers):
            yield ChangeSlice(value, lambda stored: _restored(pool, stored, partitions))
    after = _states(pool, topic_id)
    yield NotifyBrokers()
    return {number: _outcome(before.get(number), after.get(number)) for number in partitions}


def _restored(
    pool: PoolState, stored: PartitionSlice, partitions: Collection[int]
) -> PartitionSlice:
    eligibility, counts = pool.eligibility(), pool.leader_counts()
    topic = stored.topic

    def restored(state: PartitionState) -> PartitionState:
        replica = (topic.topic_id, state.partition)
        is_wanted = state.partition in partitions
        if not is_wanted or not pool.may_grant(replica, state, eligibility):
            return state
        after = preferred_leader_restored(topic, state, eligibility, leader_counts=counts)
        pool.explain(topic, state, after, Cause.REQUEST, eligibility, counts)
        return after

    return stored.with_partitions(tuple(restored(state) for state in stored.partitions))


def _outcome(before: PartitionState | None, after: PartitionState | None) -> ErrorCode:
    if before is None or after is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if before.leader == before.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    if after.leader == after.replicas[0]:
        return ErrorCode.NONE
    return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def elect_unclean(
    pool: PoolState, topic_id: TopicId, partitions: Collection[int]
) -> Steps[dict[int, ErrorCode]]:
    """Store unclean elections; return an error code for each partition.

    NONE (it is led once the live replicas have reported their logs; a condition tells what is
    lost), ELECTION_NOT_NEEDED (it has a leader), ELIGIBLE_LEADERS_NOT_AVAILABLE (no replica is
    live), UNKNOWN_TOPIC_OR_PARTITION.
    """
    states = _states(pool, topic_id)
    eligibility = pool.eligibility()
    outcomes: dict[int, ErrorCode] = {}
    for number in partitions:
        state = states.get(number)
        if state is None:
            outcomes[number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif state.has_leader:
            outcomes[number] = ErrorCode.ELECTION_NOT_NEEDED
        elif not any(eligibility.is_active(b, (topic_id, number)) for b in state.replicas):
            outcomes[number] = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        else:
            outcomes[number] = ErrorCode.NONE
            pool.choices[topic_id, number] = LeaderChoice(number, ANY_BROKER, state.leader_epoch)
    yield Evaluate((topic_id,))
    yield NotifyBrokers()
    return outcomes


def _states(pool: PoolState, topic_id: TopicId) -> dict[int, PartitionState]:
    return {
        state.partition: state
        for value in pool.topic_slices(topic_id)
        if not value.is_retained
        for state in value.partitions
    }
