"""Who is in sync: shrink by time, expand by position, proposals and their answers (1.2 to 1.8)."""

import pytest
from tidemark_broker.replication.core.effects import LeaderAssignment, LeaderSettings, RejectFetch
from tidemark_broker.replication.core.leader import JOIN_HOLD_OFF_MS, PartitionLeader
from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, Offset

from tests.unit.broker.replication.core.epoch_history import EpochHistory
from tests.unit.broker.replication.core.leaders import (
    LAG_MS,
    START_MS,
    TOPIC_ID,
    a_fetch,
    a_leader,
    a_proposal,
    a_state,
    brokers,
    fetches,
    member,
    members,
    proposes,
)

LOG = EpochHistory(((0, 0), (5, 100)), Offset(100))
LATER_MS = START_MS + LAG_MS


def log_end_of(leader: PartitionLeader, follower: int) -> int:
    replica = leader.follower(BrokerId(follower))
    assert replica is not None
    return replica.log_end_offset


# ---- shrink


def test_a_stuck_follower_leaves_after_the_lag_window() -> None:
    leader = a_leader()
    leader.on_append(Offset(110), START_MS)
    fetches(leader, 2, 110, now_ms=LATER_MS)
    fetches(leader, 3, 105, now_ms=LATER_MS)  # it fetches, but never reached an end in time
    assert leader.on_tick(LATER_MS) == ()  # the bound belongs to the window
    assert leader.on_tick(LATER_MS + 1) == (proposes(1, 2),)


def test_a_follower_that_never_fetched_has_one_lag_window_from_the_grant() -> None:
    leader = a_leader()
    fetches(leader, 2, 100, now_ms=LATER_MS)
    assert leader.on_tick(LATER_MS) == ()
    assert leader.on_tick(LATER_MS + 1) == (proposes(1, 2),)


def test_a_follower_always_one_fetch_behind_is_in_sync() -> None:  # KAFKA-4485
    leader = a_leader()
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    end = 100
    for step in range(1, 6):
        now_ms = START_MS + step * LAG_MS // 2
        leader.on_append(Offset(end + 10), now_ms)
        fetches(leader, 2, end + 10, now_ms=now_ms)
        fetches(leader, 3, end, now_ms=now_ms)  # where the end was at its last fetch
        end += 10
        assert leader.on_tick(now_ms) == ()


def test_equal_log_ends_are_in_sync_whatever_the_time() -> None:
    leader = a_leader()
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    assert leader.on_tick(START_MS + 100 * LAG_MS) == ()


def test_all_late_members_leave_in_one_proposal_but_never_the_leader() -> None:
    leader = a_leader()
    leader.on_append(Offset(110), START_MS)
    assert leader.on_tick(LATER_MS + 1) == (proposes(1),)


def test_a_stall_of_the_leader_makes_nobody_late() -> None:  # S21
    leader = a_leader()
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    leader.on_append(Offset(110), START_MS)
    leader.on_stall(60_000, START_MS + 60_000)
    assert leader.on_tick(START_MS + 60_000) == ()
    assert leader.on_tick(START_MS + 60_000 + LAG_MS) == ()
    assert leader.on_tick(START_MS + 60_000 + LAG_MS + 1) == (proposes(1),)


def test_no_second_shrink_while_one_is_pending() -> None:
    leader = a_leader()
    leader.on_append(Offset(110), START_MS)
    fetches(leader, 2, 110, now_ms=START_MS)
    assert leader.on_tick(LATER_MS + 1) == (proposes(1, 2),)
    leader.on_append(Offset(120), LATER_MS + 2)  # now 2 is late as well
    assert leader.on_tick(LATER_MS + 2) == ()


# ---- expand


def test_a_replica_joins_at_the_watermark() -> None:
    leader = a_leader((1, 2), high_watermark=100)
    fetches(leader, 2, 100)
    assert fetches(leader, 3, 99) == ()
    assert fetches(leader, 3, 100) == (proposes(1, 2, 3),)
    assert leader.in_sync_replicas == members(1, 2)
    assert leader.maximal_in_sync_replicas == members(1, 2, 3)


def test_a_replica_does_not_join_below_the_start_of_the_epoch() -> None:
    leader = a_leader((1, 2), log_end=100, high_watermark=80)
    assert fetches(leader, 3, 90) == ()  # past the watermark, maybe behind committed records
    assert fetches(leader, 3, 100) == (proposes(1, 2, 3),)


@pytest.mark.parametrize(
    "known", [brokers(fenced=[3]), brokers(stopping=[3]), brokers(epochs={3: 99}), {}]
)
def test_fenced_stopping_and_unknown_lives_are_not_proposed(
    known: dict[BrokerId, BrokerState],
) -> None:
    leader = a_leader((1, 2), known_brokers=known)
    assert fetches(leader, 3, 100) == ()


def test_who_was_unfenced_joins_without_another_fetch() -> None:
    leader = a_leader((1, 2), known_brokers=brokers(fenced=[3]))
    fetches(leader, 3, 100)
    assert leader.on_brokers(brokers(), START_MS) == (proposes(1, 2, 3),)


def test_one_member_is_proposed_at_a_time_and_the_next_follows_the_commit() -> None:
    leader = a_leader((1,), replicas=(1, 2, 3), min_insync=1)
    assert fetches(leader, 2, 100) == (proposes(1, 2),)
    assert fetches(leader, 3, 100) == ()
    assert leader.on_state(a_state((1, 2), partition_epoch=21, min_insync=1), START_MS) == (
        proposes(1, 2, 3, partition_epoch=21),
    )


def test_a_new_life_replaces_the_entry_of_the_former_one() -> None:  # S2
    leader = a_leader((1, 2, (3, 13)), known_brokers=brokers(epochs={3: 14}))
    assert fetches(leader, (3, 14), 100) == (proposes(1, 2, (3, 14)),)
    assert leader.maximal_in_sync_replicas == members(1, 2, (3, 13), (3, 14))


# ---- S7


def test_a_member_that_fetches_below_the_watermark_is_expelled_at_once() -> None:  # S7
    leader = a_leader()
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    assert fetches(leader, 3, 40) == (proposes(1, 2),)
    assert leader.maximal_in_sync_replicas == members(1, 2, 3)


def test_a_new_life_that_fetches_below_the_watermark_costs_the_old_entry() -> None:  # S7, S9
    leader = a_leader((1, 2, (3, 13)), known_brokers=brokers(epochs={3: 14}))
    assert fetches(leader, (3, 14), 0) == (proposes(1, 2),)


def test_who_the_controller_took_out_is_not_proposed_again_at_once() -> None:
    # Its stop or death may reach us a push later than the new ISR.
    leader = a_leader()
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    assert leader.on_state(a_state((1, 2), partition_epoch=21), START_MS) == ()
    assert fetches(leader, 3, 100) == ()
    later_ms = START_MS + JOIN_HOLD_OFF_MS
    assert fetches(leader, 3, 100, now_ms=later_ms) == (proposes(1, 2, 3, partition_epoch=21),)


def test_the_hold_off_delays_no_expulsion() -> None:  # S7
    leader = a_leader()
    leader.on_state(a_state((1, 2), partition_epoch=21), START_MS)
    fetches(leader, 2, 100)
    assert fetches(leader, 2, 40) == (proposes(1, partition_epoch=21),)


def test_the_expelled_one_rejoins_once_it_is_back_at_the_watermark() -> None:
    leader = a_leader()
    fetches(leader, 3, 40)
    leader.on_state(a_state((1, 2), partition_epoch=21), START_MS)
    assert fetches(leader, 3, 60) == ()
    assert fetches(leader, 3, 100) == (proposes(1, 2, 3, partition_epoch=21),)


# ---- answers


def test_a_committed_expand_is_counted_and_clears_the_proposal() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    leader.on_state(a_state((1, 2, 3), partition_epoch=21), START_MS)
    assert leader.on_response(a_proposal(1, 2, 3), ErrorCode.NONE, START_MS) == ()
    assert leader.pending_proposal is None
    assert leader.in_sync_replicas == members(1, 2, 3)
    assert leader.failed_isr_updates == 0


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_without_a_higher_partition_epoch_keeps_the_member(error: ErrorCode) -> None:
    # S3: the write may still land, so the watermark goes on waiting; the same is asked again.
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    assert leader.on_response(a_proposal(1, 2, 3), error, START_MS) == (proposes(1, 2, 3),)
    assert leader.maximal_in_sync_replicas == members(1, 2, 3)


def test_a_refusal_that_raised_the_partition_epoch_drops_the_member() -> None:  # S3
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    assert leader.on_state(a_state((1, 2), partition_epoch=21), START_MS) == ()
    assert leader.pending_proposal is None
    assert leader.maximal_in_sync_replicas == members(1, 2)
    assert leader.failed_isr_updates == 1
    # Not again at the speed of the network, but by a later fetch.
    assert fetches(leader, 3, 100) == ()
    later_ms = START_MS + JOIN_HOLD_OFF_MS
    assert fetches(leader, 3, 100, now_ms=later_ms) == (proposes(1, 2, 3, partition_epoch=21),)


def test_who_is_not_let_in_keeps_nobody_else_out() -> None:
    """Seed 49002268: broker 2 had failed, which a leader is not told. It was proposed for ever, and
    broker 3 never; below min.insync.replicas nothing was written that would have changed it."""
    leader = a_leader((1,))
    assert fetches(leader, 2, 100) == (proposes(1, 2),)
    fetches(leader, 3, 100)
    leader.on_state(a_state((1,), partition_epoch=21), START_MS)
    later_ms = START_MS + JOIN_HOLD_OFF_MS
    assert leader.on_pulse(later_ms) == (proposes(1, 3, partition_epoch=21),)
    leader.on_state(a_state((1, 3), partition_epoch=22), later_ms)
    assert leader.pending_proposal is not None
    assert set(leader.pending_proposal.new_in_sync_replicas) == set(members(1, 2, 3))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_errors_that_metadata_resolves_leave_it_pending_without_a_retry(error: ErrorCode) -> None:
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    assert leader.on_response(a_proposal(1, 2, 3), error, START_MS) == ()
    assert leader.pending_proposal == a_proposal(1, 2, 3)
    assert leader.failed_isr_updates == 1
    assert fetches(leader, 3, 100) == ()


def test_any_other_error_is_asked_again() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    assert leader.on_response(a_proposal(1, 2, 3), ErrorCode.UNKNOWN_SERVER_ERROR, START_MS) == (
        proposes(1, 2, 3),
    )


def test_a_proposal_without_answer_and_metadata_is_asked_again_after_the_lag_window() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    assert leader.on_tick(LATER_MS - 1) == ()
    assert leader.on_tick(LATER_MS) == (proposes(1, 2, 3),)


def test_metadata_clears_the_proposal_and_an_old_answer_changes_nothing() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    leader.on_state(a_state((1, 2), partition_epoch=21), START_MS)
    assert leader.on_response(a_proposal(1, 2, 3), ErrorCode.UNKNOWN_SERVER_ERROR, START_MS) == ()
    assert leader.pending_proposal is None


def test_older_and_equal_states_change_nothing() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    for epoch in (19, 20):
        assert leader.on_state(a_state((1,), partition_epoch=epoch), START_MS) == ()
    assert leader.in_sync_replicas == members(1, 2)
    assert leader.pending_proposal == a_proposal(1, 2, 3)


def test_a_refused_shrink_changes_nothing_but_the_epoch() -> None:
    leader = a_leader()
    leader.on_append(Offset(110), START_MS)
    leader.on_tick(LATER_MS + 1)
    leader.on_state(a_state(partition_epoch=21), LATER_MS + 2)
    assert leader.in_sync_replicas == members(1, 2, 3)
    assert leader.high_watermark == 100
    assert leader.failed_isr_updates == 1


# ---- admission


def test_acks_all_is_admitted_by_the_applied_isr_alone() -> None:  # I9
    leader = a_leader((1,), min_insync=2, replicas=(1, 2))
    fetches(leader, 2, 100)
    assert leader.maximal_in_sync_replicas == members(1, 2)
    assert not leader.has_enough_in_sync_replicas
    leader.on_state(a_state((1, 2), partition_epoch=21, replicas=(1, 2)), START_MS)
    assert leader.has_enough_in_sync_replicas


# ---- who may fetch


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_other_leader_epochs_are_told_apart(leader_epoch: int, error: ErrorCode) -> None:
    fetch = a_fetch(2, 100, leader_epoch=leader_epoch)
    assert a_leader().check_fetch(fetch, LOG) == RejectFetch(error)


def test_no_leader_epoch_is_not_checked() -> None:
    assert a_leader().check_fetch(a_fetch(2, 100, leader_epoch=-1), LOG) is None


def test_a_broker_that_is_no_replica_is_refused_after_the_epoch_check() -> None:  # KAFKA-14078
    leader = a_leader()
    fenced = leader.check_fetch(a_fetch(9, 100, leader_epoch=4), LOG)
    assert fenced == RejectFetch(ErrorCode.FENCED_LEADER_EPOCH)
    unknown = leader.check_fetch(a_fetch(9, 100), LOG)
    assert unknown == RejectFetch(ErrorCode.UNKNOWN_LEADER_EPOCH)
    without = leader.check_fetch(a_fetch(9, 100, leader_epoch=-1), LOG)
    assert without == RejectFetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_former_life_is_refused() -> None:  # KIP-903
    leader = a_leader(known_brokers=brokers(epochs={2: 15}))
    refused = leader.check_fetch(a_fetch((2, 14), 100), LOG)
    assert refused == RejectFetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert leader.check_fetch(a_fetch((2, 15), 100), LOG) is None


def test_a_former_life_is_refused_before_metadata_knows_the_new_one() -> None:
    leader = a_leader()
    fetches(leader, (2, 15), 100)
    refused = leader.check_fetch(a_fetch((2, 12), 100), LOG)
    assert refused == RejectFetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_replica_without_a_broker_epoch_is_refused() -> None:
    refused = a_leader().check_fetch(a_fetch((2, -1), 100), LOG)
    assert refused == RejectFetch(ErrorCode.INVALID_REQUEST)


# ---- a new leader epoch of the same leader


def test_progress_survives_a_new_epoch_of_the_same_leader() -> None:
    before = a_leader()
    before.on_append(Offset(110), START_MS)
    fetches(before, 2, 110)
    fetches(before, 3, 104)
    after = a_leader(leader_epoch=6, log_end=110, high_watermark=104, previous=before)
    assert [log_end_of(after, number) for number in (2, 3)] == [110, 104]
    assert after.epoch_start_offset == 110
    assert after.on_granted(START_MS) == ()
    assert after.high_watermark == 104


def test_a_state_with_other_replicas_forgets_and_adds() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 3, 100)
    leader.on_state(a_state((1, 2), partition_epoch=21, replicas=(1, 2, 4)), START_MS)
    assert leader.follower(member(3).broker_id) is None
    assert leader.follower(member(4).broker_id) is not None


def test_only_the_life_named_by_the_grant_may_lead() -> None:  # S2
    state = a_state()
    grant = LeaderAssignment(
        TOPIC_ID, state.leader, member((1, 12)).broker_epoch, state, LeaderSettings()
    )
    with pytest.raises(AssertionError):
        PartitionLeader(
            grant, brokers(), log_end_offset=Offset(0), high_watermark=Offset(0), now_ms=0
        )


def test_progress_is_forgotten_when_an_epoch_was_missed() -> None:
    # S27: who led in between may have made the followers cut what they had.
    before = a_leader()
    before.on_append(Offset(110), START_MS)
    for number in (2, 3):
        fetches(before, number, 110)
    after = a_leader(leader_epoch=7, log_end=120, high_watermark=100, previous=before)
    assert [log_end_of(after, number) for number in (2, 3)] == [-1, -1]
    assert after.on_granted(START_MS) == ()


def test_only_members_keep_their_progress_into_the_next_epoch() -> None:
    # S30: another replica may have left, erased its log and been added again since we last heard.
    replicas = (1, 2, 3, 4)
    before = a_leader((1, 2, 3), replicas=replicas)
    for number in (2, 3, 4):
        fetches(before, number, 100)
    after = a_leader((1, 2, 3), replicas=replicas, leader_epoch=6, previous=before)
    progress = [after.follower(BrokerId(number)) for number in (2, 3, 4)]
    assert [each and each.log_end_offset for each in progress] == [100, 100, -1]


def test_a_stuck_follower_is_not_proposed_again_while_the_watermark_stands_still() -> None:
    # Below min ISR the watermark stays at the end of the evicted one: it would be past it for ever.
    leader = a_leader(min_insync=3)
    for number in (2, 3):
        fetches(leader, number, 100)
    leader.on_append(Offset(110), START_MS)
    assert leader.on_tick(LATER_MS + 1) == (proposes(1),)
    leader.on_state(a_state((1,), partition_epoch=21, min_insync=3), LATER_MS + 2)
    later_ms = LATER_MS + 2 + JOIN_HOLD_OFF_MS
    assert leader.on_brokers(brokers(), later_ms) == ()
    assert fetches(leader, 3, 100, now_ms=later_ms) == (proposes(1, 3, partition_epoch=21),)


def test_an_expand_that_the_controller_wrote_in_its_own_order_has_not_failed() -> None:
    leader = a_leader((1, 3))
    fetches(leader, 3, 100)
    assert fetches(leader, 2, 100) == (proposes(1, 3, 2),)
    leader.on_state(a_state((1, 2, 3), partition_epoch=21), START_MS)
    assert leader.failed_isr_updates == 0
