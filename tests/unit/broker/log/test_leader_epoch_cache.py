"""Kafka's rules and test vectors for the leader epoch cache."""

import pytest
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs

# Kafka's PartitionTest.testLastFetchedOffsetValidation; the leader's epoch 10 is empty.
HISTORY = ((0, 0), (3, 2), (4, 8), (7, 13), (9, 14), (10, 17))
LOG_END_OFFSET = 17


def divergence(epochs: LeaderEpochs, last_fetched_epoch: int, fetch_offset: int):
    """The leader's check of a fetch: what it would answer, None for no divergence."""
    end = epochs.end_offset_for(last_fetched_epoch, LOG_END_OFFSET)
    assert end is not None
    return end if end[0] < last_fetched_epoch or end[1] < fetch_offset else None


@pytest.mark.parametrize(
    ("last_fetched_epoch", "fetch_offset", "diverging"),
    [
        (2, 5, (0, 2)),
        (0, 4, (0, 2)),
        (6, 6, (4, 13)),
        (5, 9, (4, 13)),
        (10, 18, (10, 17)),
        (0, 2, None),
        (7, 14, None),
        (9, 17, None),
        (10, 17, None),
    ],
)
def test_end_offset_for_gives_the_divergence_that_kafka_gives(
    last_fetched_epoch, fetch_offset, diverging
):
    assert divergence(LeaderEpochs(HISTORY), last_fetched_epoch, fetch_offset) == diverging


def test_an_epoch_above_the_latest_is_undefined():
    assert LeaderEpochs(HISTORY).end_offset_for(11, LOG_END_OFFSET) is None


def test_no_epoch_and_no_history_are_undefined():
    assert LeaderEpochs(HISTORY).end_offset_for(-1, LOG_END_OFFSET) is None
    assert LeaderEpochs().end_offset_for(0, LOG_END_OFFSET) is None


@pytest.mark.parametrize(
    ("last_fetched_epoch", "fetch_offset", "diverging"),
    [(2, 8, (2, 4)), (0, 4, None), (3, 5, None), (4, 20, (4, 13))],
)
def test_end_offset_for_after_the_log_start_moved_into_an_epoch(
    last_fetched_epoch, fetch_offset, diverging
):
    epochs = LeaderEpochs(HISTORY)
    assert epochs.truncate_from_start(5)
    assert epochs.entries[0] == (3, 4)
    assert divergence(epochs, last_fetched_epoch, fetch_offset) == diverging


def test_assign_drops_what_contradicts_it():
    epochs = LeaderEpochs(((1, 0), (2, 10), (5, 20)))
    assert epochs.assign(3, 15)
    assert epochs.entries == ((1, 0), (2, 10), (3, 15))
    assert epochs.assign(4, 15)
    assert epochs.entries == ((1, 0), (2, 10), (4, 15))


def test_assigning_the_latest_epoch_again_changes_nothing():
    epochs = LeaderEpochs(((1, 0),))
    assert not epochs.assign(1, 5)
    assert epochs.entries == ((1, 0),)


def test_assigning_the_latest_epoch_at_a_lower_offset_moves_it_down():
    epochs = LeaderEpochs(((1, 0), (2, 9)))
    assert epochs.assign(2, 7)
    assert epochs.entries == ((1, 0), (2, 7))


def test_truncation_from_the_end_drops_epochs_that_start_there():
    epochs = LeaderEpochs(HISTORY)
    assert epochs.truncate_from_end(14)
    assert epochs.entries == HISTORY[:4]
    assert not epochs.truncate_from_end(14)


def test_truncation_from_the_start_keeps_the_epoch_of_the_last_record_before():
    epochs = LeaderEpochs(HISTORY)
    assert epochs.truncate_from_start(13)
    assert epochs.entries == ((4, 12), (7, 13), (9, 14), (10, 17))
    assert not epochs.truncate_from_start(13)


def test_where_no_record_was_before_nothing_goes():
    epochs = LeaderEpochs(((3, 5), (4, 8)))
    assert not epochs.truncate_from_start(5)
    assert not LeaderEpochs(HISTORY).truncate_from_start(0)
    assert epochs.entries == ((3, 5), (4, 8))


def test_the_epoch_at_an_offset_is_the_one_that_began_before_it():
    epochs = LeaderEpochs(((1, 5), (3, 9)))
    assert [epochs.epoch_at(offset) for offset in (4, 5, 8, 9, 100)] == [-1, 1, 1, 3, 3]
    assert (epochs.start_offset_of(3), epochs.start_offset_of(2)) == (9, None)


def test_negative_epochs_and_offsets_are_our_own_mistake():
    with pytest.raises(ValueError, match="epoch -1"):
        LeaderEpochs().assign(-1, 0)
