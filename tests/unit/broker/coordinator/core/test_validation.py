"""Requests that are rejected before a group is looked up, and the error answer to each kind."""

from dataclasses import replace

import pytest
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.requests import (
    DeleteGroup,
    DeleteGroupResponse,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionError,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_broker.coordinator.core.validation import check_request, rejection
from tidemark_protocol.error_codes import ErrorCode

from tests.support.coordinator_harness import JOIN

ERROR = ErrorCode.NOT_COORDINATOR
SETTINGS = GroupSettings(max_name_bytes=10, max_protocols=2, max_member_bytes=20)
OFFSETS = (OffsetToCommit("t", 0, 5), OffsetToCommit("u", 7, 5))


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (replace(JOIN, member_id="m"), JoinGroupResponse(ERROR, "m")),
        (SyncGroup("g", 1, "m"), SyncGroupResponse(ERROR)),
        (Heartbeat("g", 1, "m"), HeartbeatResponse(ERROR)),
        (LeaveGroup("g", (LeavingMember("m"),)), LeaveGroupResponse(ERROR)),
        (
            OffsetCommit("g", OFFSETS),
            OffsetCommitResponse((PartitionError("t", 0, ERROR), PartitionError("u", 7, ERROR))),
        ),
        (OffsetFetch("g", None), OffsetFetchResponse(ERROR)),
        (OffsetDelete("g", (("t", 0),)), OffsetDeleteResponse(ERROR)),
        (DeleteGroup("g"), DeleteGroupResponse(ERROR)),
    ],
)
def test_each_request_has_its_error_answer(request_: GroupRequest, response: GroupResponse) -> None:
    assert rejection(request_, ERROR) == response


@pytest.mark.parametrize(
    ("request_", "is_allowed"),
    [
        (OffsetCommit("", OFFSETS), True),
        (OffsetFetch("", None), True),
        (Heartbeat("", 1, "m"), False),
        (SyncGroup("", 1, "m"), False),
        (LeaveGroup("", ()), False),
        (OffsetDelete("", ()), False),
        (DeleteGroup(""), False),
        (replace(JOIN, group_id=""), False),
    ],
)
def test_offsets_alone_may_be_of_the_empty_group(request_: GroupRequest, is_allowed: bool) -> None:
    expected = ErrorCode.NONE if is_allowed else ErrorCode.INVALID_GROUP_ID
    assert check_request(request_, SETTINGS) is expected


@pytest.mark.parametrize(
    ("group_id", "is_allowed"),
    [("g" * 10, True), ("g" * 11, False), ("\u00e9" * 5, True), ("\u00e9" * 6, False)],
)
def test_names_are_measured_in_bytes(group_id: str, is_allowed: bool) -> None:
    expected = ErrorCode.NONE if is_allowed else ErrorCode.INVALID_GROUP_ID
    for request in (OffsetCommit(group_id, OFFSETS), replace(JOIN, group_id=group_id)):
        assert check_request(request, SETTINGS) is expected


@pytest.mark.parametrize(
    ("timeout_ms", "is_allowed"),
    [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)],
)
def test_session_timeout_is_within_the_brokers_bounds(timeout_ms: int, is_allowed: bool) -> None:
    expected = ErrorCode.NONE if is_allowed else ErrorCode.INVALID_SESSION_TIMEOUT
    assert check_request(replace(JOIN, session_timeout_ms=timeout_ms), SETTINGS) is expected


def named(*names: str, bytes_of_each: int = 0) -> tuple[Protocol, ...]:
    return tuple(Protocol(name, bytes(bytes_of_each)) for name in names)


SMALL = replace(JOIN, protocols=named("a"))


@pytest.mark.parametrize(
    "join",
    [
        replace(SMALL, protocols=named("a", "b", bytes_of_each=9)),  # 20 bytes
        replace(SMALL, rebalance_timeout_ms=0),
        replace(SMALL, protocols=()),  # a group rejects it, with an error of its own
        replace(SMALL, member_id="m" * 10, client_id="c" * 10, client_host="h" * 10),
    ],
)
def test_joins_at_the_limits_are_taken(join: JoinGroup) -> None:
    assert check_request(join, SETTINGS) is ErrorCode.NONE


@pytest.mark.parametrize(
    "join",
    [
        replace(SMALL, protocols=named("a", "b", "c")),
        replace(SMALL, protocols=named("a", "a")),
        replace(SMALL, protocols=named("a", bytes_of_each=20)),
        replace(SMALL, protocols=named("a" * 11)),
        replace(SMALL, rebalance_timeout_ms=-1),
        replace(SMALL, client_id="c" * 11),
        replace(SMALL, client_host="h" * 11),
        replace(SMALL, member_id="m" * 11),
        replace(SMALL, new_member_id="m" * 11),
        replace(SMALL, group_instance_id="i" * 11),
        replace(SMALL, protocol_type="consumer123"),
    ],
)
def test_joins_beyond_the_limits_are_rejected(join: JoinGroup) -> None:
    assert check_request(join, SETTINGS) is ErrorCode.INVALID_REQUEST
