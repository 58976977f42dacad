"""The decisions that create, restore and change the slices of a topic, in their order."""

from dataclasses import replace

import pytest
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.partition_slice import PARTITIONS_PER_SLICE, PartitionSlice
from tidemark_operator.controller.commands import create_topic as topics
from tidemark_operator.controller.commands.topic_growth import SliceMissing
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    ChangeSlices,
    ConfirmBroker,
    CreateSlice,
    Decision,
    Deferred,
    Evaluate,
    FindSlices,
    LoadSlice,
    NotifyBrokers,
    ReadSlice,
    Steps,
    Turn,
)
from tidemark_operator.controller.core.new_partitions import NoLiveReplica
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_protocol.ids import BrokerId

from tests.support.command_player import SLICE, hear_all, play, pool_state, slice_of
from tests.support.controller_values import REPLICA, TOPIC_ID, partition, topic

LED = partition("0@7 1@7", leader="0@7")
REPLICAS = (BrokerId(0), BrokerId(1), BrokerId(2))
IN_TURN, ALONE, WITHOUT_TURN = Turn.SHARED, Turn.ALONE, Turn.NONE


def creation(pool: PoolState, count: int = 1, *, had_slices: bool = False) -> Steps[None]:
    return topics.create(
        pool,
        topic(),
        (REPLICAS,) * count,
        object_name="orders",
        deletion_policy="Retain",
        had_slices=had_slices,
    )


def of_topic(value: PartitionSlice) -> PartitionSlice:
    """With the partition count that it has."""
    return replace(value, topic=replace(value.topic, partition_count=len(value.partitions)))


def test_a_topic_of_one_slice_is_one_write_in_a_turn_with_others() -> None:
    pool = pool_state()
    played = play(pool, creation(pool))
    assert played.decisions == [IN_TURN, CreateSlice(played.written[0])]
    assert played.result is None
    assert [value.name for value in played.written] == [SLICE]


def test_each_further_slice_is_a_turn_and_the_counts_come_last() -> None:
    pool = pool_state()
    played = play(pool, creation(pool, PARTITIONS_PER_SLICE + 1))
    expected = [Turn, CreateSlice, Turn, CreateSlice, Turn, ChangeSlices, Turn]
    assert played.kinds == expected
    assert played.result is None
    assert [value.topic.partition_count for value in pool.topic_slices(TOPIC_ID)] == (
        [PARTITIONS_PER_SLICE + 1] * 2
    )


def test_an_interrupted_creation_leaves_a_shorter_topic_that_the_next_one_completes() -> None:
    pool = pool_state()
    played = play(pool, creation(pool, PARTITIONS_PER_SLICE + 1), deferred=["orders-1"])
    assert isinstance(played.error, Deferred)
    [first] = pool.topic_slices(TOPIC_ID)
    assert first.topic.partition_count == len(first.partitions)
    hear_all(pool)
    played = play(pool, creation(pool, PARTITIONS_PER_SLICE + 1))
    assert [value.name for value in played.written] == ["orders-1", SLICE]


def test_nothing_is_written_without_a_live_replica() -> None:
    pool = pool_state(live=(), fenced=(0, 1, 2))
    played = play(pool, creation(pool))
    assert played.decisions == [IN_TURN]
    assert isinstance(played.error, NoLiveReplica)


def test_slices_that_existed_once_are_looked_for_without_a_turn() -> None:
    pool = pool_state()
    played = play(pool, creation(pool, had_slices=True))
    assert played.decisions == [IN_TURN, WITHOUT_TURN, FindSlices(TOPIC_ID), ALONE]
    assert isinstance(played.error, SliceMissing)


def test_retained_slices_are_adopted_alone_and_evaluated() -> None:
    pool = pool_state(of_topic(slice_of(LED, is_retained=True)))
    played = play(pool, creation(pool, had_slices=True))
    assert played.kinds == [Turn, Turn, Turn, ChangeSlice, Evaluate, Turn]
    assert played.decisions[:3] == [IN_TURN, WITHOUT_TURN, ALONE]
    [value] = played.written
    assert (value.is_retained, value.partitions[0].has_leader) == (False, False)


def test_a_restored_slice_is_read_and_its_later_broker_epochs_are_confirmed() -> None:
    pool = pool_state()
    restored = slice_of(partition("0@8 1@7", leader="0@8"))
    played = play(pool, topics.find_slices(pool, TOPIC_ID), stored=[restored])
    expected: list[Decision] = [
        FindSlices(TOPIC_ID),
        ALONE,
        ReadSlice(restored),
        ConfirmBroker(pool.brokers[BrokerId(0)]),
        LoadSlice(restored),
        WITHOUT_TURN,
    ]
    assert played.decisions == expected


def test_known_slices_are_not_read_again_and_take_no_turn() -> None:
    pool = pool_state(slice_of(LED))
    played = play(pool, topics.find_slices(pool, TOPIC_ID), stored=[slice_of(LED)])
    assert played.decisions == [FindSlices(TOPIC_ID)]


def test_an_update_writes_each_slice_in_a_turn_and_then_evaluates() -> None:
    pool = pool_state(slice_of(LED))
    changed = replace(topic(), config={"retention.ms": "1000"})
    played = play(pool, topics.update(pool, changed, deletion_policy="Delete"))
    assert played.kinds == [Turn, ChangeSlice, Turn, Evaluate]
    [value] = played.written
    assert (value.topic.config, value.deletion_policy) == (changed.config, "Delete")
    assert play(pool, topics.update(pool, changed, deletion_policy="Delete")).written == []


def test_a_topic_without_slices_is_unknown() -> None:
    pool = pool_state()
    for steps in (
        topics.update(pool, topic(), deletion_policy=None),
        topics.add_partitions(pool, TOPIC_ID, (REPLICAS,), first=0),
    ):
        with pytest.raises(topics.TopicUnknown):
            _ = play(pool, steps).result


def test_partitions_are_added_to_the_last_slice_in_turns() -> None:
    pool = pool_state(of_topic(slice_of(LED)))
    hear_all(pool)
    played = play(pool, topics.add_partitions(pool, TOPIC_ID, (REPLICAS,), first=1))
    assert played.kinds == [Turn, ChangeSlice, Turn]
    assert pool.slices[SLICE].numbers == (0, 1)


def test_a_choice_that_fits_is_kept_and_evaluated() -> None:
    leaderless = partition("", eligible="0@6")
    pool = pool_state(slice_of(leaderless))
    choices = (
        LeaderChoice(0, BrokerId(1), leaderless.leader_epoch),
        LeaderChoice(0, BrokerId(9), leaderless.leader_epoch),
        LeaderChoice(5, BrokerId(1), leaderless.leader_epoch),
    )
    played = play(pool, topics.choose_leaders(pool, TOPIC_ID, choices))
    expected: list[Decision] = [Evaluate((TOPIC_ID,)), NotifyBrokers()]
    assert played.decisions == expected
    assert pool.choices == {REPLICA: choices[0]}
