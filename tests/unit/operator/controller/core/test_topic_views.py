"""Which view of a topic is shown, and when it is made again."""

from dataclasses import replace

from tidemark_operator.api.partition_slice import PARTITIONS_PER_SLICE, PartitionSlice
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.topic_views import MAX_LEADERLESS_SENTENCES, TopicViews
from tidemark_operator.controller.core.views import TopicView
from tidemark_protocol.ids import TopicId

from tests.support.command_player import pool_state, slice_of
from tests.support.controller_values import TOPIC_ID, partition

LED = partition("0@7 1@7 2@7", leader="0@7")
LEADERLESS = partition("", eligible="0@7")


def numbered(value: PartitionSlice, *, count: int) -> PartitionSlice:
    first = value.index * PARTITIONS_PER_SLICE
    return replace(
        value,
        topic=replace(value.topic, partition_count=count),
        partitions=tuple(
            replace(state, partition=first + n) for n, state in enumerate(value.partitions)
        ),
    )


def view_of(pool: PoolState, *withheld: str) -> TopicView:
    view = TopicViews(pool).of(TOPIC_ID, set(withheld))
    assert view is not None
    return view


def test_a_view_is_kept_until_a_slice_of_its_topic_changes() -> None:
    pool = pool_state(slice_of(LED))
    views = TopicViews(pool)
    made = views.of(TOPIC_ID, set())
    assert views.of(TOPIC_ID, set()) is made
    pool.record_durable(slice_of(partition("0@7 1@7", leader="0@7", partition_epoch=10)), version=1)
    again = views.of(TOPIC_ID, set())
    assert again is not None
    assert again.partitions[0].partition_epoch == 10


def test_a_view_that_depends_on_more_than_slices_is_not_kept() -> None:
    views = TopicViews(pool_state(slice_of(LEADERLESS)))
    assert views.of(TOPIC_ID, set()) is not None
    assert len(views) == 0
    views = TopicViews(pool_state(slice_of(LED)))
    views.of(TOPIC_ID, {"orders-0"})
    assert len(views) == 0
    views.of(TOPIC_ID, {"other-0"})
    assert len(views) == 1


def test_a_topic_without_slices_has_no_view_and_a_forgotten_one_is_not_kept() -> None:
    pool = pool_state(slice_of(LED))
    views = TopicViews(pool)
    assert views.of(TopicId("unknown"), set()) is None
    views.of(TOPIC_ID, set())
    views.forget(TOPIC_ID)
    assert len(views) == 0
    views.of(TOPIC_ID, set())
    del pool.slices["orders-0"]
    assert (views.of(TOPIC_ID, set()), len(views)) == (None, 0)


def test_missing_and_unreadable_slices_are_told_apart() -> None:
    count = 2 * PARTITIONS_PER_SLICE + 1
    first = numbered(slice_of(LED), count=PARTITIONS_PER_SLICE)
    last = numbered(slice_of(LED, name="orders-2"), count=count)
    view = view_of(pool_state(first, last), "orders-0")
    assert view.missing_slices == ("orders-1",)
    assert view.slice_names == ("orders-0", "orders-2")
    assert [state.partition for state in view.partitions] == [2 * PARTITIONS_PER_SLICE]
    assert view.topic.partition_count == count


def test_each_leaderless_partition_has_a_sentence_up_to_a_limit() -> None:
    few = numbered(slice_of(LED, LEADERLESS), count=2)
    [notice] = view_of(pool_state(few)).notices
    assert notice.startswith("partition 1 has no leader")
    many = numbered(slice_of(*[LEADERLESS] * (MAX_LEADERLESS_SENTENCES + 1)), count=21)
    assert len(view_of(pool_state(many)).notices) == MAX_LEADERLESS_SENTENCES


def test_retained_data_without_a_leader_needs_no_sentence() -> None:
    view = view_of(pool_state(slice_of(LEADERLESS, is_retained=True)))
    assert (view.is_retained, view.notices) == (True, ())
