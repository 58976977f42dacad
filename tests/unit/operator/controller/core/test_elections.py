"""Who leads and what becomes of ISR and eligible leaders (I12, I13; KIP-966)."""

from dataclasses import replace
from typing import Any

from tidemark_operator.controller.core.elections import LeaderCounts, preferred_leader_restored
from tidemark_operator.controller.core.eligibility import BrokerEligibility
from tidemark_operator.controller.core.partition_change import NOBODY, changed
from tidemark_operator.controller.core.unclean_recovery import Reports
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_values import (
    REPLICA,
    after,
    broker_eligibility,
    dead,
    eligibility,
    members,
    partition,
    report,
    reports,
    shown,
    topic,
)


def test_nothing_changes_while_everybody_is_live() -> None:
    state = partition("0@1 1@2 2@3", leader="0@1")
    assert after(state, eligibility("0@1", "1@2", "2@3")) is state


def test_a_dead_leader_is_replaced_and_leaves_the_isr_in_the_same_write() -> None:
    state = partition("0@1 1@2 2@3", leader="0@1")
    found = after(state, eligibility(dead("0@1"), "1@2", "2@3"))
    assert shown(found) == "leader 1@2 epoch 6 isr [1@2 2@3] eligible [] pe 10"


def test_all_dead_members_leave_at_once_so_the_new_leader_waits_for_no_corpse() -> None:
    state = partition("0@1 1@2 2@3", leader="0@1")
    found = after(state, eligibility(dead("0@1"), dead("1@2"), "2@3"))
    assert shown(found) == "leader 2@3 epoch 6 isr [2@3] eligible [0@1 1@2] pe 10"


def test_a_dead_follower_leaves_without_a_new_leader_epoch() -> None:
    state = partition("0@1 1@2 2@3", leader="0@1")
    found = after(state, eligibility("0@1", dead("1@2"), "2@3"))
    assert shown(found) == "leader 0@1 epoch 5 isr [0@1 2@3] eligible [] pe 10"


def test_a_follower_dying_below_min_isr_becomes_eligible() -> None:
    state = partition("0@1 1@2", leader="0@1")
    found = after(state, eligibility("0@1", dead("1@2"), "2@3"))
    assert shown(found) == "leader 0@1 epoch 5 isr [0@1] eligible [1@2] pe 10"


def test_the_member_that_leads_fewest_partitions_wins_ties_in_assignment_order() -> None:
    state = partition("0@1 1@2 2@3", leader="0@1")
    leads_one = partition("1@2", leader="1@2")
    brokers = eligibility(dead("0@1"), "1@2", "2@3")
    assert after(state, brokers, counts=LeaderCounts([leads_one])).leader == 2
    assert after(state, brokers, counts=LeaderCounts([])).leader == 1


def test_leaderships_of_a_dead_broker_are_spread_over_the_survivors() -> None:
    state = partition("0@1 1@2 2@3", leader="0@1")
    brokers = eligibility(dead("0@1"), "1@2", "2@3")
    counts = LeaderCounts([state] * 4)
    leaders = [after(state, brokers, counts=counts).leader for _ in range(4)]
    assert leaders == [1, 2, 1, 2]


def test_nobody_leads_while_the_last_entries_are_dead_and_the_leader_epoch_rises() -> None:
    state = partition("0@1", leader="0@1", eligible="1@2")
    found = after(state, eligibility(dead("0@1"), dead("1@2"), "2@3"))
    assert shown(found) == "leader -1@-1 epoch 6 isr [] eligible [0@1 1@2] pe 10"
    assert after(found, eligibility(dead("0@1"), dead("1@2"), "2@3")) is found


def test_an_eligible_leader_that_comes_back_leads_alone() -> None:
    state = partition("", eligible="0@1 1@2", leader_epoch=6)
    found = after(state, eligibility(dead("0@1"), "1@2", "2@3"))
    assert shown(found) == "leader 1@2 epoch 7 isr [1@2] eligible [0@1] pe 10"


def test_a_replica_outside_isr_and_eligible_leaders_never_leads_by_being_alive() -> None:
    state = partition("", eligible="0@1", leader_epoch=6)
    assert after(state, eligibility(dead("0@1"), "1@2", "2@3")) is state


def test_a_broker_that_restarted_leads_only_under_a_new_grant() -> None:
    """The same broker: leader epoch rises, the grant names its new life (S2)."""
    state = partition("0@1", leader="0@1", eligible="")
    found = after(state, eligibility("0@4", dead("1@2"), dead("2@3")))
    assert shown(found) == "leader 0@4 epoch 6 isr [0@4] eligible [] pe 10"


def test_a_clean_restart_keeps_the_entry_under_its_new_epoch() -> None:
    state = partition("", eligible="1@2", leader_epoch=6)
    found = after(state, eligibility(dead("0@1"), "1@7"))
    assert shown(found) == "leader 1@7 epoch 7 isr [1@7] eligible [] pe 10"


def test_entries_of_a_dead_broker_are_not_moved_to_a_newer_epoch() -> None:
    """Its epoch may not be durable yet, and an unclean start could be given the same number."""
    state = partition("0@1 1@2", leader="0@1")
    found = after(state, eligibility("0@1", dead("1@7", clean_since=2)))
    assert found.eligible_leaders == members("1@2")


def test_a_stopping_leader_hands_over_and_leaves_the_isr() -> None:
    state = partition("0@1 1@2 2@3", leader="0@1")
    found = after(state, eligibility(broker_eligibility("0@1", is_stopping=True), "1@2", "2@3"))
    assert shown(found) == "leader 1@2 epoch 6 isr [1@2 2@3] eligible [] pe 10"


def test_the_last_stopping_member_stays_eligible_and_nobody_leads() -> None:
    state = partition("0@1", leader="0@1", min_insync=1)
    found = after(state, eligibility(broker_eligibility("0@1", is_stopping=True)))
    assert shown(found) == "leader -1@-1 epoch 6 isr [] eligible [0@1] pe 10"


def test_a_failed_replica_hands_over_and_is_void() -> None:
    state = partition("0@1 1@2", leader="0@1")
    failed = broker_eligibility("0@1", failed_replicas=frozenset({REPLICA}))
    found = after(state, eligibility(failed, "1@2"))
    assert shown(found) == "leader 1@2 epoch 6 isr [1@2] eligible [] pe 10"


def test_with_commit_rule_isr_the_last_member_stays_without_a_leader() -> None:
    state = partition("0@1", leader="0@1")
    found = after(state, eligibility(dead("0@1"), "1@2"), of=topic("Isr"))
    assert shown(found) == "leader -1@-1 epoch 6 isr [0@1] eligible [] pe 10"
    back = after(found, eligibility("0@1", "1@2"), of=topic("Isr"))
    assert shown(back) == "leader 0@1 epoch 7 isr [0@1] eligible [] pe 11"


def test_with_commit_rule_isr_members_that_die_together_all_stay() -> None:
    state = partition("0@1 1@2", leader="0@1")
    found = after(state, eligibility(dead("0@1"), dead("1@2")), of=topic("Isr"))
    assert found.in_sync_replicas == members("0@1 1@2")


# Eligible leaders: the cases of kafka-replication 4.2 (four replicas, min ISR 3).


def four(in_sync: str, **more: Any) -> PartitionState:
    return partition(in_sync, replicas=(0, 1, 2, 3), min_insync=3, **more)


def test_fencing_below_min_isr_makes_eligible_leaders_one_after_the_other() -> None:
    # As Kafka's test: the ISR is still at min ISR when 2 leaves, below when 3 leaves.
    first = after(
        four("0@1 1@1 2@1 3@1", leader="0@1"), eligibility("0@1", "1@1", dead("2@1"), "3@1")
    )
    second = after(first, eligibility("0@1", "1@1", dead("2@1"), dead("3@1")))
    assert shown(second) == "leader 0@1 epoch 5 isr [0@1 1@1] eligible [3@1] pe 11"
    third = after(second, eligibility("0@1", dead("1@1"), dead("2@1"), dead("3@1")))
    assert shown(third) == "leader 0@1 epoch 5 isr [0@1] eligible [1@1 3@1] pe 12"


def test_members_fenced_as_one_event_all_become_eligible() -> None:
    """S15: no safe leader is dropped by writing them one after the other."""
    found = after(
        four("0@1 1@1 2@1 3@1", leader="0@1"),
        eligibility("0@1", dead("1@1"), dead("2@1"), dead("3@1")),
    )
    assert found.eligible_leaders == members("1@1 2@1 3@1")


def test_an_eligible_leader_elected_leaves_the_others_eligible() -> None:
    state = four("0@1", leader="0@1", eligible="1@1 2@1 3@1")
    found = after(state, eligibility(dead("0@1"), dead("1@1"), "2@1", dead("3@1")))
    assert shown(found) == "leader 2@1 epoch 6 isr [2@1] eligible [0@1 1@1 3@1] pe 10"


def test_an_isr_at_min_isr_clears_the_eligible_leaders() -> None:
    state = partition("0@1", leader="0@1", eligible="1@2")
    found = changed(topic(), state, eligibility("0@1", "2@3"), in_sync_replicas=members("0@1 2@3"))
    assert shown(found) == "leader 0@1 epoch 5 isr [0@1 2@3] eligible [] pe 10"


def test_joining_below_min_isr_keeps_the_other_eligible_leaders() -> None:
    state = four("0@1", leader="0@1", eligible="1@1 3@1")
    found = changed(topic(), state, eligibility("0@1", "2@1"), in_sync_replicas=members("0@1 2@1"))
    assert found.eligible_leaders == members("1@1 3@1")


def test_an_unclean_restart_of_an_eligible_leader_voids_it() -> None:
    state = partition("0@1", leader="0@1", eligible="1@2")
    found = after(state, eligibility("0@1", broker_eligibility("1@7", clean_since=7), "2@3"))
    assert shown(found) == "leader 0@1 epoch 5 isr [0@1] eligible [] pe 10"


def test_an_unclean_restart_of_the_last_member_leaves_nobody() -> None:
    state = partition("0@1", leader="0@1")
    found = after(state, eligibility(broker_eligibility("0@7", clean_since=7), "1@2", "2@3"))
    assert shown(found) == "leader -1@-1 epoch 6 isr [] eligible [] pe 10"


def test_non_replicas_never_stay_eligible() -> None:
    state = partition("0@1", leader="0@1", eligible="9@1")
    found = changed(topic(), state, eligibility("0@1", "9@1"), in_sync_replicas=members("0@1"))
    assert found.eligible_leaders == ()


def test_setting_no_leader_where_nobody_leads_still_raises_the_leader_epoch() -> None:
    state = partition("", leader_epoch=6)
    found = changed(topic(), state, eligibility(), in_sync_replicas=(), leadership=NOBODY)
    assert (found.leader_epoch, found.partition_epoch) == (7, 10)


# S14: everybody unclean.


def unclean(text: str, epoch: int) -> BrokerEligibility:
    return broker_eligibility(text, clean_since=epoch)


def test_once_every_replica_reported_the_longest_log_leads() -> None:
    state = partition("0@1", eligible="1@2", leader_epoch=6)
    brokers = eligibility(unclean("0@11", 11), unclean("1@12", 12), unclean("2@13", 13))
    ends = reports(b0=(4, 90), b1=(5, 70), b2=(4, 99))
    found = after(state, brokers, reports=ends)
    assert shown(found) == "leader 1@12 epoch 7 isr [1@12] eligible [] pe 10"


def test_with_one_replica_missing_only_a_human_decides() -> None:
    state = partition("", leader_epoch=6)
    brokers = eligibility(unclean("0@11", 11), unclean("1@12", 12))
    assert after(state, brokers, reports=reports(b0=(4, 90), b1=(5, 70))) is state


def test_a_valid_entry_that_is_only_away_is_waited_for_however_long_other_logs_are() -> None:
    state = partition("", eligible="2@3", leader_epoch=6)
    brokers = eligibility(unclean("0@11", 11), unclean("1@12", 12), dead("2@3"))
    ends = reports(b0=(4, 90), b1=(5, 70), b2=(4, 1))
    assert after(state, brokers, reports=ends) is state


def test_the_longest_log_is_waited_for_when_its_broker_is_away() -> None:
    state = partition("", leader_epoch=6)
    brokers = eligibility(unclean("0@11", 11), dead("1@12", clean_since=12), unclean("2@13", 13))
    ends = reports(b0=(4, 90), b1=(5, 70), b2=None)
    assert after(state, brokers, reports=ends) is state


def test_a_failed_replica_counts_as_not_reported() -> None:
    state = partition("", leader_epoch=6)
    brokers = eligibility(unclean("0@11", 11), unclean("1@12", 12), unclean("2@13", 13))
    ends = Reports(
        {
            BrokerId(0): {REPLICA: report(4, 90)},
            BrokerId(1): {REPLICA: report(4, 99, failed=True)},
            BrokerId(2): {},
        }
    )
    assert after(state, brokers, reports=ends) is state


# Preferred leaders.


def test_leadership_returns_to_the_first_replica() -> None:
    state = partition("0@4 1@2 2@3", leader="1@2")
    counts = LeaderCounts([state])
    found = preferred_leader_restored(
        topic(), state, eligibility("0@4", "1@2", "2@3"), leader_counts=counts
    )
    assert shown(found) == "leader 0@4 epoch 6 isr [0@4 1@2 2@3] eligible [] pe 10"
    assert (counts[BrokerId(0)], counts[BrokerId(1)]) == (1, 0)


def test_leadership_stays_while_the_preferred_leader_is_out_of_sync_stopping_or_void() -> None:
    lagging = partition("1@2 2@3", leader="1@2")
    whole = partition("0@4 1@2", leader="1@2")
    for state, first in (
        (lagging, broker_eligibility("0@4")),
        (whole, broker_eligibility("0@4", is_stopping=True)),
        (whole, broker_eligibility("0@5", clean_since=5)),
        (whole, dead("0@4")),
    ):
        found = preferred_leader_restored(
            topic(), state, eligibility(first, "1@2", "2@3"), leader_counts=LeaderCounts([state])
        )
        assert found is state


def test_two_partitions_led_by_each_others_preferred_leader_both_return() -> None:
    """Evenly led already, and yet nobody is where the placement wants it (L5)."""
    first = partition("0@1 1@2", leader="1@2")
    second = replace(partition("0@1 1@2", leader="0@1", replicas=(1, 0)), partition=1)
    counts, brokers = LeaderCounts([first, second]), eligibility("0@1", "1@2")
    leaders = [
        preferred_leader_restored(topic(), state, brokers, leader_counts=counts).leader
        for state in (first, second)
    ]
    assert leaders == [0, 1]
