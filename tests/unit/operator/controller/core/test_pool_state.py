"""What a controller knows of one pool, and what it wants to know."""

from dataclasses import replace

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_operator.controller.core.deleted_topics import tombstone_of
from tidemark_operator.controller.core.pool_state import MAX_REPLACED, PoolState
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from tidemark_protocol.partition_state import PartitionState

from tests.support.command_player import hear_all, pool_state, slice_of
from tests.support.controller_values import REPLICA, TOPIC_ID, partition, report

LED = slice_of(partition("0@7 1@7", leader="0@7"))
LEADERLESS = slice_of(partition("", leader_epoch=6))
FIRST = BrokerId(0)


def test_a_broker_is_current_in_its_registered_epoch_only() -> None:
    pool = pool_state()
    found = [pool.current(FIRST, BrokerEpoch(epoch)) for epoch in (6, 7, 8)]
    assert found == [None, pool.brokers[FIRST], None]
    assert pool.current(BrokerId(9), BrokerEpoch(7)) is None


def test_only_the_newest_replaced_processes_are_remembered() -> None:
    pool = pool_state()
    for number in range(MAX_REPLACED + 1):
        pool.record_replaced(replace(pool.brokers[FIRST], incarnation=str(number)))
    assert list(pool.replaced[FIRST]) == [str(number) for number in range(1, MAX_REPLACED + 1)]


def test_an_applied_version_counts_for_the_image_of_this_controller_only() -> None:
    pool = pool_state(live=(0, 1), fenced=(2,))
    hear_all(pool)
    pool.soft_state_of(BrokerId(2)).applied_version = -1
    assert pool.lowest_applied_version() == pool.image.version
    pool.soft_state_of(BrokerId(1)).applied_controller_epoch = ControllerEpoch(2)
    assert [pool.applied_version(BrokerId(number)) for number in (0, 1)] == [1, -1]
    assert pool.lowest_applied_version() == -1
    assert pool_state(live=()).lowest_applied_version() == -1


def test_a_slice_that_is_older_than_the_durable_one_is_stale_until_it_is_as_new() -> None:
    pool = pool_state(LED)
    restored = slice_of(partition("0@7 1@7", leader="0@7", partition_epoch=8))
    pool.record_durable(restored, version=4)
    assert pool.is_stale_slice(REPLICA, restored.partitions[0])
    assert not pool.may_grant(REPLICA, restored.partitions[0], pool.eligibility())
    pool.record_durable(LED, version=5)
    assert not pool.is_stale_slice(REPLICA, LED.partitions[0])


def test_live_replicas_of_a_leaderless_partition_are_asked_for_newer_reports() -> None:
    pool = pool_state(LEADERLESS, live=(0, 1, 2, 3))
    pool.image.version = 2
    hear_all(pool)
    pool.record_leaderless(LEADERLESS, version=2)
    assert not pool.wants_report_from(FIRST)
    pool.soft_state_of(FIRST).report_version = 1
    pool.soft_state_of(BrokerId(3)).report_version = 1  # no replica
    assert (pool.wants_report_from(FIRST), pool.wants_report_from(BrokerId(3))) == (True, False)
    pool.record_leaderless(replace(LEADERLESS, is_retained=True), version=2)
    assert not pool.wants_report_from(FIRST)


def test_a_deletion_is_finished_once_every_broker_that_is_not_gone_applied_it() -> None:
    pool = pool_state(live=(0, 1), fenced=(2,))
    tombstone = tombstone_of([LED], pool.brokers)
    pool.tombstones[TOPIC_ID] = (tombstone, pool.image.version)
    hear_all(pool)
    assert list(pool.finished_tombstones()) == [tombstone]
    away = BrokerId(2)
    pool.soft_state_of(away).applied_version = pool.image.version - 1
    assert list(pool.finished_tombstones()) == []
    pool.brokers[away] = replace(pool.brokers[away], state=BrokerControlState.GONE)
    assert list(pool.finished_tombstones()) == [tombstone]
    del pool.brokers[away]  # it may come back with its log
    assert list(pool.finished_tombstones()) == []


def test_a_producer_id_round_is_above_those_of_brokers_and_those_reported() -> None:
    pool = pool_state()
    assert pool.next_producer_id_round() == 0
    pool.brokers[FIRST] = replace(pool.brokers[FIRST], producer_id_round=4)
    assert pool.next_producer_id_round() == 5
    pool.record_producer_id_round(8)
    pool.record_producer_id_round(6)
    assert pool.next_producer_id_round() == 9


def test_brokers_that_are_gone_are_not_pushed_and_leaving_ones_are_shown_as_stopping() -> None:
    pool = pool_state(live=(1,), fenced=(0, 2))
    gone = BrokerId(2)
    pool.brokers[gone] = replace(pool.brokers[gone], state=BrokerControlState.GONE)
    shown = [(each.broker_id, each.is_fenced, each.is_stopping) for each in pool.broker_states()]
    assert shown == [(0, True, False), (1, False, False)]
    [first, _] = pool.broker_states(leaving=[FIRST])
    assert (first.is_fenced, first.is_stopping) == (False, True)


def test_nothing_is_kept_of_a_forgotten_topic() -> None:
    pool = pool_state(LEADERLESS)
    pool.record_leaderless(LEADERLESS, version=1)
    pool.record_reported([report(9, 70)], version=1)
    assert (set(pool.leaderless_since), set(pool.behind)) == ({REPLICA}, {REPLICA})
    pool.forget_topic(TOPIC_ID)
    assert (pool.leaderless_since, pool.behind) == ({}, {})
    assert pool.held.minimum_epochs_of(REPLICA) is None


def test_a_broker_that_speaks_during_an_evaluation_is_elected_by_the_next_one() -> None:
    """Its entry is of an earlier broker epoch, and may be renewed only as of when it was heard."""
    leaderless = slice_of(partition("", eligible="1@5", leader_epoch=6))
    pool = pool_state(leaderless, live=(0, 1, 2))
    for broker_id in pool.brokers:
        pool.soft_state_of(broker_id).report_version = -1  # a take-over: no broker has reported yet
    seen = pool.eligibility()
    hear_all(pool)  # while the first write meets a conflict
    after = pool.slice_after_elections(leaderless, seen, pool.leader_counts())
    assert not after.partitions[0].has_leader
    again = pool.slice_after_elections(leaderless, pool.eligibility(), pool.leader_counts())
    assert (again.partitions[0].leader, again.partitions[0].leader_broker_epoch) == (1, 7)


def may_grant(pool: PoolState, state: PartitionState) -> bool:
    return pool.may_grant(REPLICA, state, pool.eligibility())


def test_a_leader_is_granted_once_each_live_replica_is_heard_by_push_or_by_report() -> None:
    pool = pool_state(LED, live=(0, 1), fenced=(2,))
    state = LED.partitions[0]
    for broker_id in pool.brokers:
        pool.soft_state_of(broker_id).report_version = -1
    assert not may_grant(pool, state)
    pool.soft_state_of(FIRST).report_version = 0  # registered with us
    assert not may_grant(pool, state)
    second = pool.soft_state_of(BrokerId(1))
    second.applied_controller_epoch, second.applied_version = pool.controller_epoch, 0
    assert may_grant(pool, state)  # the fenced one is waited for by nobody
    second.unannounced_replicas = frozenset({REPLICA})
    assert not may_grant(pool, state)


def test_reports_of_the_version_itself_count() -> None:
    pool = pool_state()
    notes = pool.soft_state_of(FIRST)
    notes.report, notes.report_version = {}, 5
    assert set(pool.reports_from(5)) == {FIRST}
    assert set(pool.reports_from(6)) == set()


def test_a_slice_of_a_lower_leader_epoch_is_stale_too() -> None:
    pool = pool_state(LED)
    restored = slice_of(partition("0@7 1@7", leader="0@7", leader_epoch=4))
    pool.record_durable(restored, version=4)
    assert pool.is_stale_slice(REPLICA, restored.partitions[0])


def test_a_stale_slice_is_rebuilt_once_every_live_broker_reported_since() -> None:
    pool = pool_state(LED, live=(0, 1), fenced=(2,))
    restored = slice_of(partition("0@7 1@7", leader="0@7", leader_epoch=4))
    pool.record_durable(restored, version=4)
    for broker_id in pool.brokers:
        pool.soft_state_of(broker_id).report = {}

    def after() -> PartitionState:
        found = pool.slice_after_elections(restored, pool.eligibility(), pool.leader_counts())
        return found.partitions[0]

    pool.soft_state_of(FIRST).report_version = 4
    assert after() == restored.partitions[0]
    pool.soft_state_of(BrokerId(1)).report_version = 4
    assert after().leader_epoch > LED.partitions[0].leader_epoch


def test_balance_leaves_retained_and_unconfirmed_partitions_alone() -> None:
    moved = slice_of(partition("0@7 1@7", leader="1@7"))
    pool = pool_state(moved)
    eligibility, counts = pool.eligibility(), pool.leader_counts()
    assert pool.balanced_slice(moved, eligibility, counts).partitions[0].leader == FIRST
    retained = replace(moved, is_retained=True)
    assert pool.balanced_slice(retained, eligibility, counts) is retained
    pool.soft_state_of(FIRST).report_version = -1
    assert pool.balanced_slice(moved, pool.eligibility(), counts) is moved


def test_the_election_that_ends_a_rebuild_keeps_the_rebuilds_cause() -> None:
    waiting = UncleanElection(0, UncleanCause.RESTORED, LeaderEpoch(6))
    empty = slice_of(partition("", leader_epoch=6))
    for previous, cause in (
        (waiting, UncleanCause.RESTORED),
        (replace(waiting, leader=BrokerId(1)), UncleanCause.ALL_UNCLEAN),
    ):
        value = empty.with_unclean_elections((previous,))
        pool = pool_state(value)
        pool.record_leaderless(value, version=0)
        for broker_id in pool.brokers:
            notes = pool.soft_state_of(broker_id)
            notes.report, notes.report_version = {REPLICA: report(5, 10)}, 1
        after = pool.slice_after_elections(value, pool.eligibility(), pool.leader_counts())
        assert after.partitions[0].has_leader
        assert after.recoveries[0].cause is cause


def test_a_report_of_the_wanted_version_is_not_asked_for_again() -> None:
    pool = pool_state()
    pool.image.version = 2
    hear_all(pool)
    pool.reports_wanted = 2
    assert not pool.wants_report_from(FIRST)
    pool.soft_state_of(FIRST).report_version = 1
    assert pool.wants_report_from(FIRST)
