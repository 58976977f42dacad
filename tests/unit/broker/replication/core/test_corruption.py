"""A replica with a corrupt batch: when it is cut, may fetch, is complete again, or is alone."""

from dataclasses import replace

import pytest
from tidemark_broker.replication.core.corruption import Corruption, is_alone, is_in_no_set
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import PartitionState

from tests.unit.broker.replication.core.leaders import a_state, members

CORRUPT = BrokerId(2)
OUT = a_state((1, 3))  # no set names the replica
ELIGIBLE = replace(OUT, eligible_leaders=members((2, 7)))


def corruption(*, is_acknowledged: bool = True) -> Corruption:
    return Corruption(CORRUPT, Offset(50), "a reason", is_acknowledged=is_acknowledged)


def cut_at(shared_end: int, leader_epoch: int = 5) -> Corruption:
    cut = corruption()
    cut.cut(Offset(shared_end), LeaderEpoch(leader_epoch))
    return cut


@pytest.mark.parametrize(
    ("state", "is_acknowledged", "may_be"),
    [
        (OUT, True, True),
        (OUT, False, False),
        (a_state((1, 2, 3)), True, False),
        (ELIGIBLE, True, False),
        (a_state((1, (2, 99), 3)), True, False),  # in any broker epoch
        (None, True, False),
    ],
)
def test_log_is_cut_once_no_set_names_the_replica_and_the_controller_knows(
    state: PartitionState | None, is_acknowledged: bool, may_be: bool
) -> None:  # I6
    found = corruption(is_acknowledged=is_acknowledged)
    assert found.may_be_truncated(state) is may_be
    assert found.may_fetch(state, knows_what_is_shared=False) is may_be
    assert not found.may_fetch(state, knows_what_is_shared=True)


def test_log_is_cut_once_and_fetched_from_then_on_whatever_the_state() -> None:
    cut = cut_at(80)
    assert not cut.may_be_truncated(OUT)
    for state in (OUT, ELIGIBLE, None):
        assert cut.may_fetch(state, knows_what_is_shared=True)


@pytest.mark.parametrize(
    ("log_end", "leader_epoch", "is_over"),
    [(79, 5, False), (80, 5, True), (81, 5, True), (0, 6, True), (79, 4, False)],
)
def test_it_lasts_until_all_is_back_or_a_later_epoch_counts_no_earlier_fetch(
    log_end: int, leader_epoch: int, is_over: bool
) -> None:  # I10
    assert cut_at(80).is_over(Offset(log_end), LeaderEpoch(leader_epoch)) is is_over


def test_it_is_not_over_before_the_log_is_cut() -> None:
    assert not corruption().is_over(Offset(1000), LeaderEpoch(1000))


@pytest.mark.parametrize(
    ("shared_end", "leader_epoch", "valid_from"), [(60, 5, 80), (90, 5, 90), (60, 6, 60)]
)
def test_corruption_during_a_refetch_waits_for_what_the_first_one_lost(
    shared_end: int, leader_epoch: int, valid_from: int
) -> None:
    again = corruption()
    again.require_refetch(cut_at(80))
    again.cut(Offset(shared_end), LeaderEpoch(leader_epoch))
    assert again.valid_from == valid_from


@pytest.mark.parametrize("previous", [None, corruption()])
def test_earlier_corruption_that_was_never_cut_is_nothing_to_wait_for(
    previous: Corruption | None,
) -> None:
    again = corruption()
    again.require_refetch(previous)
    again.cut(Offset(60), LeaderEpoch(5))
    assert again.valid_from == 60


def test_replica_is_alone_while_no_set_names_another() -> None:
    assert is_alone(None, CORRUPT)
    assert is_alone(a_state((2,)), CORRUPT)
    assert is_alone(replace(a_state((2,)), eligible_leaders=members((2, 7))), CORRUPT)
    assert not is_alone(a_state((2, 3)), CORRUPT)
    assert not is_alone(replace(a_state((2,)), eligible_leaders=members(3)), CORRUPT)


def test_replica_is_in_a_set_under_any_broker_epoch() -> None:  # I6
    assert is_in_no_set(OUT, CORRUPT)
    assert not is_in_no_set(ELIGIBLE, CORRUPT)
    assert not is_in_no_set(a_state(((2, 99),)), CORRUPT)
