"""When the high watermark moves, and whom it waits for."""

from tidemark_broker.replication.core.effects import LeaderEffect, LeaderSettings
from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_protocol.ids import Offset

from tests.unit.broker.replication.core.leaders import (
    LAG_MS,
    START_MS,
    a_leader,
    a_state,
    advanced,
    brokers,
    fetches,
    proposes,
)


def append_to(
    leader: PartitionLeader, end: int, now_ms: int = START_MS
) -> tuple[LeaderEffect, ...]:
    return leader.on_append(Offset(end), now_ms)


def test_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    leader = a_leader()
    append_to(leader, 110)
    assert fetches(leader, 2, 110) == ()  # 3 was not heard of yet
    assert fetches(leader, 3, 105) == (advanced(105),)
    assert fetches(leader, 3, 110) == (advanced(110),)
    assert leader.high_watermark == 110


def test_high_watermark_never_moves_back() -> None:  # I2
    leader = a_leader(high_watermark=90)
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    assert leader.high_watermark == 100
    fetches(leader, 3, 95)
    assert leader.high_watermark == 100


def test_a_new_leader_starts_at_its_own_watermark_until_every_member_has_fetched() -> None:
    leader = a_leader(log_end=100, high_watermark=80)
    assert leader.on_granted(START_MS) == ()
    assert (leader.high_watermark, leader.epoch_start_offset) == (80, 100)
    assert leader.hides_latest_offset
    fetches(leader, 2, 100)
    assert leader.high_watermark == 80
    assert fetches(leader, 3, 100) == (advanced(100),)
    assert not leader.hides_latest_offset


def test_a_lone_replica_commits_what_it_appends() -> None:
    leader = a_leader((1,), min_insync=1, replicas=(1,), high_watermark=80)
    assert leader.on_granted(START_MS) == (advanced(100),)
    assert append_to(leader, 103) == (advanced(103),)


def test_high_watermark_stays_below_min_isr_until_the_controller_has_committed() -> None:
    # Kafka: testHighWatermarkAdvanceShouldNotAdvanceWhenUnderMinISR
    leader = a_leader((1, 2), min_insync=3)
    append_to(leader, 110)
    fetches(leader, 2, 110)
    assert fetches(leader, 3, 110) == (proposes(1, 2, 3),)  # maximal 3, durable 2
    assert leader.high_watermark == 100
    assert leader.on_state(a_state((1, 2, 3), partition_epoch=21, min_insync=3), START_MS) == (
        advanced(110),
    )


def test_commit_rule_isr_commits_whatever_the_size_of_the_isr() -> None:
    settings = LeaderSettings(commits_by_isr_alone=True, replica_lag_max_ms=LAG_MS)
    leader = a_leader((1,), min_insync=2, settings=settings, replicas=(1, 2))
    assert append_to(leader, 110) == (advanced(110),)
    assert not leader.has_enough_in_sync_replicas


def test_a_proposed_member_is_waited_for_already() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    assert fetches(leader, 3, 100) == (proposes(1, 2, 3),)
    append_to(leader, 110)
    assert fetches(leader, 2, 110) == ()
    assert fetches(leader, 3, 104) == (advanced(104),)


def test_a_proposed_member_is_waited_for_even_when_fenced_or_late_meanwhile() -> None:
    # The controller may have committed it before: only a state tells (S3, I15).
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    leader.on_brokers(brokers(fenced=[3]), START_MS)
    append_to(leader, 110, START_MS + 10 * LAG_MS)
    assert fetches(leader, 2, 110, now_ms=START_MS + 10 * LAG_MS) == ()
    assert leader.high_watermark == 100


def test_an_eligible_replica_caught_up_by_time_is_waited_for() -> None:
    # Else a joiner chases a watermark that runs away under load for ever.
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)  # caught up at this moment; proposed
    leader.on_state(a_state((1, 2), partition_epoch=21), START_MS)  # refused
    append_to(leader, 110)
    assert fetches(leader, 2, 110) == ()
    assert leader.high_watermark == 100


def test_fenced_stopping_and_former_lives_are_not_waited_for() -> None:  # KAFKA-15021
    for known in (
        brokers(fenced=[3]),
        brokers(stopping=[3]),
        brokers(epochs={3: 14}),
    ):
        leader = a_leader((1, 2), known_brokers=brokers())
        fetches(leader, 2, 100)
        leader.on_brokers(known, START_MS)
        fetches(leader, 3, 100)
        append_to(leader, 110)
        assert fetches(leader, 2, 110) == (advanced(110),)


def test_a_joiner_that_stopped_fetching_is_waited_for_one_lag_window() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    fetches(leader, 3, 100)
    leader.on_state(a_state((1, 2), partition_epoch=21), START_MS)
    append_to(leader, 110)
    fetches(leader, 2, 110)
    assert leader.on_tick(START_MS + LAG_MS) == ()
    fetches(leader, 2, 110, now_ms=START_MS + LAG_MS)
    assert leader.on_tick(START_MS + LAG_MS + 1) == (advanced(110),)


def test_a_fetch_counts_for_an_entry_only_in_the_same_life() -> None:  # S2
    leader = a_leader((1, 2, (3, 13)), known_brokers=brokers(epochs={3: 14}))
    fetches(leader, 2, 100)
    append_to(leader, 110)
    fetches(leader, 2, 110)
    fetches(leader, (3, 14), 110)
    assert leader.high_watermark == 100


def test_watermark_rises_when_a_shrink_is_committed_and_not_before() -> None:
    leader = a_leader()
    append_to(leader, 110)
    fetches(leader, 2, 110, now_ms=START_MS + LAG_MS)
    fetches(leader, 3, 100, now_ms=START_MS - 1)
    assert leader.on_tick(START_MS + LAG_MS + 1) == (proposes(1, 2),)
    assert leader.high_watermark == 100
    assert leader.maximal_in_sync_replicas == a_state().in_sync_replicas
    assert leader.on_state(a_state((1, 2), partition_epoch=21), START_MS + LAG_MS + 2) == (
        advanced(110),
    )


def test_flush_always_commits_only_what_is_durable_here_too() -> None:  # S11
    settings = LeaderSettings(flushes_always=True, replica_lag_max_ms=LAG_MS)
    leader = a_leader(settings=settings, high_watermark=90)
    append_to(leader, 110)
    fetches(leader, 2, 110)
    assert fetches(leader, 3, 110) == ()
    assert leader.on_flushed(Offset(105), START_MS) == (advanced(105),)
    assert leader.on_flushed(Offset(110), START_MS) == (advanced(110),)


def test_a_new_life_that_just_began_to_copy_is_not_waited_for() -> None:
    # Its former life was caught up a moment ago; that says nothing of how far this one is.
    leader = a_leader((1, 2), known_brokers=brokers(epochs={3: 14}))
    fetches(leader, 2, 100)
    fetches(leader, (3, 13), 100)
    append_to(leader, 110)
    fetches(leader, (3, 14), 20)
    assert fetches(leader, 2, 110) == (advanced(110),)
