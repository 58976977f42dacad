"""The decisions of elections that a client requests."""

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.controller.commands.elect_leaders import elect_preferred, elect_unclean
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    Decision,
    Deferred,
    Evaluate,
    NotifyBrokers,
)
from tidemark_operator.controller.core.unclean_recovery import ANY_BROKER
from tidemark_protocol.error_codes import ErrorCode

from tests.support.command_player import SLICE, play, pool_state, slice_of
from tests.support.controller_values import REPLICA, TOPIC_ID, partition

NOT_PREFERRED = partition("0@7 1@7", leader="1@7")
WITHOUT = partition("", eligible="0@6")


def test_the_preferred_leader_is_elected_in_one_write() -> None:
    pool = pool_state(slice_of(NOT_PREFERRED))
    played = play(pool, elect_preferred(pool, TOPIC_ID, [0, 5]))
    assert played.kinds == [ChangeSlice, NotifyBrokers]
    assert [value.partitions[0].leader for value in played.written] == [0]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert played.result == {0: ErrorCode.NONE, 5: unknown}


def test_a_partition_that_nobody_asks_for_and_retained_data_are_not_written() -> None:
    for value, numbers in (
        (slice_of(NOT_PREFERRED), [1]),
        (slice_of(NOT_PREFERRED, is_retained=True), [0]),
    ):
        pool = pool_state(value)
        played = play(pool, elect_preferred(pool, TOPIC_ID, numbers))
        assert played.kinds == [NotifyBrokers]
        assert set(played.result.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_deferred_election_is_an_error() -> None:
    pool = pool_state(slice_of(NOT_PREFERRED))
    played = play(pool, elect_preferred(pool, TOPIC_ID, [0]), deferred=[SLICE])
    assert isinstance(played.error, Deferred)


def test_an_unclean_election_is_a_choice_that_an_evaluation_follows() -> None:
    pool = pool_state(slice_of(WITHOUT), live=(1,), fenced=(0, 2))
    played = play(pool, elect_unclean(pool, TOPIC_ID, [0, 5]))
    expected: list[Decision] = [Evaluate((TOPIC_ID,)), NotifyBrokers()]
    assert played.decisions == expected
    assert pool.choices == {REPLICA: LeaderChoice(0, ANY_BROKER, WITHOUT.leader_epoch)}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert played.result == {0: ErrorCode.NONE, 5: unknown}


def test_no_unclean_election_under_a_leader_or_without_a_live_replica() -> None:
    pool = pool_state(slice_of(NOT_PREFERRED))
    played = play(pool, elect_unclean(pool, TOPIC_ID, [0]))
    assert played.result == {0: ErrorCode.ELECTION_NOT_NEEDED}
    pool = pool_state(slice_of(WITHOUT), live=(), fenced=(0, 1, 2))
    played = play(pool, elect_unclean(pool, TOPIC_ID, [0]))
    assert played.result == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert pool.choices == {}
