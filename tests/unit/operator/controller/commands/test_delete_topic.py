"""The decisions that retain or erase a topic, and that finish deletions later."""

from tidemark_operator.controller.commands.create_topic import delete
from tidemark_operator.controller.commands.delete_topic import is_due, sweep
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    Deferred,
    DeleteSlices,
    Evaluate,
    FindSlices,
    RemoveTombstones,
    StoreTombstone,
    Turn,
)
from tidemark_operator.controller.core.pool_state import PoolState

from tests.support.command_player import SLICE, hear_all, play, pool_state, slice_of
from tests.support.controller_values import TOPIC_ID, partition

LED = partition("0@7 1@7", leader="0@7")
MOVING = partition("0@7 1@7", leader="0@7", adding=(2,))


def test_data_that_is_retained_loses_its_leader_in_one_write_for_each_slice() -> None:
    pool = pool_state(slice_of(LED))
    played = play(pool, delete(pool, TOPIC_ID, retain=True))
    assert played.kinds == [Turn, ChangeSlice]
    [value] = played.written
    assert (value.is_retained, value.partitions[0].has_leader) == (True, False)
    assert play(pool, delete(pool, TOPIC_ID, retain=True)).written == []


def test_retained_data_that_moves_is_evaluated_because_it_needs_a_leader() -> None:
    pool = pool_state(slice_of(MOVING))
    played = play(pool, delete(pool, TOPIC_ID, retain=True))
    assert played.kinds == [Turn, ChangeSlice, Turn, Evaluate]


def test_the_deletion_record_is_stored_before_any_slice_is_deleted() -> None:
    pool = pool_state(slice_of(LED))
    value = pool.slices[SLICE]
    played = play(pool, delete(pool, TOPIC_ID, retain=False))
    tombstone, _ = pool.tombstones[TOPIC_ID]
    assert played.decisions == [Turn.SHARED, StoreTombstone(tombstone), DeleteSlices((value,))]
    assert tombstone.covers(value)
    assert (dict(pool.slices), pool.leftovers) == ({}, {})


def test_nothing_changes_if_the_deletion_record_cannot_be_stored() -> None:
    pool = pool_state(slice_of(LED))
    played = play(pool, delete(pool, TOPIC_ID, retain=False), deferred=[f"deleted.{TOPIC_ID}"])
    assert isinstance(played.error, Deferred)
    assert played.kinds == [Turn, StoreTombstone]
    assert (list(pool.slices), pool.tombstones) == ([SLICE], {})


def test_a_topic_without_slices_is_looked_for_and_its_name_is_recorded() -> None:
    pool = pool_state()
    played = play(pool, delete(pool, TOPIC_ID, retain=False, topic="orders"))
    assert played.kinds == [FindSlices, Turn, StoreTombstone, DeleteSlices]
    assert pool.tombstones[TOPIC_ID][0].topic == "orders"
    again = play(pool, delete(pool, TOPIC_ID, retain=False, topic="orders"))
    assert again.decisions == [Turn.SHARED]


def with_leftover() -> PoolState:
    pool = pool_state(slice_of(LED))
    play(pool, delete(pool, TOPIC_ID, retain=False), deferred=[SLICE])
    assert list(pool.leftovers) == [SLICE]
    return pool


def test_a_sweep_deletes_slices_before_the_record_that_all_brokers_applied() -> None:
    pool = with_leftover()
    assert is_due(pool)
    value, (tombstone, _) = pool.leftovers[SLICE], pool.tombstones[TOPIC_ID]
    played = play(pool, sweep(pool))
    assert played.decisions == [DeleteSlices((value,)), RemoveTombstones(())]
    assert not is_due(pool)
    hear_all(pool)
    assert is_due(pool)
    played = play(pool, sweep(pool))
    assert played.decisions == [DeleteSlices(()), RemoveTombstones((tombstone,))]
    assert not is_due(pool)


def test_a_record_stays_as_long_as_a_slice_of_its_topic() -> None:
    pool = with_leftover()
    hear_all(pool)
    played = play(pool, sweep(pool), deferred=[SLICE])
    assert played.decisions[1:] == [RemoveTombstones(())]
    assert TOPIC_ID in pool.tombstones
