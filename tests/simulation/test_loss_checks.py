"""The judge of what a last resort cost, by what the controller recorded."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_protocol.controller_messages import CommittedTruncation
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset

from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.loss_checks import LossChecker
from tests.simulation.checks.violations import Violation
from tests.support.log_fixtures import TOPIC_ID

ELECTED = UncleanElection(0, UncleanCause.UNCLEAN, LeaderEpoch(5), BrokerId(2), Offset(15))


def a_slice(unclean_election: UncleanElection) -> Any:
    return SimpleNamespace(
        name="orders",
        topic=SimpleNamespace(topic_id=TOPIC_ID),
        recoveries=(unclean_election,),
        unclean_election_of=lambda number: unclean_election,
    )


def conclude(
    unclean_election: UncleanElection,
    *,
    begun_anew_at: int | None = None,
    aged_to: int | None = None,
) -> None:
    """Who led in epoch 4 had committed all below 35, and lived on; nobody else had more than 15."""
    state: Any = SimpleNamespace(partition=0, leader_epoch=LeaderEpoch(5), leader=BrokerId(2))
    checker, previous = LossChecker(Counter()), object()
    checker.on_elected(a_slice(ELECTED), state)
    checker.on_begun(a_slice(ELECTED), 0, LeaderEpoch(5), Offset(15))
    log: Any = CommittedLog("orders-0")
    log.record_led(4, 35, previous)
    log.end_offset = 35
    log.begin_history(5, 15)
    if begun_anew_at is not None:
        log.begun_anew[previous] = begun_anew_at
    if aged_to is not None:
        log.aged_to[previous] = aged_to
    checker.conclude(a_slice(unclean_election), {(TOPIC_ID, 0): log}, [previous])


def cut_at(offset: int) -> UncleanElection:
    """As that follower tells what it cut in a log from 10 to 40."""
    epochs = LeaderEpoch(5), Offset(offset), LeaderEpoch(4)
    return ELECTED.with_truncations(
        [CommittedTruncation(TOPIC_ID, 0, *epochs, Offset(40), Offset(35))]
    )


def test_all_that_was_cut_by_whoever_lived_on_is_recorded() -> None:
    conclude(cut_at(15))
    for unclean_election in (ELECTED, cut_at(16), cut_at(0)):
        with pytest.raises(Violation, match="loss"):
            conclude(unclean_election)


@pytest.mark.parametrize("leader_start", [30, 50])
def test_who_begins_anew_where_its_leaders_log_starts_tells_of_no_more_than_past_that(
    leader_start: int,
) -> None:
    """S32: it was away while retention moved its successor's log start past where they part."""
    recorded = cut_at(leader_start) if leader_start < 35 else ELECTED
    conclude(recorded, begun_anew_at=leader_start)
    with pytest.raises(Violation, match="20 to 20 committed records were lost"):
        conclude(recorded)
    if leader_start < 35:
        with pytest.raises(Violation, match="5 to 20"):
            conclude(ELECTED, begun_anew_at=leader_start)


def test_nobody_tells_of_what_was_too_old_before_it_was_cut() -> None:
    """Seed 46009566: retention of half a second took all that the unclean election would have."""
    conclude(ELECTED, aged_to=35)
    conclude(cut_at(30), aged_to=30)
    with pytest.raises(Violation, match="5 to 20"):
        conclude(ELECTED, aged_to=30)
