"""Partitions are added a slice at a time, and only to a topic that has all of its slices (S12)."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tidemark_operator.api.partition_slice import PARTITIONS_PER_SLICE, PartitionSlice
from tidemark_operator.controller.commands.topic_growth import (
    COUNTED_AT_ONCE,
    Growth,
    SliceMissing,
    change,
    check_complete,
    count_of,
    grow,
)
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    ChangeSlices,
    CreateSlice,
    Deferred,
    NotifyBrokers,
)
from tidemark_operator.controller.core.new_partitions import NoLiveReplica
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_protocol.ids import BrokerId

from tests.support.command_player import SLICE, Played, hear_all, play, pool_state, slice_of
from tests.support.controller_values import TOPIC_ID, partition, topic

LED = partition("0@7 1@7", leader="0@7")
REPLICAS = (BrokerId(0), BrokerId(1), BrokerId(2))


def growth(first: int, added: int) -> Growth:
    return Growth(topic(), (REPLICAS,) * added, first, "orders", "Retain")


def counting(value: PartitionSlice, count: int) -> PartitionSlice:
    return replace(value, topic=replace(value.topic, partition_count=count))


def grown_pool(*slices: PartitionSlice) -> PoolState:
    pool = pool_state(*slices)
    hear_all(pool)
    return pool


def full(index: int, count: int) -> PartitionSlice:
    first = index * PARTITIONS_PER_SLICE
    states = [replace(LED, partition=first + n) for n in range(PARTITIONS_PER_SLICE)]
    return counting(slice_of(*states, name=f"orders-{index}"), count)


def played_to_the_end(pool: PoolState, growing: Growth) -> Iterator[Played[bool]]:
    while True:
        played = play(pool, grow(pool, growing))
        yield played
        if played.result:
            return


def test_a_step_fills_the_last_slice_and_the_next_one_begins_another() -> None:
    pool = grown_pool(full(0, 127 + 1))
    last = counting(slice_of(*pool.slices[SLICE].partitions[:-1]), 127)
    pool = grown_pool(last)
    steps = list(played_to_the_end(pool, growth(127, 2)))
    assert [played.kinds for played in steps] == [[ChangeSlice], [CreateSlice], [ChangeSlices], []]
    assert [value.numbers[-1] for value in pool.topic_slices(TOPIC_ID)] == [127, 128]
    assert {value.topic.partition_count for value in pool.topic_slices(TOPIC_ID)} == {129}


def test_partitions_that_exist_already_are_not_added_again() -> None:
    pool = grown_pool(counting(slice_of(LED), 1))
    for _ in played_to_the_end(pool, growth(0, 3)):
        pass
    assert pool.slices[SLICE].numbers == (0, 1, 2)
    assert pool.slices[SLICE].partitions[0] == LED
    [played] = played_to_the_end(pool, growth(0, 2))
    assert (played.decisions, pool.slices[SLICE].topic.partition_count) == ([], 3)


def test_growth_of_a_known_topic_asks_for_reports_before_anything_is_written() -> None:
    pool = pool_state(counting(slice_of(LED), 1))
    played = play(pool, grow(pool, growth(1, 1)))
    assert played.decisions == [NotifyBrokers()]
    assert isinstance(played.error, NoLiveReplica)
    assert "brokers 0, 1, 2 have not reported" in str(played.error)
    assert pool.reports_wanted == 0


def test_counts_are_set_a_few_slices_at_a_time_and_a_deferred_write_is_an_error() -> None:
    slices = [full(index, 128 * (index + 1)) for index in range(COUNTED_AT_ONCE + 2)]
    pool = grown_pool(*slices)
    growing = growth(0, 128 * len(slices))
    deferred = play(pool, grow(pool, growing), deferred=["orders-1"])
    assert isinstance(deferred.error, Deferred)
    steps = list(played_to_the_end(pool, growing))
    assert [[value.index for value in played.written] for played in steps] == [[1, 16], []]


def test_growth_behind_partitions_that_do_not_exist_is_an_error() -> None:
    pool = grown_pool(counting(slice_of(LED), 1))
    with pytest.raises(SliceMissing, match="partitions from 1 on are missing"):
        _ = play(pool, grow(pool, growth(2, 1))).result


def test_a_topic_with_a_missing_slice_is_an_error_that_names_it() -> None:
    check_complete([])
    check_complete([full(0, 256), full(1, 256)])
    with pytest.raises(SliceMissing, match="PartitionSlice orders-1, orders-2 is missing"):
        check_complete([full(0, 257)])
    with pytest.raises(SliceMissing, match="PartitionSlice gone-0 is missing"):
        _ = play(pool_state(), change(pool_state(), "gone-0", lambda value: value)).result
    assert (count_of([]), count_of([full(0, 256), full(1, 256)])) == (0, 256)
