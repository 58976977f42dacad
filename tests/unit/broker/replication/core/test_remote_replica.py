"""A follower's progress at its leader: when it counts as caught up, and whose fetches count."""

import pytest
from tidemark_broker.replication.core.remote_replica import (
    NEVER_MS,
    FollowerContact,
    RemoteReplica,
    in_turn,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId, Offset

from tests.unit.broker.replication.core.leaders import member

EPOCH, LATER_EPOCH = 12, 13


def fetch(
    replica: RemoteReplica,
    offset: int,
    *,
    leader_end: int,
    now_ms: int,
    broker_epoch: int = EPOCH,
    contact: FollowerContact | None = None,
) -> None:
    replica.on_fetch(
        Offset(offset),
        BrokerEpoch(broker_epoch),
        leader_end=Offset(leader_end),
        now_ms=now_ms,
        contact=contact,
    )


def is_caught_up(replica: RemoteReplica, now_ms: int, leader_end: int = 1000) -> bool:
    return replica.is_caught_up(leader_end=Offset(leader_end), now_ms=now_ms, lag_max_ms=100)


def test_replica_that_never_fetched_is_not_caught_up() -> None:
    assert not is_caught_up(RemoteReplica(), 0)


def test_fetch_at_the_leaders_end_counts_for_one_lag_window() -> None:
    replica = RemoteReplica()
    fetch(replica, 10, leader_end=10, now_ms=500)
    assert replica.last_caught_up_ms == 500
    assert is_caught_up(replica, 600)
    assert not is_caught_up(replica, 601)
    assert is_caught_up(replica, 10_000, leader_end=10)  # equal ends, whatever the time


def test_fetch_at_the_end_of_the_fetch_before_was_caught_up_then() -> None:  # KAFKA-4485
    replica = RemoteReplica()
    fetch(replica, 5, leader_end=10, now_ms=500)
    assert replica.last_caught_up_ms == NEVER_MS
    fetch(replica, 10, leader_end=20, now_ms=600)
    assert replica.last_caught_up_ms == 500
    fetch(replica, 19, leader_end=30, now_ms=700)
    assert replica.last_caught_up_ms == 500


def test_fetches_of_another_broker_epoch_do_not_count() -> None:  # S2
    replica = RemoteReplica()
    fetch(replica, 10, leader_end=10, now_ms=500)
    fetch(replica, 10, leader_end=20, now_ms=510, broker_epoch=LATER_EPOCH)
    assert (replica.broker_epoch, replica.log_end_offset) == (LATER_EPOCH, 10)
    assert not is_caught_up(replica, 510)


def test_grace_of_a_member_stays_until_its_first_fetch_and_after_it() -> None:
    replica = RemoteReplica(last_caught_up_ms=500)
    fetch(replica, 5, leader_end=10, now_ms=510)
    assert replica.last_caught_up_ms == 500


def test_session_without_new_fetches_keeps_the_times_fresh() -> None:
    replica, contact = RemoteReplica(), FollowerContact()
    fetch(replica, 10, leader_end=10, now_ms=500, contact=contact)
    contact.last_fetch_ms = 900
    replica.record_contact(Offset(10))
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (900, 900)
    contact.last_fetch_ms = 950
    replica.record_contact(Offset(11))  # of a leader that has more
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (950, 900)


def test_ended_session_is_recorded_once_more_and_then_no_longer() -> None:
    replica, contact = RemoteReplica(), FollowerContact()
    fetch(replica, 10, leader_end=10, now_ms=500, contact=contact)
    contact.last_fetch_ms = 600
    replica.on_contact_ended(FollowerContact(), Offset(10))
    assert replica.contact is contact
    replica.on_contact_ended(contact, Offset(10))
    contact.last_fetch_ms = 900
    replica.record_contact(Offset(10))
    assert replica.last_fetch_ms == 600


def test_stall_of_the_leader_is_excluded_and_never_moves_times_ahead_of_now() -> None:  # S21
    replica = RemoteReplica()
    replica.on_leader_stall(50, 1000)
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (NEVER_MS, NEVER_MS)
    fetch(replica, 10, leader_end=10, now_ms=500)
    replica.on_leader_stall(300, 1000)
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (800, 800)
    replica.on_leader_stall(300, 1000)
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (1000, 1000)


@pytest.mark.parametrize(
    ("rejected", "order"),
    [(None, (1, 2, 3)), (1, (2, 3, 1)), (2, (3, 1, 2)), (3, (1, 2, 3)), (9, (1, 2, 3))],
)
def test_replica_that_was_rejected_comes_last(rejected: int | None, order: tuple[int, ...]) -> None:
    replicas = tuple(BrokerId(number) for number in (1, 2, 3))
    assert in_turn(replicas, None if rejected is None else member(rejected)) == order
    assert in_turn((), None if rejected is None else member(rejected)) == ()
