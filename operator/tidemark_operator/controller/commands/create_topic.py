"""Create, change, retain and delete the slices of one topic.

Each command is idempotent and may be interrupted anywhere: slices are created one after the other
and each says how many partitions there were up to it, so an interruption leaves a shorter topic,
never one that looks as if a slice were missing (S12).

All but `choose_leaders` hold the topic, and take a turn of the pool for one slice at a time,
concurrently with other topics: no command waits for a large topic, nor for many of them.
"""

from dataclasses import replace

from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.commands.delete_topic import delete_for_good
from tidemark_operator.controller.commands.topic_growth import (
    Assignments,
    Growth,
    SliceMissing,
    change,
    check_complete,
    count_of,
    grow,
)
from tidemark_operator.controller.core.decision import (
    ConfirmBroker,
    Decide,
    Evaluate,
    FindSlices,
    LoadSlice,
    NotifyBrokers,
    ReadSlice,
    Steps,
    Turn,
)
from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.partition_change import (
    NOBODY,
    changed,
    effective_min_insync,
    with_min_insync,
)
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.reassignment import is_moving
from tidemark_operator.controller.core.unclean_recovery import is_chosen


class TopicUnknown(Exception):
    """An error: there are no slices of that topic id; create_topic first."""


def create(
    pool: PoolState,
    topic: TopicState,
    assignments: Assignments,
    *,
    object_name: str,
    deletion_policy: str,
    had_slices: bool,
) -> Steps[None]:
    growth = Growth(topic, assignments, 0, object_name, deletion_policy)
    while True:
        yield Turn.SHARED
        slices = pool.topic_slices(topic.topic_id)
        had_slices = had_slices or _ever_had_slices(pool, topic.topic_id, len(assignments))
        if _is_kept(slices, had_slices=had_slices):
            yield Turn.NONE
            yield from _restore(pool, topic, object_name, deletion_policy)
            continue
        had_slices = True  # from its first one on
        if (yield from grow(pool, growth)):
            return


def _is_kept(slices: list[PartitionSlice], *, had_slices: bool) -> bool:
    """Return whether the topic's data is from before."""
    return any(value.is_retained for value in slices) or (had_slices and not slices)


def _restore(
    pool: PoolState, topic: TopicState, object_name: str, deletion_policy: str
) -> Steps[None]:
    if not pool.topic_slices(topic.topic_id):
        # A deposed controller may have made them after we had read everything.
        yield from find_slices(pool, topic.topic_id)
    yield Turn.ALONE
    slices = pool.topic_slices(topic.topic_id)
    _check_present(topic, slices)
    check_complete(slices)
    adopted = [value for value in slices if value.is_retained]
    for value in adopted:
        yield from _adopt(pool, value, topic, object_name, deletion_policy)
    if adopted:
        yield Evaluate((topic.topic_id,))  # they have no leader yet


def update(pool: PoolState, topic: TopicState, *, deletion_policy: str | None) -> Steps[None]:
    """Store the config, and with it the effective min ISR (S6).

    commitRule and flush are immutable.
    """
    topic_id = topic.topic_id
    slices = pool.topic_slices(topic_id)
    if not slices:
        raise TopicUnknown(f"topic {topic.topic} ({topic_id}) has no PartitionSlice objects")
    for value in slices:
        yield Turn.SHARED
        yield from change(pool, value.name, _updating(pool, topic, deletion_policy))
    yield Turn.SHARED
    yield Evaluate((topic_id,))  # unclean election may just have been allowed


def add_partitions(
    pool: PoolState, topic_id: TopicId, assignments: Assignments, *, first: int
) -> Steps[None]:
    slices = pool.topic_slices(topic_id)
    if not slices:
        raise TopicUnknown(f"topic ID {topic_id} has no PartitionSlice objects")
    last = slices[-1]
    done = count_of(slices)
    check_complete(slices)
    if done < first:
        raise SliceMissing(
            f"topic {last.topic.topic}: the PartitionSlice objects of partitions {done} to"
            f" {first - 1} are missing: restore them"
        )
    growth = Growth(last.topic, assignments, first, last.object_name, last.deletion_policy)
    is_done = False
    while not is_done:
        yield Turn.SHARED
        is_done = yield from grow(pool, growth)


# guard: retained-topic-is-kept (I20)
def delete(pool: PoolState, topic_id: TopicId, *, retain: bool, topic: str = "") -> Steps[None]:
    slices = pool.topic_slices(topic_id)
    if retain:
        for value in slices:
            yield Turn.SHARED
            yield from change(pool, value.name, _retaining(pool))
        if any(is_moving(state) for value in slices for state in value.partitions):
            yield Turn.SHARED
            yield Evaluate((topic_id,))  # the move goes on, and needs a leader
        return
    if topic and not slices:
        yield from find_slices(pool, topic_id)  # some may have been put back
    yield Turn.SHARED
    yield from delete_for_good(pool, topic_id, topic)


def choose_leaders(
    pool: PoolState, topic_id: TopicId, choices: tuple[LeaderChoice, ...]
) -> Steps[None]:
    """Store leader choices; drop those that no longer fit the partition.

    The election waits until that broker has reported its log, so that the loss is known.
    """
    states = {
        state.partition: state
        for value in pool.topic_slices(topic_id)
        for state in value.partitions
    }
    for choice in choices:
        state = states.get(choice.partition)
        if state is not None and is_chosen(choice, state) and choice.leader in state.replicas:
            pool.choices[topic_id, choice.partition] = choice
    yield Evaluate((topic_id,))
    yield NotifyBrokers()


def find_slices(pool: PoolState, topic_id: TopicId) -> Steps[None]:
    """Load slices that were missing and have been restored (S12).

    If they are from an old backup, what is known of their epochs shows it (S17). The command has no
    turn before it, and none after it.
    """
    if pool.image.was_deleted(topic_id):
        return  # every full push of this term says so first
    listed = (yield FindSlices(topic_id)).stored.values()
    if not any(value.name not in pool.slices for value in listed):
        return
    yield Turn.ALONE
    for each in listed:
        if each.name in pool.slices or topic_id in pool.tombstones:
            continue
        value = (yield ReadSlice(each)).stored.get(each.name)
        if value is None:
            continue
        yield from _confirm_epochs(pool, value)
        pool.record_put_back(value)
        yield LoadSlice(value)
    yield Turn.NONE


def _confirm_epochs(pool: PoolState, value: PartitionSlice) -> Steps[None]:
    """Read the brokers whose entries are above the known broker epochs.

    Such an entry is invalid, unless a deposed controller registered that epoch after we had read
    (decision 0083). Raises Deferred, Deposed.
    """
    epochs: dict[BrokerId, BrokerEpoch] = {}
    for state in value.partitions:
        for member in state.in_sync_replicas + state.eligible_leaders:
            known = epochs.get(member.broker_id, member.broker_epoch)
            epochs[member.broker_id] = max(known, member.broker_epoch)
    for broker_id, epoch in epochs.items():
        record = pool.brokers.get(broker_id)
        if record is not None and epoch > record.broker_epoch:
            yield ConfirmBroker(record)


def _ever_had_slices(pool: PoolState, topic_id: TopicId, count: int) -> bool:
    was_deleted = pool.image.was_deleted(topic_id)  # brokers are told so for ever
    return was_deleted or pool.is_reported(topic_id, range(count))


def _check_present(topic: TopicState, slices: list[PartitionSlice]) -> None:
    if not slices:
        raise SliceMissing(
            f"topic {topic.topic}: PartitionSlice objects are missing (topic ID"
            f" {topic.topic_id}): restore them, or delete the Topic and create it again as an"
            " empty topic; the old records are erased only if deletionPolicy is Delete and an"
            " operator runs when the Topic is deleted, otherwise they stay on the brokers'"
            " disks"
        )


def _adopt(
    pool: PoolState,
    value: PartitionSlice,
    topic: TopicState,
    object_name: str,
    deletion_policy: str,
) -> Steps[None]:
    """Adopt retained slices for a Topic that was applied again.

    The Topic may have another metadata.name. Id, epochs and data stay; invalid entries stay
    invalid.
    """
    updating = _updating(pool, topic, deletion_policy)

    def adopting(stored: PartitionSlice) -> PartitionSlice:
        eligibility = pool.eligibility()
        after = updating(stored)
        # Who led for a move is granted it again: a broker serves from that epoch on.
        partitions = tuple(
            _resigned(after.topic, state, eligibility) if state.has_leader else state
            for state in after.partitions
        )
        return replace(after, is_retained=False, topic_object=object_name, partitions=partitions)

    yield from change(pool, value.name, adopting)


# guard: same-topic-is-not-written (I21)
def _updating(pool: PoolState, topic: TopicState, deletion_policy: str | None) -> Decide:
    def decide(stored: PartitionSlice) -> PartitionSlice:
        wanted = replace(
            stored.topic,
            config=dict(topic.config),
            replication_factor=topic.replication_factor,
        )
        policy = deletion_policy or stored.deletion_policy
        if wanted == stored.topic and policy == stored.deletion_policy:
            return stored
        eligibility = pool.eligibility()
        min_insync = effective_min_insync(wanted)
        partitions = tuple(
            with_min_insync(wanted, state, eligibility, min_insync) for state in stored.partitions
        )
        return replace(stored, topic=wanted, deletion_policy=policy, partitions=partitions)

    return decide


def _retaining(pool: PoolState) -> Decide:
    def decide(stored: PartitionSlice) -> PartitionSlice:
        if stored.is_retained:
            return stored
        eligibility = pool.eligibility()
        partitions = tuple(
            _resigned(stored.topic, state, eligibility) for state in stored.partitions
        )
        return replace(stored, is_retained=True, partitions=partitions)

    return decide


def _resigned(topic: TopicState, state: PartitionState, eligibility: Eligibility) -> PartitionState:
    replica = (topic.topic_id, state.partition)
    return changed(
        topic,
        state,
        eligibility,
        in_sync_replicas=tuple(
            member
            for member in state.in_sync_replicas
            if eligibility.is_valid(member, replica, topic.flush)
        ),  # S2: what is read again may hold a deposed controller's void entry
        leadership=NOBODY if state.has_leader else None,
    )
