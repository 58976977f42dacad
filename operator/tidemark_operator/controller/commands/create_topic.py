"""Create, change, retain and delete the slices of one topic.

Each command is idempotent and may be interrupted anywhere: slices are created one after the other
and each says how many partitions there were up to it, so an interruption leaves a shorter topic,
never one that looks as if a slice were missing (S12). Callers hold no lock; each command takes the
pool's.

Creating and growing hold the topic, and the pool for one slice at a time, concurrently with other
topics: no command waits for a large topic, nor for many of them.
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
    check_complete,
    count_of,
    grow,
)
from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.partition_change import (
    NOBODY,
    changed,
    effective_min_insync,
    with_min_insync,
)
from tidemark_operator.controller.core.reassignment import is_moving
from tidemark_operator.controller.core.unclean_recovery import is_chosen
from tidemark_operator.controller.pool_loop import PoolLoop
from tidemark_operator.controller.slice_store import Decide


class TopicUnknown(Exception):
    """An error: there are no slices of that topic id; create_topic first."""


async def create(
    pool: PoolLoop,
    topic: TopicState,
    assignments: Assignments,
    *,
    object_name: str,
    deletion_policy: str,
    had_slices: bool,
) -> None:
    async with pool.topic_locks.hold(topic.topic_id):
        growth = Growth(topic, assignments, 0, object_name, deletion_policy)
        while True:
            async with pool.lock.shared():
                slices = pool.state.topic_slices(topic.topic_id)
                had_slices = had_slices or _ever_had_slices(pool, topic.topic_id, len(assignments))
                if not _is_kept(slices, had_slices=had_slices):
                    had_slices = True  # from its first one on
                    if await grow(pool, growth):
                        return
                    continue
            await _restore(pool, topic, object_name, deletion_policy)


def _is_kept(slices: list[PartitionSlice], *, had_slices: bool) -> bool:
    """Return whether the topic's data is from before."""
    return any(value.is_retained for value in slices) or (had_slices and not slices)


async def _restore(
    pool: PoolLoop, topic: TopicState, object_name: str, deletion_policy: str
) -> None:
    if not pool.state.topic_slices(topic.topic_id):
        # A deposed controller may have made them after we had read everything.
        await _take_in(pool, topic.topic_id)
    async with pool.lock:
        slices = pool.state.topic_slices(topic.topic_id)
        _check_present(topic, slices)
        check_complete(slices)
        adopted = [value for value in slices if value.is_retained]
        for value in adopted:
            await _adopt(pool, value, topic, object_name, deletion_policy)
        if adopted:
            await pool.evaluate(topics=(topic.topic_id,))  # they have no leader yet


async def update(pool: PoolLoop, topic: TopicState, *, deletion_policy: str | None) -> None:
    """Store the config, and with it the effective min ISR (S6).

    commitRule and flush are immutable.
    """
    topic_id = topic.topic_id
    async with pool.topic_locks.hold(topic_id):
        slices = pool.state.topic_slices(topic_id)
        if not slices:
            raise TopicUnknown(f"topic {topic.topic} ({topic_id}) has no PartitionSlice objects")
        for value in slices:
            async with pool.lock.shared():
                await _change(pool, value.name, _updating(pool, topic, deletion_policy))
        async with pool.lock.shared():  # unclean election may just have been allowed
            await pool.evaluate(topics=(topic_id,))


async def add_partitions(
    pool: PoolLoop, topic_id: TopicId, assignments: Assignments, *, first: int
) -> None:
    async with pool.topic_locks.hold(topic_id):
        slices = pool.state.topic_slices(topic_id)
        if not slices:
            raise TopicUnknown(f"topic ID {topic_id} has no PartitionSlice objects")
        last = slices[-1]
        done = count_of(slices)
        check_complete(slices)
        if done < first:
            raise SliceMissing(
                f"topic {last.topic.topic}: the PartitionSlice objects of partitions {done}"
                f" to {first - 1} are missing: restore them"
            )
        growth = Growth(last.topic, assignments, first, last.object_name, last.deletion_policy)
        is_done = False
        while not is_done:
            async with pool.lock.shared():
                is_done = await grow(pool, growth)


# guard: retained-topic-is-kept (I20)
async def delete(pool: PoolLoop, topic_id: TopicId, *, retain: bool, topic: str = "") -> None:
    async with pool.topic_locks.hold(topic_id):
        slices = pool.state.topic_slices(topic_id)
        if retain:
            for value in slices:
                async with pool.lock.shared():
                    await _change(pool, value.name, _retaining(pool))
            if any(is_moving(state) for value in slices for state in value.partitions):
                async with pool.lock.shared():  # the move goes on, and needs a leader
                    await pool.evaluate(topics=(topic_id,))
            return
        if topic and not slices:
            await _take_in(pool, topic_id)  # some may have been put back
        async with pool.lock.shared():
            await delete_for_good(pool, topic_id, topic)


async def choose_leaders(
    pool: PoolLoop, topic_id: TopicId, choices: tuple[LeaderChoice, ...]
) -> None:
    """Store leader choices; drop those that no longer fit the partition.

    The election waits until that broker has reported its log, so that the loss is known.
    """
    async with pool.lock:
        states = {
            state.partition: state
            for value in pool.state.topic_slices(topic_id)
            for state in value.partitions
        }
        for choice in choices:
            state = states.get(choice.partition)
            if state is not None and is_chosen(choice, state) and choice.leader in state.replicas:
                pool.state.choices[topic_id, choice.partition] = choice
        await pool.evaluate(topics=(topic_id,))
    pool.notify_brokers()


async def find_slices(pool: PoolLoop, topic_id: TopicId) -> None:
    """Load slices that were missing and have been restored (S12).

    If they are from an old backup, what is known of their epochs shows it (S17).
    """
    async with pool.topic_locks.hold(topic_id):
        await _take_in(pool, topic_id)


async def _take_in(pool: PoolLoop, topic_id: TopicId) -> None:
    """Load restored slices; the list, for which no other command waits, only says what to read.

    Requires: the caller holds the topic.
    """
    if pool.image.was_deleted(topic_id):
        return  # every full push of this term says so first
    listed = await pool.slice_store.find(pool.state.pool, topic_id)
    if not any(value.name not in pool.state.slices for value in listed):
        return
    async with pool.lock:
        for each in listed:
            if each.name in pool.state.slices or topic_id in pool.state.tombstones:
                continue
            value = await pool.slice_store.read(each)
            if value is None:
                continue
            await _confirm_epochs(pool, value)
            pool.state.record_put_back(value)
            pool.load_slice(value)
            pool.is_dirty = True


async def _confirm_epochs(pool: PoolLoop, value: PartitionSlice) -> None:
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
        record = pool.state.brokers.get(broker_id)
        if record is not None and epoch > record.broker_epoch:
            await pool.slice_store.confirm_broker(record)


def _ever_had_slices(pool: PoolLoop, topic_id: TopicId, count: int) -> bool:
    was_deleted = pool.image.was_deleted(topic_id)  # brokers are told so for ever
    return was_deleted or pool.state.is_reported(topic_id, range(count))


def _check_present(topic: TopicState, slices: list[PartitionSlice]) -> None:
    if not slices:
        raise SliceMissing(
            f"topic {topic.topic}: PartitionSlice objects are missing (topic ID"
            f" {topic.topic_id}): restore them, or delete the Topic and create it again as an"
            " empty topic; the old records are erased only if deletionPolicy is Delete and an"
            " operator runs when the Topic is deleted, otherwise they stay on the brokers'"
            " disks"
        )


async def _change(pool: PoolLoop, name: str, decide: Decide) -> None:
    value = pool.state.slices.get(name)
    if value is None or await pool.slice_store.change(value, decide) is None:
        raise SliceMissing(f"PartitionSlice {name} is missing: restore it")


async def _adopt(
    pool: PoolLoop,
    value: PartitionSlice,
    topic: TopicState,
    object_name: str,
    deletion_policy: str,
) -> None:
    """Adopt retained slices for a Topic that was applied again.

    The Topic may have another metadata.name. Id, epochs and data stay; invalid entries stay
    invalid.
    """
    updating = _updating(pool, topic, deletion_policy)

    def adopting(stored: PartitionSlice) -> PartitionSlice:
        eligibility = pool.state.eligibility()
        after = updating(stored)
        # Who led for a move is granted it again: a broker serves from that epoch on.
        partitions = tuple(
            _resigned(after.topic, state, eligibility) if state.has_leader else state
            for state in after.partitions
        )
        return replace(after, is_retained=False, topic_object=object_name, partitions=partitions)

    await _change(pool, value.name, adopting)


# guard: same-topic-is-not-written (I21)
def _updating(pool: PoolLoop, topic: TopicState, deletion_policy: str | None) -> Decide:
    def decide(stored: PartitionSlice) -> PartitionSlice:
        wanted = replace(
            stored.topic,
            config=dict(topic.config),
            replication_factor=topic.replication_factor,
        )
        policy = deletion_policy or stored.deletion_policy
        if wanted == stored.topic and policy == stored.deletion_policy:
            return stored
        eligibility = pool.state.eligibility()
        min_insync = effective_min_insync(wanted)
        partitions = tuple(
            with_min_insync(wanted, state, eligibility, min_insync) for state in stored.partitions
        )
        return replace(stored, topic=wanted, deletion_policy=policy, partitions=partitions)

    return decide


def _retaining(pool: PoolLoop) -> Decide:
    def decide(stored: PartitionSlice) -> PartitionSlice:
        if stored.is_retained:
            return stored
        eligibility = pool.state.eligibility()
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
