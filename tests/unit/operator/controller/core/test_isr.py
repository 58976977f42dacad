"""AlterPartition: every answer of kafka-replication 1.7, in its order, and refused expands (S3)."""

from dataclasses import replace

import pytest
from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.isr import Verdict, checked_proposal
from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.controller_values import (
    REPLICA,
    broker_eligibility,
    dead,
    eligibility,
    members,
    partition,
    proposal,
    shown,
    topic,
)
from tests.support.waiting import run

ALL = eligibility("0@1", "1@2", "2@3")
FULL = partition("0@1 1@2", leader="0@1")


def checker(
    proposed: IsrProposal,
    *,
    state: PartitionState = FULL,
    brokers: Eligibility = ALL,
    sender: int = 0,
    commit_rule: str = "MinInsync",
) -> Verdict:
    return checked_proposal(
        topic(commit_rule), state, brokers, sender=BrokerId(sender), proposal=proposed
    )


def test_an_expand_raises_the_partition_epoch_and_not_the_leader_epoch() -> None:
    verdict = checker(proposal("0@1 1@2 2@3"))
    assert verdict.error is ErrorCode.NONE
    assert shown(verdict.partition) == ("leader 0@1 epoch 5 isr [0@1 1@2 2@3] eligible [] pe 10")


def test_a_shrink_below_min_isr_makes_the_leaver_eligible() -> None:
    verdict = checker(proposal("0@1"))
    assert shown(verdict.partition) == "leader 0@1 epoch 5 isr [0@1] eligible [1@2] pe 10"


def test_a_shrink_with_commit_rule_isr_makes_nobody_eligible() -> None:
    verdict = checker(proposal("0@1"), commit_rule="Isr")
    assert verdict.partition.eligible_leaders == ()


def test_proposing_what_is_stored_succeeds_and_changes_nothing() -> None:
    verdict = checker(proposal("1@2 0@1"))
    assert verdict == Verdict(ErrorCode.NONE, FULL)
    assert verdict.partition is FULL


@pytest.mark.parametrize(
    ("proposed", "sender", "error"),
    [
        (proposal("0@1 1@2 2@3", leader_epoch=6), 0, ErrorCode.NOT_CONTROLLER),
        (proposal("0@1 1@2 2@3", partition_epoch=10), 0, ErrorCode.NOT_CONTROLLER),
        (proposal("0@1 1@2 2@3", leader_epoch=4), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (proposal("0@1 1@2 2@3"), 1, ErrorCode.INVALID_REQUEST),
        (proposal("0@1 1@2 2@3", partition_epoch=8), 0, ErrorCode.INVALID_UPDATE_VERSION),
        (proposal("0@1 1@2 1@2"), 0, ErrorCode.INVALID_REQUEST),
        (proposal("0@1 9@1"), 0, ErrorCode.INVALID_REQUEST),
        (proposal("1@2 2@3"), 0, ErrorCode.INVALID_REQUEST),
        (proposal(""), 0, ErrorCode.INVALID_REQUEST),
        # Order: the earlier check answers.
        (proposal("9@9", leader_epoch=4, partition_epoch=10), 1, ErrorCode.NOT_CONTROLLER),
        (proposal("9@9", leader_epoch=4), 1, ErrorCode.FENCED_LEADER_EPOCH),
        (proposal("9@9", partition_epoch=8), 1, ErrorCode.INVALID_REQUEST),
        (proposal("9@9", partition_epoch=8), 0, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_stale_and_malformed_proposals_are_refused_without_a_write(
    proposed: IsrProposal, sender: int, error: ErrorCode
) -> None:
    verdict = checker(proposed, sender=sender)
    assert verdict == Verdict(error, FULL)
    assert verdict.partition is FULL


@pytest.mark.parametrize(
    ("proposed", "brokers"),
    [
        (proposal("0@1 1@2 2@3"), eligibility("0@1", "1@2")),
        (proposal("0@1 1@2 2@3"), eligibility("0@1", "1@2", dead("2@3"))),
        (
            proposal("0@1 1@2 2@3"),
            eligibility("0@1", "1@2", broker_eligibility("2@3", is_stopping=True)),
        ),
        (proposal("0@1 1@2 2@2"), ALL),
        (proposal("0@1 1@2 2@4"), ALL),
        (proposal("0@1 1@2 2@-1"), ALL),
        (
            proposal("0@1 1@2 2@3"),
            eligibility(
                "0@1", "1@2", broker_eligibility("2@3", failed_replicas=frozenset({REPLICA}))
            ),
        ),
    ],
    ids=["unknown", "fenced", "stopping", "older life", "future life", "no fetch seen", "failed"],
)
def test_an_ineligible_member_is_refused_and_the_refusal_raises_the_partition_epoch(
    proposed: IsrProposal, brokers: Eligibility
) -> None:
    """S3: once the refusal was heard, no delayed write on epoch 9 can land any more."""
    verdict = checker(proposed, brokers=brokers)
    assert verdict.error is ErrorCode.INELIGIBLE_REPLICA
    assert shown(verdict.partition) == "leader 0@1 epoch 5 isr [0@1 1@2] eligible [] pe 10"


def test_a_member_whose_fetch_the_leader_has_not_seen_yet_keeps_its_stored_entry() -> None:
    verdict = checker(proposal("0@1 1@-1 2@3"))
    assert verdict.partition.in_sync_replicas == members("0@1 1@2 2@3")


def test_a_void_member_is_not_kept_by_an_unseen_fetch() -> None:
    verdict = checker(
        proposal("0@1 1@-1"),
        brokers=eligibility("0@1", broker_eligibility("1@8", clean_since=8), "2@3"),
    )
    assert verdict.error is ErrorCode.INELIGIBLE_REPLICA


def test_a_retired_life_of_the_leader_itself_is_refused() -> None:
    assert checker(proposal("0@0 1@2")).error is ErrorCode.INELIGIBLE_REPLICA


# What the controller knows at all.


def test_proposals_for_unknown_topics_and_partitions_are_told_so_beside_those_that_are_judged() -> (
    None
):
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        known = proposal("0@1 1@2", leader_epoch=0, partition_epoch=0)
        nobodys = replace(known, topic_id=TopicId("another"))
        beyond = replace(known, partition=1)
        response = await harness.brokers[0].alter(nobodys, beyond, known)
        assert {(each.topic_id, each.partition): each.error for each in response.answers} == {
            ("another", 0): ErrorCode.UNKNOWN_TOPIC_ID,
            (ORDERS, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (ORDERS, 0): ErrorCode.NONE,
        }
        assert [each.state for each in response.answers if each.error] == [None, None]
        assert harness.partition().in_sync_replicas == members("0@1 1@2")

    run(scenario)


def test_a_topic_whose_data_is_only_kept_is_unknown_to_a_proposal() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        kept, writes = harness.partition(), harness.store.writes
        requested = proposal("0@1 1@2", leader_epoch=0, partition_epoch=0)
        (response,) = (await harness.brokers[0].alter(requested)).answers
        assert response.error is ErrorCode.UNKNOWN_TOPIC_ID
        assert (harness.partition(), harness.store.writes) == (kept, writes)

    run(scenario)
