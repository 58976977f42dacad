"""Legal changes of a partition: epochs, ISR and eligible leaders together (I12, I13, I14)."""

import pytest
from tidemark_operator.controller.core.partition_change import (
    NOBODY,
    Leadership,
    changed,
    effective_min_insync,
    eligible_leaders,
    with_min_insync,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_values import (
    TOPIC_ID,
    broker_eligibility,
    dead,
    eligibility,
    members,
    partition,
    shown,
    topic,
)

ALL_LIVE = eligibility("0@1", "1@2", "2@3")
STATE = partition("0@1 1@2 2@3", leader="0@1")


def test_an_isr_as_it_is_makes_no_new_value() -> None:
    assert changed(topic(), STATE, ALL_LIVE, in_sync_replicas=STATE.in_sync_replicas) is STATE


def test_an_assignment_to_the_same_leader_raises_both_epochs() -> None:
    again = Leadership(BrokerId(0), BrokerEpoch(1))
    found = changed(
        topic(), STATE, ALL_LIVE, in_sync_replicas=STATE.in_sync_replicas, leadership=again
    )
    assert shown(found) == "leader 0@1 epoch 6 isr [0@1 1@2 2@3] eligible [] pe 10"


def test_a_leader_outside_of_the_isr_is_never_made() -> None:
    with pytest.raises(AssertionError, match="leader 0 not in"):
        changed(topic(), STATE, ALL_LIVE, in_sync_replicas=members("1@2 2@3"))
    left = changed(topic(), STATE, ALL_LIVE, in_sync_replicas=members("1@2 2@3"), leadership=NOBODY)
    assert not left.has_leader


def test_those_who_leave_below_min_isr_are_eligible_if_valid_and_still_replicas() -> None:
    state = partition("0@1 1@2 4@5", eligible="2@3 3@4", replicas=(0, 1, 2, 3))
    brokers = eligibility("0@1", dead("1@9"), "2@3", broker_eligibility("3@9", clean_since=9))

    def eligible(of: TopicState, in_sync: str) -> tuple[object, ...]:
        return eligible_leaders(of, state, brokers, in_sync_replicas=members(in_sync))

    assert eligible(topic(), "0@1") == members("1@2 2@3")
    assert eligible(topic(), "0@1 1@2") == ()
    assert eligible(topic("Isr"), "0@1") == ()


@pytest.mark.parametrize(
    ("configured", "replication_factor", "effective"),
    [(None, 3, 2), (None, 1, 1), ("3", 3, 3), ("4", 3, 3), ("0", 3, 1), ("2", 1, 1)],
)
def test_min_isr_is_from_one_to_the_replication_factor_and_two_by_default(
    configured: str | None, replication_factor: int, effective: int
) -> None:
    config = {} if configured is None else {"min.insync.replicas": configured}
    assert (
        effective_min_insync(TopicState("orders", TOPIC_ID, 1, replication_factor, config=config))
        == effective
    )


def test_min_isr_changes_together_with_the_eligible_leaders() -> None:
    state = partition("0@1", leader="0@1", eligible="1@2")
    assert with_min_insync(topic(), state, ALL_LIVE, 2) is state
    lowered = with_min_insync(topic(), state, ALL_LIVE, 1)
    assert (lowered.min_insync_replicas, lowered.eligible_leaders) == (1, ())
    assert (lowered.leader_epoch, lowered.partition_epoch) == (5, 10)
