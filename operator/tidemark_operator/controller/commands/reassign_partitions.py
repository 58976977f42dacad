"""Begin and complete moves of partitions between brokers."""

from collections.abc import Mapping
from dataclasses import replace

from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    Evaluate,
    NotifyBrokers,
    SaveBroker,
    Steps,
)
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.reassignment import CannotReassign, obstacle, reassigned
from tidemark_operator.controller.core.timeline import BrokerChanged, BrokerTurn, Cause

Targets = Mapping[int, tuple[BrokerId, ...]]  # by partition

MAX_NAMED = 5  # partitions in one error: a condition has an end


def reassign(pool: PoolState, topic_id: TopicId, targets: Targets) -> Steps[None]:
    """Begin the moves that can begin, then raise CannotReassign for the others. Idempotent.

    So a partition that has to wait, or an invalid entry, delays no drain of the others.
    """
    slices = pool.topic_slices(topic_id)
    places = {state.partition: (value, state) for value in slices for state in value.partitions}
    problems = {
        number: problem
        for number, target in sorted(targets.items())
        if (problem := _problem(pool, places.get(number), target))
    }
    possible = {number: to for number, to in targets.items() if number not in problems}
    for value in slices:
        if not possible.keys().isdisjoint(value.numbers):
            yield ChangeSlice(value, lambda stored: _begun(pool, stored, possible))
    if possible:
        yield Evaluate((topic_id,))  # what is complete already completes
    if problems:
        raise CannotReassign(_listed(problems))


def retire(pool: PoolState, broker_id: BrokerId) -> Steps[None]:
    """Record a drained broker whose process is gone as Gone; only a registration brings it back."""
    record = pool.brokers.get(broker_id)
    if record is None or record.state is BrokerControlState.GONE:
        return
    if record.is_live or _is_named(pool, broker_id):
        return  # its session ends soon, or a topic was placed there meanwhile
    yield SaveBroker(replace(record, state=BrokerControlState.GONE))
    pool.timeline.record(BrokerChanged(BrokerTurn.RETIRED, broker_id, record.broker_epoch))
    pool.image.set_brokers(pool.broker_states())
    yield NotifyBrokers()


def _is_named(pool: PoolState, broker_id: BrokerId) -> bool:
    return any(
        broker_id in state.replicas for value in pool.slices.values() for state in value.partitions
    )


def _problem(
    pool: PoolState,
    place: tuple[PartitionSlice, PartitionState] | None,
    target: tuple[BrokerId, ...],
) -> str:
    """Return why a move cannot begin now, or ""."""
    if place is None:
        return "the partition does not exist or its PartitionSlice cannot be read"
    unknown = [b for b in target if not _is_known(pool, b)]
    if unknown:
        return f"brokers {unknown} are not registered: start them first"
    value, state = place
    problem = obstacle(state, target, is_retained=value.is_retained)
    return problem or _reason_to_wait(pool, value.topic.topic_id, state)


def _listed(problems: Mapping[int, str]) -> str:
    shown = list(problems.items())[:MAX_NAMED]
    text = "; ".join(f"partition {number}: {problem}" for number, problem in shown)
    more = len(problems) - len(shown)
    return f"{text}; and {more} more partitions" if more else text


def _reason_to_wait(pool: PoolState, topic_id: TopicId, state: PartitionState) -> str:
    """Return why a move has to wait, or "".

    A replica that leaves raises the leader epoch (S30). No leader is assigned by an old slice
    (S17), nor is a leader that was fenced while its successor could not be written (I12).
    """
    replica = (topic_id, state.partition)
    if not pool.may_grant(replica, state, pool.eligibility()):
        return "not all of its brokers have reported their logs: the move waits for the reports"
    if state.has_leader and not _leads_on(pool, state):
        return f"its leader {state.leader} is stopping: the move waits for another leader"
    return ""


# guard: move-begins-under-live-leader (S30)
def _leads_on(pool: PoolState, state: PartitionState) -> bool:
    leader = pool.current(state.leader, state.leader_broker_epoch)
    return leader is not None and leader.is_live and not leader.is_stopping


def _is_known(pool: PoolState, broker_id: BrokerId) -> bool:
    record = pool.brokers.get(broker_id)
    return record is not None and record.state is not BrokerControlState.GONE


def _begun(pool: PoolState, stored: PartitionSlice, targets: Targets) -> PartitionSlice:
    eligibility = pool.eligibility()

    def new_partitions(state: PartitionState) -> PartitionState:
        target = targets.get(state.partition)
        # What is stored may have changed since it was checked: then the next pass looks again.
        if target is None or obstacle(state, target, is_retained=stored.is_retained):
            return state
        if _reason_to_wait(pool, stored.topic.topic_id, state):
            return state
        after = reassigned(stored.topic, state, eligibility, target, is_retained=stored.is_retained)
        pool.explain(stored.topic, state, after, Cause.REASSIGNMENT, eligibility)
        return after

    return stored.with_partitions(tuple(new_partitions(state) for state in stored.partitions))
