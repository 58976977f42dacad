"""When a leader waits for nothing: else a partition that nobody looks at would stay as it is."""

import itertools

import pytest
from tidemark_broker.replication.core.settled import is_settled
from tidemark_protocol.ids import Offset

from tests.unit.broker.replication.core.leaders import (
    LAG_MS,
    START_MS,
    a_leader,
    a_state,
    fetches,
    proposes,
)

LATER_MS = START_MS + 100 * LAG_MS


def test_it_is_settled_once_all_members_have_all_that_there_is() -> None:
    leader = a_leader()
    assert not is_settled(leader)  # it has heard of nobody in its epoch
    fetches(leader, 2, 100)
    assert not is_settled(leader)
    fetches(leader, 3, 100)
    assert is_settled(leader)
    leader.on_append(Offset(101), START_MS)
    assert not is_settled(leader)
    fetches(leader, 2, 101)
    assert not is_settled(leader)  # nobody has evicted broker 3 so far
    fetches(leader, 3, 101)
    assert is_settled(leader)


def test_it_is_not_while_a_replica_is_not_in_sync() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    assert not is_settled(leader)


def test_it_is_not_while_another_life_of_a_member_fetches() -> None:
    """S2: nobody feeds its entry any more, and only a tick says so where it may not join yet."""
    leader = a_leader()
    fetches(leader, 2, 100)
    fetches(leader, (3, 14), 100)
    assert not is_settled(leader)
    assert leader.on_tick(START_MS + 1) == (proposes(1, 2),)


def test_it_is_not_while_a_proposal_is_under_way() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    assert fetches(leader, 3, 100) == (proposes(1, 2, 3),)
    assert not is_settled(leader)
    leader.on_state(a_state((1, 2, 3), partition_epoch=21), START_MS)
    assert is_settled(leader)


@pytest.mark.parametrize("in_sync", [(1, 2, 3), (1, 2), (1, 2, (3, 14))])
def test_time_alone_changes_nothing_at_a_settled_leader(in_sync: tuple[int, ...]) -> None:
    for ends in itertools.product((99, 100, 101), repeat=2):
        for lives in itertools.product((12, 15), (13, 14)):
            leader = a_leader(in_sync, log_end=101, high_watermark=99)
            for number, (end, life) in enumerate(zip(ends, lives, strict=True), 2):
                fetches(leader, (number, life), end)
            if is_settled(leader):
                assert leader.on_pulse(LATER_MS) == leader.on_tick(LATER_MS) == ()
