"""Followers whose session asks on for a partition without naming it: both sides' view of time."""

from tidemark_broker.replication.core.effects import LeaderResponse
from tidemark_broker.replication.core.follower import (
    FollowerFetch,
    LeaderContact,
    PartitionFollower,
)
from tidemark_broker.replication.core.leader import JOIN_HOLD_OFF_MS, PartitionLeader
from tidemark_broker.replication.core.remote_replica import FollowerContact
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset

from tests.unit.broker.replication.core.epoch_history import EpochHistory
from tests.unit.broker.replication.core.leaders import (
    LAG_MS,
    START_MS,
    a_fetch,
    a_leader,
    a_state,
    fetches,
    proposes,
)

LATER_MS = START_MS + 10 * LAG_MS


def requests_by_session(
    leader: PartitionLeader, broker_id: int, offset: int, *, now_ms: int = START_MS
) -> FollowerContact:
    contact = FollowerContact()
    leader.on_fetch(
        a_fetch(broker_id, offset),
        leader_end=leader.log_end_offset,
        now_ms=now_ms,
        contact=contact,
    )
    contact.last_fetch_ms = now_ms
    return contact


def test_an_idle_follower_is_as_fresh_as_its_session_when_records_come_again() -> None:
    leader = a_leader((1, 2), replicas=(1, 2))
    contact = requests_by_session(leader, 2, 100)
    contact.last_fetch_ms = LATER_MS - 400
    leader.on_append(Offset(101), LATER_MS)
    assert leader.on_tick(LATER_MS + 1) == ()
    assert leader.on_tick(LATER_MS - 400 + LAG_MS) == ()
    assert leader.on_tick(LATER_MS - 400 + LAG_MS + 1) == (proposes(1),)


def test_fetches_of_a_session_do_not_catch_up_with_what_was_appended_meanwhile() -> None:
    leader = a_leader((1, 2), replicas=(1, 2))
    contact = requests_by_session(leader, 2, 100)
    leader.on_append(Offset(101), START_MS)
    contact.last_fetch_ms = LATER_MS  # asks on from 100
    assert leader.on_tick(LATER_MS) == (proposes(1),)


def test_a_session_that_ended_is_not_heard_of_any_more() -> None:
    leader = a_leader((1, 2), replicas=(1, 2))
    contact = requests_by_session(leader, 2, 100)
    follower = leader.follower(BrokerId(2))
    assert follower is not None
    follower.on_contact_ended(contact, Offset(100))
    contact.last_fetch_ms = LATER_MS
    leader.on_append(Offset(101), LATER_MS)
    assert leader.on_tick(LATER_MS) == (proposes(1),)


def test_the_end_of_a_former_connection_does_not_end_the_session_of_the_next() -> None:
    leader = a_leader((1, 2), replicas=(1, 2))
    previous = requests_by_session(leader, 2, 100)
    present = requests_by_session(leader, 2, 100)
    follower = leader.follower(BrokerId(2))
    assert follower is not None
    follower.on_contact_ended(previous, Offset(100))
    present.last_fetch_ms = LATER_MS
    leader.on_append(Offset(101), LATER_MS)
    assert leader.on_tick(LATER_MS) == ()


def test_a_joiner_held_off_at_its_last_fetch_is_proposed_by_the_pulse() -> None:
    leader = a_leader((1, 2))
    fetches(leader, 2, 100)
    leader.on_fetch(a_fetch(3, 100), leader_end=Offset(100), now_ms=START_MS)
    leader.on_state(a_state((1, 2), partition_epoch=21), START_MS)  # refused: hold off
    contact = requests_by_session(leader, 3, 100)
    assert leader.on_pulse(START_MS + JOIN_HOLD_OFF_MS - 1) == ()
    contact.last_fetch_ms = START_MS + JOIN_HOLD_OFF_MS
    assert leader.on_pulse(START_MS + JOIN_HOLD_OFF_MS) == (proposes(1, 2, 3, partition_epoch=21),)


def test_the_pulse_of_a_complete_and_committed_partition_does_nothing() -> None:
    leader = a_leader()
    assert leader.on_pulse(LATER_MS) == ()


def test_a_follower_serves_readers_while_its_session_is_answered() -> None:
    follower = PartitionFollower(
        leader=BrokerId(1), leader_epoch=LeaderEpoch(5), high_watermark=Offset(3)
    )
    log = EpochHistory(((5, 0),), Offset(3))
    contact = LeaderContact()
    fetch = FollowerFetch(LeaderEpoch(5), Offset(3), LeaderEpoch(5))
    follower.on_nothing_new(fetch, log, START_MS, contact)
    contact.last_response_ms = LATER_MS
    assert follower.may_serve_readers(LATER_MS, lag_max_ms=LAG_MS)
    follower.on_contact_ended()
    contact.last_response_ms = LATER_MS + 2 * LAG_MS
    assert follower.may_serve_readers(LATER_MS + LAG_MS, lag_max_ms=LAG_MS)
    assert not follower.may_serve_readers(LATER_MS + LAG_MS + 1, lag_max_ms=LAG_MS)


def test_a_session_says_nothing_after_a_truncation() -> None:
    follower = PartitionFollower(
        leader=BrokerId(1), leader_epoch=LeaderEpoch(5), high_watermark=Offset(0)
    )
    log = EpochHistory(((5, 0),), Offset(3))
    contact = LeaderContact()
    fetch = FollowerFetch(LeaderEpoch(5), Offset(3), LeaderEpoch(5))
    response = LeaderResponse(ErrorCode.NONE, Offset(0), Offset(0), has_records=False)
    follower.on_response(fetch, response, log, START_MS)
    follower.on_nothing_new(fetch, log, START_MS, contact)
    contact.last_response_ms = START_MS
    follower.on_truncated(
        to_offset=Offset(2), removed_records=1, log_end_offset=Offset(2), last_epoch=LeaderEpoch(1)
    )
    assert not follower.may_serve_readers(START_MS, lag_max_ms=LAG_MS)
