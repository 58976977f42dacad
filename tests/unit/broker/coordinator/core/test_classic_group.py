"""One group of the classic protocol: its members, deadlines, commits and record."""

from dataclasses import replace

import pytest
from tidemark_broker.coordinator.core.classic_group import ClassicGroup, GroupState
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.member import new_member
from tidemark_broker.coordinator.core.offsets_records import (
    GroupKey,
    GroupMetadata,
    decode_metadata,
    encode_key,
)
from tidemark_broker.coordinator.core.pending_appends import PendingAppends
from tidemark_broker.coordinator.core.requests import (
    AppendRecords,
    ClockReading,
    GroupCounters,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    PartitionError,
    Response,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

from tests.support.coordinator_harness import (
    JOIN,
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    Harness,
    a_harness,
    protocols,
)

NOW = ClockReading(1_000, 9_000_000)


def after(wait_ms: int) -> ClockReading:
    return ClockReading(NOW.monotonic_ms + wait_ms, NOW.wall_ms + wait_ms)


def test_members_commit_in_their_generation_only() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    assert harness.commit_offset(5, "m1", 1) == "NONE"
    assert harness.commit_offset(5, "m1", 0) == "ILLEGAL_GENERATION"
    assert harness.commit_offset(5, "who", 1) == "UNKNOWN_MEMBER_ID"
    assert harness.commit_offset(5) == "UNKNOWN_MEMBER_ID"


def test_a_fenced_static_member_commits_nothing() -> None:
    harness = a_harness()
    static = replace(JOIN, group_instance_id="i")
    harness.stable(static)
    harness.join(static)
    response = harness.ask(OffsetCommit("g", (OffsetToCommit("t", 0, 1),), 1, "m1", "i"))
    assert response == OffsetCommitResponse((PartitionError("t", 0, ErrorCode.FENCED_INSTANCE_ID),))


def test_no_commit_before_the_assignment_and_one_during_the_next_rebalance() -> None:
    harness = a_harness()
    harness.send_join()
    harness.wait(0)
    assert harness.commit_offset(5, "m1", 1) == "REBALANCE_IN_PROGRESS"
    harness.ask(SyncGroup("g", 1, "m1"))
    harness.send_join()
    assert harness.state() == "PreparingRebalance"
    assert harness.commit_offset(6, "m1", 1) == "NONE"


def test_a_commit_shows_that_its_member_lives() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    harness.wait(SESSION_MS - 1)
    harness.commit_offset(5, "m1", 1)
    harness.wait(SESSION_MS - 1)
    assert harness.heartbeat("m1", 1) == "NONE"


def test_an_assignment_too_large_for_a_record_is_refused() -> None:
    harness: Harness = a_harness()
    harness.send_join()
    harness.wait(0)
    response = harness.ask(SyncGroup("g", 1, "m1", assignments=(("m1", bytes(1_000_000)),)))
    assert response == SyncGroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR)


def a_group(settings: GroupSettings = SETTINGS) -> ClassicGroup:
    pending = PendingAppends(LeaderEpoch(1), 0)
    return ClassicGroup("g", settings, pending, NOW, counts=GroupCounters())


def a_group_of(*joins: JoinGroup) -> ClassicGroup:
    """A group whose members m1, m2, ... are known and do nothing yet."""
    group = a_group()
    group.protocol_type, group.protocol = "consumer", "range"
    for number, join in enumerate(joins, start=1):
        member = new_member(f"m{number}", join)
        group.members[member.member_id] = member
        if member.group_instance_id is not None:
            group.static_members[member.group_instance_id] = member.member_id
        group.believe_in(member, NOW)
    group.leader_id = "m1"
    return group


def stored(group: ClassicGroup) -> GroupMetadata:
    record = group.record(NOW)
    assert record.key == encode_key(GroupKey("g"))
    assert record.value is not None
    return decode_metadata(record.value)


def test_new_group_is_simple_and_empty_and_nothing_is_due() -> None:
    group = a_group()
    assert group.state is GroupState.EMPTY
    assert group.is_simple
    assert (group.size_bytes, group.rebalance_timeout_ms, group.next_deadline_ms) == (0, 0, None)


def test_next_deadline_is_the_earliest_of_sessions_and_of_ids_given_out() -> None:
    group = a_group_of(JOIN, replace(JOIN, session_timeout_ms=SESSION_MS - 2))
    assert group.next_deadline_ms == NOW.monotonic_ms + SESSION_MS - 2
    group.pending_members["m3"] = NOW.monotonic_ms + 5
    assert group.next_deadline_ms == NOW.monotonic_ms + 5
    group.on_tick(after(4))
    assert group.pending_members
    group.on_tick(after(5))
    assert not group.pending_members


def test_group_supports_what_all_its_members_do() -> None:
    assert a_group().supports("consumer", protocols("any"))
    assert not a_group().supports("consumer", ())
    assert not a_group().supports("", protocols("any"))
    joins = [replace(JOIN, protocols=protocols(*names)) for names in (("a", "b"), ("b", "c"))]
    group = a_group_of(*joins)
    assert group.supports("consumer", protocols("x", "b"))
    assert not group.supports("consumer", protocols("a", "c"))
    assert not group.supports("connect", protocols("b"))


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error"),
    [
        ("m1", None, ErrorCode.NONE),
        ("m2", "i", ErrorCode.NONE),
        ("m2", None, ErrorCode.NONE),
        ("m1", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("who", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("m1", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("who", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_are_known_by_id_and_static_ones_by_their_newest_id(
    member_id: str, instance_id: str | None, error: ErrorCode
) -> None:
    group = a_group_of(JOIN, replace(JOIN, group_instance_id="i"))
    assert group.check_member(member_id, instance_id) is error


def test_first_rebalance_waits_for_its_delay_and_at_most_for_the_members_timeout() -> None:
    for delay_ms, waited_ms in ((3_000, 3_000), (90_000, REBALANCE_MS)):
        group = a_group_of(replace(JOIN, session_timeout_ms=2 * REBALANCE_MS))
        group.settings = GroupSettings(initial_rebalance_delay_ms=delay_ms)
        group.members["m1"].join_request_id = 7
        group.prepare_rebalance(NOW)
        group.on_tick(after(waited_ms - 1))
        assert group.state is GroupState.PREPARING_REBALANCE
        group.on_tick(after(waited_ms))
        assert (group.state, group.generation_id) == (GroupState.COMPLETING_REBALANCE, 1)


def test_generation_without_members_is_stored_as_empty() -> None:
    group = a_group_of(JOIN)
    group.prepare_rebalance(NOW)  # the member does not rejoin
    group.on_tick(after(REBALANCE_MS))
    assert (group.state, group.generation_id, group.protocol) == (GroupState.EMPTY, 1, None)
    (append,) = [each for each in group.pending_appends.take() if isinstance(each, AppendRecords)]
    value = append.records[0].value
    assert value is not None
    assert decode_metadata(value).members == ()


def test_member_that_left_is_answered_and_the_next_one_leads() -> None:
    group = a_group_of(JOIN, replace(JOIN, group_instance_id="i"))
    group.members["m1"].sync_request_id = 7
    group.forget_member(group.members["m1"])
    assert group.pending_appends.take() == (
        Response(7, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID)),
    )
    assert group.leader_id == "m2"
    group.members["m2"].join_request_id = 8
    group.forget_member(group.members["m2"])
    assert group.pending_appends.take() == (
        Response(8, JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "m2")),
    )
    assert not group.leader_id and not group.static_members


def test_loaded_group_writes_the_same_record_and_is_stable() -> None:
    group = a_group_of(JOIN, replace(JOIN, group_instance_id="i"))
    group.generation_id = 4
    group.members["m2"].assignment = b"mine"
    metadata = stored(group)
    loaded = a_group()
    loaded.load(metadata, after(100))
    assert stored(loaded) == metadata
    assert (loaded.state, loaded.leader_id) == (GroupState.STABLE, "m1")
    assert loaded.static_members == {"i": "m2"}
    assert loaded.topics == frozenset({"t"})
    assert loaded.next_deadline_ms == NOW.monotonic_ms + 100 + SESSION_MS


def test_loaded_group_without_members_is_empty_since_they_left() -> None:
    metadata = replace(stored(a_group()), generation_id=-1, leader_id="gone", state_since_ms=5)
    loaded = a_group()
    loaded.load(metadata, NOW)
    assert (loaded.state, loaded.state_since_ms) == (GroupState.EMPTY, 5)
    assert (loaded.generation_id, loaded.leader_id) == (0, None)


def test_group_of_another_protocol_may_read_any_topic() -> None:
    group = a_group_of(JOIN)
    group.protocol_type = "connect"
    loaded = a_group()
    loaded.load(stored(group), NOW)
    assert loaded.topics is None


def test_resigned_group_answers_who_waits_and_rebalances_no_more() -> None:
    group = a_group_of(JOIN, JOIN, JOIN)
    group.members["m1"].join_request_id = 7
    group.members["m2"].sync_request_id = 8
    group.resign()
    assert group.pending_appends.take() == (
        Response(7, JoinGroupResponse(ErrorCode.NOT_COORDINATOR, "m1")),
        Response(8, SyncGroupResponse(ErrorCode.NOT_COORDINATOR)),
    )
    group.rebalance_or_complete_join(NOW)
    assert group.state is GroupState.DEAD
