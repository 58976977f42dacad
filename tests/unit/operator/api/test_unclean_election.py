"""What a Topic's condition says of an unclean election, and what it no longer says."""

from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset

ELECTION = UncleanElection(
    partition=0,
    cause=UncleanCause.UNCLEAN,
    leader_epoch=LeaderEpoch(6),
    leader=BrokerId(2),
    start_offset=Offset(70),
    unheard=(BrokerId(0), BrokerId(1)),
    lost_records=300,
    lost_committed=300,
)


def test_brokers_without_a_report_are_named_while_they_are_out_of_sync() -> None:
    assert "brokers 0, 1 had not reported before the election" in ELECTION.sentence()
    assert "brokers 1 had not reported before the election" in ELECTION.sentence(
        {BrokerId(0), BrokerId(2)}
    )


def test_the_loss_stays_once_all_are_in_sync_and_missing_reports_do_not() -> None:
    sentence = ELECTION.sentence({BrokerId(0), BrokerId(1), BrokerId(2)})
    assert "300 records past this offset in other logs are lost" in sentence
    assert "had not reported" not in sentence


def test_an_election_without_a_leader_yet_says_what_it_waits_for() -> None:
    waiting = UncleanElection(0, UncleanCause.CHOSEN, LeaderEpoch(6))
    assert waiting.sentence().endswith("no leader is elected yet in leader epoch 6")
