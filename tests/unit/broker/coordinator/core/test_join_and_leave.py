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
    rig = a_harness()
    refused = rig.join(replace(JOIN, requires_member_id=True))
    assert refused == JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "m1")
    request_id = rig.send_join(replace(JOIN, member_id="m1"))
    rig.wait(0)
    assert rig.joined(request_id).error is ErrorCode.NONE
    assert rig.joined(request_id).leader_id == "m1"


def test_a_name_given_out_holds_for_a_session() -> None:
    rig = a_harness()
    rig.join(replace(JOIN, requires_member_id=True))
    rig.wait(SESSION_MS)
    assert rig.join(replace(JOIN, member_id="m1")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.coordinator.list_groups() == (ErrorCode.NONE, ())


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
    rig = a_harness()
    rig.stable(JOIN)
    other = replace(JOIN, protocols=protocols("sticky"))
    assert rig.join(other).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connect = replace(JOIN, protocol_type="connect")
    assert rig.join(connect).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_with_most_votes_of_those_that_all_know() -> None:
    rig = a_harness()
    joined = rig.stable(
        replace(JOIN, protocols=protocols("a", "b", "c")),
        replace(JOIN, protocols=protocols("b", "a")),
        replace(JOIN, protocols=protocols("x", "b", "a")),
    )
    assert {answer.protocol for answer in joined} == {"b"}


def test_only_the_leader_is_told_the_members() -> None:
    first, second = a_harness().stable(JOIN, JOIN)
    assert [member.member_id for member in first.members] == ["m1", "m2"]
    assert second.members == ()
    assert first.leader_id == second.leader_id == "m1"


def test_a_first_rebalance_waits_for_more_members_but_not_for_ever() -> None:
    rig = a_harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = rig.send_join(replace(JOIN, rebalance_timeout_ms=7_000))
    rig.wait(2_000)
    second = rig.send_join(replace(JOIN, rebalance_timeout_ms=7_000))
    rig.wait(2_000)
    third = rig.send_join(replace(JOIN, rebalance_timeout_ms=7_000))
    rig.wait(2_500)
    assert first not in rig.answers
    rig.wait(500)
    assert {rig.joined(id_).generation_id for id_ in (first, second, third)} == {1}


def test_a_full_group_takes_nobody() -> None:
    rig = a_harness(GroupSettings(initial_rebalance_delay_ms=0, max_members=2))
    rig.stable(JOIN, JOIN)
    assert rig.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_names_given_out_fill_a_group_too() -> None:
    rig = a_harness(GroupSettings(initial_rebalance_delay_ms=0, max_members=2))
    unnamed = replace(JOIN, requires_member_id=True)
    errors = [rig.join(unnamed).error for _ in range(3)]
    assert errors[2] is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_new_member_makes_the_others_come_back() -> None:
    rig = a_harness()
    (first,) = rig.stable(JOIN)
    second = rig.send_join()
    assert rig.heartbeat("m1", 1) == "REBALANCE_IN_PROGRESS"
    again = rig.send_join(replace(JOIN, member_id=first.member_id))
    assert rig.joined(again).generation_id == rig.joined(second).generation_id == 2
    assert rig.joined(second).leader_id == "m1"


def test_who_does_not_come_back_in_time_is_out_and_another_leads() -> None:
    rig = a_harness()
    rig.stable(replace(JOIN, session_timeout_ms=200_000))
    second = rig.send_join()
    rig.wait(REBALANCE_MS)
    assert rig.joined(second).leader_id == "m2"
    assert rig.heartbeat("m1", 1) == "UNKNOWN_MEMBER_ID"


def test_who_is_silent_for_a_session_is_out() -> None:
    rig = a_harness()
    rig.stable(JOIN, JOIN)
    rig.wait(SESSION_MS - 1)
    assert rig.heartbeat("m1", 1) == "NONE"
    rig.wait(1)
    assert rig.heartbeat("m2", 1) == "UNKNOWN_MEMBER_ID"
    assert rig.state() == "PreparingRebalance"


def test_the_last_one_out_leaves_an_empty_group() -> None:
    rig = a_harness()
    rig.stable(JOIN)
    rig.leave("m1")
    assert rig.state() == "Empty"
    assert rig.heartbeat("m1", 1) == "UNKNOWN_MEMBER_ID"


def test_who_has_the_assignment_late_holds_nobody_up() -> None:
    rig = a_harness()
    request_ids = [rig.send_join(replace(JOIN, session_timeout_ms=200_000)) for _ in range(2)]
    rig.wait(0)
    rig.sync(rig.joined(request_ids[0]))
    rig.wait(REBALANCE_MS)
    assert rig.heartbeat("m2", 1) == "UNKNOWN_MEMBER_ID"
    assert rig.state() == "PreparingRebalance"


def test_heartbeats_of_another_generation_and_of_strangers() -> None:
    rig = a_harness()
    rig.stable(JOIN)
    assert rig.heartbeat("m1", 1) == "NONE"
    assert rig.heartbeat("m1", 0) == "ILLEGAL_GENERATION"
    assert rig.heartbeat("who", 1) == "UNKNOWN_MEMBER_ID"


def test_an_assignment_comes_from_the_leader_alone() -> None:
    rig = a_harness()
    first, second = rig.send_join(), rig.send_join()
    rig.wait(0)
    rig.send(SyncGroup("g", 1, "m2", assignments=(("m1", b"stolen"), ("m2", b"stolen"))))
    assert rig.state() == "CompletingRebalance"
    assert rig.sync(rig.joined(first), m1=b"1", m2=b"2").assignment == b"1"
    assert rig.sync(rig.joined(second)).assignment == b"2"


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
    rig = a_harness()
    rig.stable(JOIN)
    assert rig.ask(sync) == SyncGroupResponse(error)


def test_an_assignment_is_told_only_once_the_log_holds_it() -> None:
    rig = a_harness()
    joined = rig.send_join()
    rig.wait(0)
    rig.commits_at_once = False
    sync = rig.send(SyncGroup("g", 1, "m1", assignments=(("m1", b"mine"),)))
    assert sync not in rig.answers
    rig.commit()
    assert rig.answers[sync] == SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"mine")
    assert rig.joined(joined).generation_id == 1


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
    rig = a_harness()
    rig.send_join()
    rig.wait(0)
    rig.commits_at_once = False
    sync = rig.send(SyncGroup("g", 1, "m1"))
    rig.reject(error)
    assert rig.answers[sync] == SyncGroupResponse(reported)
    assert rig.state() == "PreparingRebalance"


def test_an_assignment_of_a_generation_that_is_over_changes_nothing() -> None:
    rig = a_harness()
    rig.send_join()
    rig.wait(0)
    rig.commits_at_once = False
    sync = rig.send(SyncGroup("g", 1, "m1"))
    rig.send_join()
    assert rig.answers[sync] == SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    rig.commit()
    assert rig.state() == "PreparingRebalance"


def test_a_lost_join_answer_is_given_again() -> None:
    rig = a_harness()
    first, second = rig.send_join(), rig.send_join()
    rig.wait(0)
    again = rig.join(replace(JOIN, member_id="m2"))
    assert again == rig.joined(second)
    assert rig.joined(first).generation_id == 1


def test_a_leader_that_joins_again_starts_a_rebalance_and_a_follower_does_not() -> None:
    rig = a_harness()
    rig.stable(JOIN, JOIN)
    assert rig.join(replace(JOIN, member_id="m2")).generation_id == 1
    rig.send_join(replace(JOIN, member_id="m1"))
    assert rig.state() == "PreparingRebalance"


def test_a_follower_that_knows_something_new_starts_a_rebalance() -> None:
    rig = a_harness()
    rig.stable(JOIN, JOIN)
    rig.send_join(replace(JOIN, member_id="m2", protocols=protocols("range", topics=("u",))))
    assert rig.state() == "PreparingRebalance"


def test_members_leave_in_a_batch() -> None:
    rig = a_harness()
    rig.stable(JOIN, STATIC)
    requested = (LeavingMember("m1"), LeavingMember("who"), LeavingMember("", "i"))
    answer = rig.ask(LeaveGroup("g", requested))
    assert isinstance(answer, LeaveGroupResponse)
    assert [error.name for _, error in answer.members] == ["NONE", "UNKNOWN_MEMBER_ID", "NONE"]
    assert rig.state() == "Empty"


def test_everybody_is_unknown_to_a_group_that_is_not_there() -> None:
    answer = a_harness().ask(LeaveGroup("g", (LeavingMember("m"),)))
    assert answer == LeaveGroupResponse(
        ErrorCode.NONE, ((LeavingMember("m"), ErrorCode.UNKNOWN_MEMBER_ID),)
    )


# Static members


def test_a_static_member_that_comes_back_disturbs_nobody_and_fences_its_former_self() -> None:
    rig = a_harness()
    rig.stable(JOIN, STATIC)
    back = rig.join(STATIC)
    assert (back.error, back.member_id, back.generation_id) == (ErrorCode.NONE, "m3", 1)
    assert rig.state() == "Stable"
    assert rig.sync(back).assignment == b"yours"
    assert rig.heartbeat("m2", 1, "i") == "FENCED_INSTANCE_ID"
    refused = rig.join(replace(STATIC, member_id="m2"))
    assert refused.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_comes_back_assigns_nothing_anew() -> None:
    rig = a_harness()
    rig.stable(STATIC, JOIN)
    back = rig.join(STATIC)
    assert back.skip_assignment
    assert back.leader_id == back.member_id == "m3"
    assert [member.member_id for member in back.members] == ["m3", "m2"]


def test_an_older_static_leader_is_told_that_it_follows() -> None:
    rig = a_harness()
    rig.stable(STATIC, JOIN)
    back = rig.join(replace(STATIC, may_skip_assignment=False))
    assert (back.leader_id, back.members, back.skip_assignment) == ("m1", (), False)


def test_a_static_member_that_cannot_be_renamed_stays_what_it_was() -> None:
    rig = a_harness()
    rig.stable(JOIN, STATIC)
    rig.commits_at_once = False
    back = rig.send_join(STATIC)
    rig.reject(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert rig.joined(back).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.heartbeat("m2", 1, "i") == "NONE"


def test_a_static_member_may_be_away_for_a_rebalance() -> None:
    rig = a_harness()
    slow = replace(STATIC, session_timeout_ms=200_000)
    rig.stable(slow)
    second = rig.send_join()
    rig.wait(REBALANCE_MS)
    assert rig.joined(second).leader_id == "m2"
    assert [member.member_id for member in rig.joined(second).members] == ["m1", "m2"]


def test_two_clients_with_one_instance_id_the_later_one_stays() -> None:
    rig = a_harness(GroupSettings())
    first = rig.send_join(STATIC)
    second = rig.send_join(STATIC)
    assert rig.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    rig.wait(REBALANCE_MS)
    assert rig.joined(second).generation_id == 1


def test_a_join_sent_twice_is_answered_twice() -> None:
    rig = a_harness()
    rig.stable(JOIN, JOIN)
    first = rig.send_join(replace(JOIN, member_id="m1"))
    rig.send_join(replace(JOIN, member_id="m1"))
    assert rig.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
