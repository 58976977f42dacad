"""Joining, staying, leaving: the classic protocol's rules and errors."""

from dataclasses import replace

import pytest
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.requests import (
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_protocol.error_codes import ErrorCode

from tests.support.coordinator_harness import JOIN, REBALANCE_MS, SESSION_MS, a_harness, protocols

STATIC = replace(JOIN, group_instance_id="i")


def test_a_member_without_a_name_is_given_one_first() -> None:
    harness = a_harness()
    refused = harness.join(replace(JOIN, requires_member_id=True))
    assert refused == JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "m1")
    request_id = harness.send_join(replace(JOIN, member_id="m1"))
    harness.wait(0)
    assert harness.joined(request_id).error is ErrorCode.NONE
    assert harness.joined(request_id).leader_id == "m1"


def test_a_name_given_out_holds_for_a_session() -> None:
    harness = a_harness()
    harness.join(replace(JOIN, requires_member_id=True))
    harness.wait(SESSION_MS)
    assert harness.join(replace(JOIN, member_id="m1")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.coordinator.list_groups() == (ErrorCode.NONE, ())


@pytest.mark.parametrize(
    ("join", "error"),
    [
        (replace(JOIN, group_id=""), ErrorCode.INVALID_GROUP_ID),
        (replace(JOIN, group_id="g" * 2000), ErrorCode.INVALID_GROUP_ID),
        (replace(JOIN, session_timeout_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (replace(JOIN, session_timeout_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (replace(JOIN, member_id="who"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(JOIN, protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (replace(JOIN, protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (replace(JOIN, protocols=protocols("range", "range")), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, protocols=(Protocol("r", bytes(300_000)),)), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, client_id="c" * 2000), ErrorCode.INVALID_REQUEST),
    ],
)
def test_joins_that_are_refused(join: object, error: ErrorCode) -> None:
    assert isinstance(join, type(JOIN))
    assert a_harness().join(join).error is error


def test_who_shares_no_protocol_with_the_others_stays_out() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    other = replace(JOIN, protocols=protocols("sticky"))
    assert harness.join(other).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connect = replace(JOIN, protocol_type="connect")
    assert harness.join(connect).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_with_most_votes_of_those_that_all_know() -> None:
    harness = a_harness()
    joined = harness.stable(
        replace(JOIN, protocols=protocols("a", "b", "c")),
        replace(JOIN, protocols=protocols("b", "a")),
        replace(JOIN, protocols=protocols("x", "b", "a")),
    )
    assert {response.protocol for response in joined} == {"b"}


def test_only_the_leader_is_told_the_members() -> None:
    first, second = a_harness().stable(JOIN, JOIN)
    assert [member.member_id for member in first.members] == ["m1", "m2"]
    assert second.members == ()
    assert first.leader_id == second.leader_id == "m1"


def test_a_first_rebalance_waits_for_more_members_but_not_for_ever() -> None:
    harness = a_harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = harness.send_join(replace(JOIN, rebalance_timeout_ms=7_000))
    harness.wait(2_000)
    second = harness.send_join(replace(JOIN, rebalance_timeout_ms=7_000))
    harness.wait(2_000)
    third = harness.send_join(replace(JOIN, rebalance_timeout_ms=7_000))
    harness.wait(2_500)
    assert first not in harness.answers
    harness.wait(500)
    assert {harness.joined(id_).generation_id for id_ in (first, second, third)} == {1}


def test_a_full_group_takes_nobody() -> None:
    harness = a_harness(GroupSettings(initial_rebalance_delay_ms=0, max_members=2))
    harness.stable(JOIN, JOIN)
    assert harness.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_names_given_out_fill_a_group_too() -> None:
    harness = a_harness(GroupSettings(initial_rebalance_delay_ms=0, max_members=2))
    unnamed = replace(JOIN, requires_member_id=True)
    errors = [harness.join(unnamed).error for _ in range(3)]
    assert errors[2] is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_new_member_makes_the_others_come_back() -> None:
    harness = a_harness()
    (first,) = harness.stable(JOIN)
    second = harness.send_join()
    assert harness.heartbeat("m1", 1) == "REBALANCE_IN_PROGRESS"
    again = harness.send_join(replace(JOIN, member_id=first.member_id))
    assert harness.joined(again).generation_id == harness.joined(second).generation_id == 2
    assert harness.joined(second).leader_id == "m1"


def test_who_does_not_come_back_in_time_is_out_and_another_leads() -> None:
    harness = a_harness()
    harness.stable(replace(JOIN, session_timeout_ms=200_000))
    second = harness.send_join()
    harness.wait(REBALANCE_MS)
    assert harness.joined(second).leader_id == "m2"
    assert harness.heartbeat("m1", 1) == "UNKNOWN_MEMBER_ID"


def test_who_is_silent_for_a_session_is_out() -> None:
    harness = a_harness()
    harness.stable(JOIN, JOIN)
    harness.wait(SESSION_MS - 1)
    assert harness.heartbeat("m1", 1) == "NONE"
    harness.wait(1)
    assert harness.heartbeat("m2", 1) == "UNKNOWN_MEMBER_ID"
    assert harness.state() == "PreparingRebalance"


def test_the_last_one_out_leaves_an_empty_group() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    harness.leave("m1")
    assert harness.state() == "Empty"
    assert harness.heartbeat("m1", 1) == "UNKNOWN_MEMBER_ID"


def test_who_has_the_assignment_late_holds_nobody_up() -> None:
    harness = a_harness()
    request_ids = [harness.send_join(replace(JOIN, session_timeout_ms=200_000)) for _ in range(2)]
    harness.wait(0)
    harness.sync(harness.joined(request_ids[0]))
    harness.wait(REBALANCE_MS)
    assert harness.heartbeat("m2", 1) == "UNKNOWN_MEMBER_ID"
    assert harness.state() == "PreparingRebalance"


def test_heartbeats_of_another_generation_and_of_strangers() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    assert harness.heartbeat("m1", 1) == "NONE"
    assert harness.heartbeat("m1", 0) == "ILLEGAL_GENERATION"
    assert harness.heartbeat("who", 1) == "UNKNOWN_MEMBER_ID"


def test_an_assignment_comes_from_the_leader_alone() -> None:
    harness = a_harness()
    first, second = harness.send_join(), harness.send_join()
    harness.wait(0)
    harness.send(SyncGroup("g", 1, "m2", assignments=(("m1", b"stolen"), ("m2", b"stolen"))))
    assert harness.state() == "CompletingRebalance"
    assert harness.sync(harness.joined(first), m1=b"1", m2=b"2").assignment == b"1"
    assert harness.sync(harness.joined(second)).assignment == b"2"


@pytest.mark.parametrize(
    ("sync", "error"),
    [
        (SyncGroup("g", 0, "m1"), ErrorCode.ILLEGAL_GENERATION),
        (SyncGroup("g", 1, "who"), ErrorCode.UNKNOWN_MEMBER_ID),
        (SyncGroup("x", 1, "m1"), ErrorCode.UNKNOWN_MEMBER_ID),
        (SyncGroup("g", 1, "m1", protocol="sticky"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SyncGroup("g", 1, "m1", protocol_type="x"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SyncGroup("g", 1, "m1", "i"), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_syncs_that_are_refused(sync: SyncGroup, error: ErrorCode) -> None:
    harness = a_harness()
    harness.stable(JOIN)
    assert harness.ask(sync) == SyncGroupResponse(error)


def test_an_assignment_is_told_only_once_the_log_holds_it() -> None:
    harness = a_harness()
    joined = harness.send_join()
    harness.wait(0)
    harness.commits_at_once = False
    sync = harness.send(SyncGroup("g", 1, "m1", assignments=(("m1", b"mine"),)))
    assert sync not in harness.answers
    harness.commit()
    assert harness.answers[sync] == SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"mine")
    assert harness.joined(joined).generation_id == 1


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_written_is_made_again(
    error: ErrorCode, reported: ErrorCode
) -> None:
    harness = a_harness()
    harness.send_join()
    harness.wait(0)
    harness.commits_at_once = False
    sync = harness.send(SyncGroup("g", 1, "m1"))
    harness.reject(error)
    assert harness.answers[sync] == SyncGroupResponse(reported)
    assert harness.state() == "PreparingRebalance"


def test_an_assignment_of_a_generation_that_is_over_changes_nothing() -> None:
    harness = a_harness()
    harness.send_join()
    harness.wait(0)
    harness.commits_at_once = False
    sync = harness.send(SyncGroup("g", 1, "m1"))
    harness.send_join()
    assert harness.answers[sync] == SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.commit()
    assert harness.state() == "PreparingRebalance"


def test_a_lost_join_answer_is_given_again() -> None:
    harness = a_harness()
    first, second = harness.send_join(), harness.send_join()
    harness.wait(0)
    again = harness.join(replace(JOIN, member_id="m2"))
    assert again == harness.joined(second)
    assert harness.joined(first).generation_id == 1


def test_a_leader_that_joins_again_starts_a_rebalance_and_a_follower_does_not() -> None:
    harness = a_harness()
    harness.stable(JOIN, JOIN)
    assert harness.join(replace(JOIN, member_id="m2")).generation_id == 1
    harness.send_join(replace(JOIN, member_id="m1"))
    assert harness.state() == "PreparingRebalance"


def test_a_follower_that_knows_something_new_starts_a_rebalance() -> None:
    harness = a_harness()
    harness.stable(JOIN, JOIN)
    harness.send_join(replace(JOIN, member_id="m2", protocols=protocols("range", topics=("u",))))
    assert harness.state() == "PreparingRebalance"


def test_members_leave_in_a_batch() -> None:
    harness = a_harness()
    harness.stable(JOIN, STATIC)
    requested = (LeavingMember("m1"), LeavingMember("who"), LeavingMember("", "i"))
    response = harness.ask(LeaveGroup("g", requested))
    assert isinstance(response, LeaveGroupResponse)
    assert [error.name for _, error in response.members] == ["NONE", "UNKNOWN_MEMBER_ID", "NONE"]
    assert harness.state() == "Empty"


def test_everybody_is_unknown_to_a_group_that_is_not_there() -> None:
    response = a_harness().ask(LeaveGroup("g", (LeavingMember("m"),)))
    assert response == LeaveGroupResponse(
        ErrorCode.NONE, ((LeavingMember("m"), ErrorCode.UNKNOWN_MEMBER_ID),)
    )


# Static members


def test_a_static_member_that_comes_back_disturbs_nobody_and_fences_its_former_self() -> None:
    harness = a_harness()
    harness.stable(JOIN, STATIC)
    back = harness.join(STATIC)
    assert (back.error, back.member_id, back.generation_id) == (ErrorCode.NONE, "m3", 1)
    assert harness.state() == "Stable"
    assert harness.sync(back).assignment == b"yours"
    assert harness.heartbeat("m2", 1, "i") == "FENCED_INSTANCE_ID"
    refused = harness.join(replace(STATIC, member_id="m2"))
    assert refused.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_comes_back_assigns_nothing_anew() -> None:
    harness = a_harness()
    harness.stable(STATIC, JOIN)
    back = harness.join(STATIC)
    assert back.skip_assignment
    assert back.leader_id == back.member_id == "m3"
    assert [member.member_id for member in back.members] == ["m3", "m2"]


def test_an_older_static_leader_is_told_that_it_follows() -> None:
    harness = a_harness()
    harness.stable(STATIC, JOIN)
    back = harness.join(replace(STATIC, may_skip_assignment=False))
    assert (back.leader_id, back.members, back.skip_assignment) == ("m1", (), False)


def test_a_static_member_that_cannot_be_renamed_stays_what_it_was() -> None:
    harness = a_harness()
    harness.stable(JOIN, STATIC)
    harness.commits_at_once = False
    back = harness.send_join(STATIC)
    harness.reject(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.joined(back).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.heartbeat("m2", 1, "i") == "NONE"


def test_a_static_member_may_be_away_for_a_rebalance() -> None:
    harness = a_harness()
    slow = replace(STATIC, session_timeout_ms=200_000)
    harness.stable(slow)
    second = harness.send_join()
    harness.wait(REBALANCE_MS)
    assert harness.joined(second).leader_id == "m2"
    assert [member.member_id for member in harness.joined(second).members] == ["m1", "m2"]


def test_two_clients_with_one_instance_id_the_later_one_stays() -> None:
    harness = a_harness(GroupSettings())
    first = harness.send_join(STATIC)
    second = harness.send_join(STATIC)
    assert harness.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    harness.wait(REBALANCE_MS)
    assert harness.joined(second).generation_id == 1


def test_a_join_sent_twice_is_answered_twice() -> None:
    harness = a_harness()
    harness.stable(JOIN, JOIN)
    first = harness.send_join(replace(JOIN, member_id="m1"))
    harness.send_join(replace(JOIN, member_id="m1"))
    assert harness.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
