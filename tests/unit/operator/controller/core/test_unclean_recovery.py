"""Who leads when no valid entry is live: whose report counts, whose choice, which log (S14)."""

from dataclasses import replace

import pytest
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.unclean_election import UncleanCause
from tidemark_operator.controller.core.unclean_recovery import (
    ANY_BROKER,
    NO_REPORTS,
    Reports,
    UncleanRecovery,
    is_chosen,
    needs_reports,
    unclean_recovery,
)
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_values import (
    REPLICA,
    dead,
    eligibility,
    member,
    partition,
    report,
    reports,
    topic,
)

UNCLEAN_ALLOWED = topic(**{"unclean.leader.election.enable": "true"})
STATE = partition("", leader_epoch=6)
WAITING = partition("", eligible="0@1", leader_epoch=6)
TWO_LIVE = eligibility(dead("0@1"), "1@12", "2@13")


def choice(leader: int, leader_epoch: int = 6) -> LeaderChoice:
    return LeaderChoice(0, BrokerId(leader), LeaderEpoch(leader_epoch))


def recovery(
    found: Reports, *, of: TopicState | None = None, chosen: LeaderChoice | None = None
) -> UncleanRecovery | None:
    return unclean_recovery(of or topic(), WAITING, TWO_LIVE, found, chosen)


def test_a_report_without_the_replica_is_an_empty_log_and_a_failed_one_is_none() -> None:
    failed = Reports({BrokerId(0): {REPLICA: report(5, 70, failed=True)}})
    found = reports(b0=(5, 70), b1=None)
    ends = [found.log_end(BrokerId(number), REPLICA) for number in range(3)]
    assert ends == [(5, 70), (-1, 0), None]
    assert failed.log_end(BrokerId(0), REPLICA) is None


def test_an_unclean_election_takes_the_longest_log_among_the_live_by_epoch_first() -> None:
    found = recovery(reports(b1=(5, 10), b2=(4, 99)), of=UNCLEAN_ALLOWED)
    assert found == UncleanRecovery(
        member("1@12"), UncleanCause.UNCLEAN, Offset(10), unheard=(BrokerId(0),)
    )
    equal = recovery(reports(b1=(5, 10), b2=(5, 10)), of=UNCLEAN_ALLOWED)
    assert equal == found


def test_an_unclean_election_waits_for_each_live_log() -> None:
    assert recovery(reports(b1=(5, 10)), of=UNCLEAN_ALLOWED) is None
    assert recovery(reports(b1=(5, 10), b2=(4, 99))) is None  # nobody allowed it
    found = recovery(reports(b1=(5, 10), b2=(4, 99)), chosen=choice(ANY_BROKER))
    assert found is not None
    assert (found.leader, found.cause) == (member("1@12"), UncleanCause.CHOSEN)


def test_the_chosen_broker_leads_once_it_is_live_and_has_reported() -> None:
    found = recovery(reports(b2=(4, 7)), chosen=choice(2))
    assert found is not None
    assert (found.leader, found.cause, found.unheard) == (
        member("2@13"),
        UncleanCause.CHOSEN,
        (0, 1),
    )
    assert recovery(NO_REPORTS, chosen=choice(2)) is None
    assert recovery(reports(b0=(5, 70)), chosen=choice(0)) is None  # not live
    assert recovery(reports(b2=(4, 7)), chosen=choice(2, leader_epoch=5)) is None


def test_a_choice_counts_in_its_leader_epoch_while_nobody_leads() -> None:
    assert is_chosen(choice(2), STATE)
    assert not is_chosen(choice(2, leader_epoch=7), STATE)
    assert not is_chosen(choice(2), partition("0@1", leader="0@1", leader_epoch=6))


@pytest.mark.parametrize(
    ("of", "chosen", "needed"),
    [
        (topic(), None, False),
        (topic(), choice(2, leader_epoch=5), False),
        (topic(), choice(2), True),
        (UNCLEAN_ALLOWED, None, True),
    ],
)
def test_reports_are_needed_while_a_valid_entry_is_away_only_if_someone_will_not_wait(
    of: TopicState, chosen: LeaderChoice | None, needed: bool
) -> None:
    assert needs_reports(of, WAITING, TWO_LIVE, chosen) is needed
    assert needs_reports(of, STATE, TWO_LIVE, chosen)
    led = replace(WAITING, leader=BrokerId(1))
    assert not needs_reports(of, led, TWO_LIVE, chosen)
