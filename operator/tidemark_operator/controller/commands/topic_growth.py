"""Add partitions to one topic, a slice at a time.

Slices are created one after the other and each says how many partitions there were up to it; once
all exist, all have the same count. Each step is made in a turn of the pool.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import TopicState

from tidemark_operator.api.partition_slice import PARTITIONS_PER_SLICE, PartitionSlice, slice_name
from tidemark_operator.api.unclean_election import UncleanElection
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    ChangeSlices,
    CreateSlice,
    Decide,
    Deferred,
    NotifyBrokers,
    Outcome,
    Steps,
)
from tidemark_operator.controller.core.new_partitions import (
    Beginning,
    NewPartition,
    NoLiveReplica,
    unheard,
)
from tidemark_operator.controller.core.pool_state import PoolState

Assignments = tuple[tuple[BrokerId, ...], ...]

COUNTED_AT_ONCE = 16


class SliceMissing(Exception):
    """An error: slices of a topic id that had them are missing (S12).

    Restore them, or delete the topic.
    """


@dataclass(slots=True)
class Growth:
    """The partitions that a topic is to have; some may exist already, if a response was lost."""

    topic: TopicState
    assignments: Assignments
    first: int  # partition of `assignments`
    object_name: str  # of its Topic
    deletion_policy: str
    is_new: bool | None = None  # the topic began with this; None: not known yet

    @property
    def count(self) -> int:
        return self.first + len(self.assignments)


def grow(pool: PoolState, growth: Growth) -> Steps[bool]:
    """Do one step; return whether nothing is left to do.

    Raises NoLiveReplica, SliceMissing, Deferred.
    """
    slices = pool.topic_slices(growth.topic.topic_id)
    check_complete(slices)
    done = count_of(slices)
    if done < growth.first:
        raise SliceMissing(
            f"topic {growth.topic.topic}: the PartitionSlice objects of partitions from"
            f" {done} on are missing: restore them"
        )
    if done >= growth.count:
        return (yield from _count(pool, slices, done))
    topic, prefix = growth.topic, growth.object_name
    if slices:
        # What their records were promised holds for the whole topic.
        stored = slices[0]
        topic = replace(topic, commit_rule=stored.topic.commit_rule, flush=stored.topic.flush)
        prefix = stored.name_prefix
    left = growth.assignments[done - growth.first :]
    part = left[: PARTITIONS_PER_SLICE - done % PARTITIONS_PER_SLICE]
    if growth.is_new is None:  # before anything is written: whether all of them may begin
        growth.is_new = not slices
        yield from _check_may_begin(pool, topic, done, left, is_new=growth.is_new)
    elif not growth.is_new:
        yield from _check_all_reported(pool, topic, range(done, done + len(part)))
    name = slice_name(prefix, done // PARTITIONS_PER_SLICE)
    yield from _add(pool, growth, name, replace(topic, partition_count=done + len(part)), part)
    # A topic of one slice is done: its count is right.
    return not slices and len(part) == growth.count


def _add(
    pool: PoolState, growth: Growth, name: str, topic: TopicState, part: Assignments
) -> Steps[None]:
    """Add partitions to the slice of that name; `topic` has the count that there will be."""
    beginning = Beginning(pool, topic)
    numbers = range(topic.partition_count - len(part), topic.partition_count)
    new_partitions = tuple(
        beginning.of(number, to) for number, to in zip(numbers, part, strict=True)
    )
    existing = pool.slices.get(name)
    if existing is not None and existing.topic.topic_id == topic.topic_id:
        yield from change(pool, name, _appending(topic, new_partitions))
        return
    yield CreateSlice(
        PartitionSlice(
            pool=pool.pool,
            name=name,
            topic_object=growth.object_name,
            topic=topic,
            deletion_policy=growth.deletion_policy,
            is_retained=False,
            controller_epoch=pool.controller_epoch,
            partitions=tuple(each.partition for each in new_partitions),
            recoveries=_unclean_elections(new_partitions),
        )
    )


def _count(pool: PoolState, slices: list[PartitionSlice], count: int) -> Steps[bool]:
    """Set the count of some slices; return whether all have it.

    The next step finds missing ones.
    """
    others = [value for value in slices if value.topic.partition_count != count]
    some = others[:COUNTED_AT_ONCE]
    if some:
        outcome = yield ChangeSlices({value.name: _counting(count) for value in some})
        if not outcome.is_complete:
            raise Deferred(f"topic {some[0].topic.topic}: the partition count is not stored yet")
    return not others


def _check_may_begin(
    pool: PoolState, topic: TopicState, first: int, assignments: Assignments, *, is_new: bool
) -> Steps[None]:
    """Raise NoLiveReplica if new partitions cannot begin now."""
    if not is_new:  # a topic that begins has nothing on any disk
        yield from _check_all_reported(pool, topic, range(first, first + len(assignments)))
    beginning = Beginning(pool, topic)
    for number, replicas in enumerate(assignments, start=first):
        beginning.check(number, replicas)


def _check_all_reported(pool: PoolState, topic: TopicState, numbers: range) -> Steps[None]:
    """Raise NoLiveReplica until each live broker reported its logs; they are asked for that."""
    missing = unheard(pool, topic.topic_id, numbers)
    if missing is None:
        return
    pool.reports_wanted = max(pool.reports_wanted, missing.since_version)
    yield NotifyBrokers()
    raise NoLiveReplica(
        f"topic {topic.topic}: brokers {', '.join(map(str, missing.brokers))} have not"
        " reported their logs yet: new partitions wait for the reports"
    )


def count_of(slices: Collection[PartitionSlice]) -> int:
    return sum(len(value.partitions) for value in slices)


def check_complete(slices: list[PartitionSlice]) -> None:
    if not slices:
        return
    present = {value.index for value in slices}
    last = max(value.topic.partition_count for value in slices)
    missing = sorted(set(range(-(-last // PARTITIONS_PER_SLICE))) - present)
    if missing:
        names = ", ".join(slice_name(slices[0].name_prefix, index) for index in missing)
        raise SliceMissing(
            f"topic {slices[0].topic.topic}: PartitionSlice {names} is missing: restore it"
        )


def change(pool: PoolState, name: str, decide: Decide) -> Steps[None]:
    value = pool.slices.get(name)
    outcome = Outcome() if value is None else (yield ChangeSlice(value, decide))
    if name not in outcome.stored:
        raise SliceMissing(f"PartitionSlice {name} is missing: restore it")


def _appending(topic: TopicState, part: tuple[NewPartition, ...]) -> Decide:
    def decide(stored: PartitionSlice) -> PartitionSlice:
        present = set(stored.numbers)
        added = tuple(each for each in part if each.partition.partition not in present)
        if not added:
            return stored
        return replace(
            stored,
            topic=replace(stored.topic, partition_count=topic.partition_count),
            partitions=stored.partitions + tuple(each.partition for each in added),
            recoveries=stored.recoveries + _unclean_elections(added),
        )

    return decide


def _unclean_elections(part: tuple[NewPartition, ...]) -> tuple[UncleanElection, ...]:
    return tuple(each.unclean_election for each in part if each.unclean_election is not None)


def _counting(count: int) -> Decide:
    def decide(stored: PartitionSlice) -> PartitionSlice:
        if stored.topic.partition_count == count:
            return stored
        return replace(stored, topic=replace(stored.topic, partition_count=count))

    return decide
