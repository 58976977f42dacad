"""S14 and unclean election: who leads when nobody safe is live, and what that is known to cost."""

from dataclasses import replace

import pytest
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.controller.core import observations
from tidemark_operator.controller.core.elections import ElectionEvidence
from tidemark_operator.controller.core.leaderless_reasons import leaderless_sentence
from tidemark_operator.controller.core.unclean_recovery import ANY_BROKER
from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, BrokerId, ControllerEpoch, LeaderEpoch, Offset

from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.controller_values import (
    after,
    broker_eligibility,
    dead,
    eligibility,
    partition,
    reports,
    shown,
    topic,
)
from tests.support.metadata_brokers import MetadataBroker, metadata_harness
from tests.support.waiting import run

UNCLEAN = {"unclean.leader.election.enable": "true"}


def on_disk(last_epoch: int, log_end: int, high_watermark: int = 0) -> tuple[ReplicaReport, ...]:
    report = ReplicaReport(
        ORDERS, 0, LeaderEpoch(last_epoch), Offset(log_end), Offset(high_watermark)
    )
    return (report,)


def notices(harness: Harness) -> tuple[str, ...]:
    view = harness.service.topic(POOL, ORDERS)
    assert view is not None
    return view.notices


async def started(
    harness: Harness, number: int, life: str, *report: ReplicaReport
) -> MetadataBroker:
    broker = MetadataBroker(harness, BrokerId(number), f"{number}-{life}", replicas=report)
    await broker.register()
    await broker.catch_up()
    return broker


async def only_zero_is_safe(harness: Harness) -> None:
    """Broker 0 alone was in sync when it died; 1 and 2 are back, unclean, with shorter logs."""
    await harness.create()
    for number in (1, 2, 0):
        await harness.kill(harness.brokers[number])
        await harness.advance(100, *(harness.brokers[:1] if number != 0 else ()))
    harness.brokers[1] = await started(harness, 1, "b", *on_disk(0, 60, 50))
    harness.brokers[2] = await started(harness, 2, "b", *on_disk(0, 70, 50))
    await harness.advance(200, *harness.brokers[1:])


# Order and choice.


def test_unclean_election_takes_the_longest_log_among_the_live_never_the_first_alive() -> None:
    state = partition("", eligible="0@1", leader_epoch=6)
    brokers = eligibility(dead("0@1"), "1@12", "2@13")
    ends = reports(b1=(5, 70), b2=(5, 71))
    assert after(state, brokers, reports=ends) is state  # never without being asked to
    found = after(state, brokers, reports=ends, of=topic(**UNCLEAN))
    assert shown(found) == "leader 2@13 epoch 7 isr [2@13] eligible [] pe 10"


def test_a_later_epoch_is_longer_than_any_number_of_records() -> None:
    state = partition("", eligible="0@1", leader_epoch=6)
    brokers = eligibility(dead("0@1"), "1@12", "2@13")
    found = after(state, brokers, reports=reports(b1=(5, 1), b2=(4, 999)), of=topic(**UNCLEAN))
    assert found.leader == 1


def test_unclean_election_waits_until_every_live_replica_has_reported() -> None:
    state = partition("", eligible="0@1", leader_epoch=6)
    brokers = eligibility(dead("0@1"), "1@12", "2@13")
    assert after(state, brokers, reports=reports(b1=(5, 70)), of=topic(**UNCLEAN)) is state


def test_anybody_chosen_once_is_an_unclean_election_of_that_epoch_only() -> None:
    """Kafka's ElectLeaders with type unclean, of a topic that does not allow it of itself."""
    state = partition("", eligible="0@1", leader_epoch=6)
    brokers = eligibility(dead("0@1"), "1@12", "2@13")
    ends = reports(b1=(5, 70), b2=(5, 71))
    wrong, right = (LeaderChoice(0, ANY_BROKER, LeaderEpoch(epoch)) for epoch in (5, 6))
    assert after(state, brokers, reports=ends, choice=wrong) is state
    assert after(state, brokers, reports=reports(b1=(5, 70)), choice=right) is state
    assert after(state, brokers, reports=ends, choice=right).leader == 2


def test_an_unclean_election_that_a_client_asks_for_takes_the_longest_log() -> None:
    async def scenario() -> None:
        harness = await metadata_harness()
        await only_zero_is_safe(harness)
        assert harness.partition().leader == NO_BROKER
        outcome = await harness.service.elect_leaders(POOL, ORDERS, (0, 5), unclean=True)
        assert outcome == {0: ErrorCode.NONE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await harness.advance(500, *harness.brokers[1:])
        assert harness.partition().leader == 2
        assert "or the live replica with the longest log; broker 2 is leader" in notices(harness)[0]
        outcome = await harness.service.elect_leaders(POOL, ORDERS, (0,), unclean=True)
        assert outcome == {0: ErrorCode.ELECTION_NOT_NEEDED}

    run(scenario)


def test_who_has_the_longest_log_and_is_gone_again_is_given_up_by_a_word_or_by_the_topic() -> None:
    """Every replica reported, then 1 died: it is waited for, but not against what a human said."""
    state = partition("", leader_epoch=6)
    unclean = [
        broker_eligibility(f"{number}@1{number}", clean_since=10 + number) for number in range(3)
    ]
    brokers = eligibility(unclean[0], replace(unclean[1], is_live=False), unclean[2])
    ends = reports(b0=(5, 70), b1=(5, 99), b2=(5, 71))
    assert after(state, brokers, reports=ends) is state
    assert after(state, brokers, reports=ends, of=topic(**UNCLEAN)).leader == 2
    for named, leader in ((ANY_BROKER, 2), (BrokerId(0), 0), (BrokerId(1), NO_BROKER)):
        choice = LeaderChoice(0, named, LeaderEpoch(6))
        assert after(state, brokers, reports=ends, choice=choice).leader == leader
    sentence = leaderless_sentence(topic(), state, brokers, ElectionEvidence(ends))
    assert "brokers 1, which have the longest log, are not active" in sentence
    assert sentence.endswith("tidemark.dev/elect=0=2@6")


def test_a_safe_replica_is_preferred_to_the_longest_log() -> None:
    state = partition("", eligible="0@1", leader_epoch=6)
    brokers = eligibility("0@1", "1@12", "2@13")
    ends = reports(b0=(4, 1), b1=(5, 70), b2=(5, 71))
    assert after(state, brokers, reports=ends, of=topic(**UNCLEAN)).leader == 0


def test_with_commit_rule_isr_an_unclean_election_voids_the_last_member() -> None:
    state = partition("0@1", leader_epoch=6)
    brokers = eligibility(dead("0@1"), "1@12")
    found = after(state, brokers, reports=reports(b1=(5, 70)), of=topic("Isr", **UNCLEAN))
    assert shown(found) == "leader 1@12 epoch 7 isr [1@12] eligible [] pe 10"


def test_a_humans_choice_counts_in_one_leader_epoch_only() -> None:
    state = partition("", leader_epoch=6)
    brokers = eligibility(dead("0@1"), broker_eligibility("1@12", clean_since=12), "2@13")
    ends = reports(b1=(5, 70), b2=(5, 71))
    wrong, right = (LeaderChoice(0, BrokerId(1), LeaderEpoch(epoch)) for epoch in (5, 6))
    assert after(state, brokers, reports=ends, choice=wrong) is state
    assert after(state, brokers, reports=ends, choice=right).leader == 1
    assert after(state, brokers, reports=reports(b2=(5, 71)), choice=right) is state


# What it costs, and who says so.


def test_what_an_unclean_election_lost_is_measured_when_the_old_leader_comes_back() -> None:
    async def scenario() -> None:
        harness = await metadata_harness()
        await only_zero_is_safe(harness)
        assert not harness.partition().has_leader
        assert "they may be starting" in notices(harness)[0]
        await harness.service.update_topic(POOL, harness.topic_state(**UNCLEAN))
        await harness.advance(200, *harness.brokers[1:])
        state = harness.partition()
        assert (state.leader, state.in_sync_ids) == (2, {2})
        assert notices(harness) == (
            "partition 0: no in-sync or eligible replica was live and"
            " unclean.leader.election.enable is true, so the live replica with the longest log was"
            f" elected; broker 2 is leader since leader epoch {state.leader_epoch} and offset 70; 0"
            " records past this offset in other logs are lost, 0 of them below a high watermark;"
            " brokers 0 had not reported before the election: records that they have not reported"
            " yet are lost too and not counted",
        )
        harness.brokers[0] = await started(harness, 0, "b", *on_disk(0, 90, 85))
        await harness.advance(100, *harness.brokers)
        (unclean_election,) = harness.stored_slice()["recoveries"]
        assert (unclean_election["lostRecords"], unclean_election["lostCommitted"]) == (20, 15)
        assert harness.partition().leader == 2
        assert "brokers 0 had not reported" in notices(harness)[0]

    run(scenario)


def test_what_it_cost_is_still_known_to_the_next_controller() -> None:
    async def scenario() -> None:
        harness = await metadata_harness()
        await only_zero_is_safe(harness)
        await harness.service.update_topic(POOL, harness.topic_state(**UNCLEAN))
        await harness.advance(200, *harness.brokers[1:])
        said = notices(harness)
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        assert notices(harness) == said

    run(scenario)


def test_with_one_replica_missing_only_a_human_decides_and_is_told_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observations, "LEADERLESS_GRACE_MS", 0)

    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        for broker in harness.brokers:
            await harness.kill(broker)
        await harness.advance(100)
        harness.brokers[0] = await started(harness, 0, "b", *on_disk(0, 30))
        harness.brokers[1] = await started(harness, 1, "b", *on_disk(0, 20))
        await harness.advance(300, *harness.brokers[:2])
        state = harness.partition()
        assert not state.has_leader
        (said,) = notices(harness)
        # Broker 2 was last in sync and nobody knows yet whether its start is clean.
        assert f"tidemark.dev/elect=0=0@{state.leader_epoch}" in said
        choice = LeaderChoice(0, BrokerId(1), state.leader_epoch)  # not the one that was proposed
        await harness.service.choose_leaders(POOL, ORDERS, (choice,))
        await harness.advance(200, *harness.brokers[:2])
        assert harness.partition().leader == 1
        await harness.service.choose_leaders(POOL, ORDERS, (replace(choice, leader=BrokerId(0)),))
        await harness.advance(200, *harness.brokers[:2])
        assert harness.partition().leader == 1  # the same word again means nothing any more
        assert "a person chose the leader" in notices(harness)[0]

    run(scenario)


def test_a_report_is_believed_only_from_a_broker_that_had_heard_that_nobody_leads() -> None:
    """Broker 1 lives on and follows a leader that is dead only for the controller: a report made
    before it heard so is of a log that still grows."""

    async def scenario() -> None:
        harness = await Harness().start(2)
        await harness.create(replicas=2, **{"min.insync.replicas": "1", **UNCLEAN})
        first, second = harness.brokers
        await harness.kill(second)
        harness.brokers[1] = second = await harness.new_broker(1, life="b")
        second.replicas = on_disk(0, 10)
        await harness.kill(first)
        await second.register()  # the same life; its last poll was before the push
        await harness.advance(100)
        assert not harness.partition().has_leader
        while (await second.poll_to_the_end()).push is not None:
            pass
        second.replicas = on_disk(0, 25)
        await second.register()
        (unclean_election,) = harness.stored_slice()["recoveries"]
        assert unclean_election["startOffset"] == 25

    run(scenario)


def test_a_report_from_before_its_broker_heard_is_not_believed_though_it_is_judged_later() -> None:
    """The request waits, for the API server or for a decision; meanwhile its broker follows on,
    hears that nobody leads, and its next poll says so first."""

    async def scenario() -> None:
        harness = await Harness().start(2)
        await harness.create(replicas=2, **{"min.insync.replicas": "1", **UNCLEAN})
        first, second = harness.brokers
        await harness.kill(second)
        harness.brokers[1] = second = await harness.new_broker(1, life="b")
        then, report = second.version, on_disk(0, 10)
        await harness.kill(first)
        while (await second.poll_to_the_end()).push is not None:
            pass
        second.replicas = on_disk(0, 25)
        await second.register(replicas=report, applied_image_version=then)
        await harness.advance(100)
        assert not harness.partition().has_leader
        requested = await second.poll_to_the_end()
        while requested.push is not None:
            requested = await second.poll_to_the_end()
        assert requested.error is ErrorCode.BROKER_ID_NOT_REGISTERED
        await second.register()
        (unclean_election,) = harness.stored_slice()["recoveries"]
        assert unclean_election["startOffset"] == 25

    run(scenario)
