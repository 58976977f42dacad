"""Committed offsets: who may commit, when it counts, when it ends; coordinators that change."""

from dataclasses import replace

import pytest
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.group_offsets import GroupOffsets
from tidemark_broker.coordinator.core.offsets_records import CommittedOffset
from tidemark_broker.coordinator.core.requests import (
    DeleteGroup,
    DeleteGroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionError,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

from tests.support.coordinator_harness import (
    JOIN,
    SESSION_MS,
    SETTINGS,
    Harness,
    a_harness,
    protocols,
)

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS
LONG = replace(JOIN, session_timeout_ms=1_800_000)


def test_a_commit_is_answered_and_seen_once_the_log_holds_it() -> None:
    harness = a_harness()
    harness.commits_at_once = False
    commit = harness.send_commit(5)
    assert commit not in harness.answers
    assert harness.fetched() == {}
    harness.commit()
    assert harness.committed(commit) == "NONE"
    assert harness.fetched() == {"t": 5}


def test_a_commit_that_takes_too_long_is_refused_and_may_count_later() -> None:
    harness = a_harness()
    harness.commits_at_once = False
    commit = harness.send_commit(5)
    harness.perform(harness.coordinator.on_late(harness.appends[0].append_id, harness.now))
    assert harness.committed(commit) == "COORDINATOR_NOT_AVAILABLE"
    assert harness.fetched() == {}
    harness.commit()
    assert harness.fetched() == {"t": 5}


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_COORDINATOR"),
        (ErrorCode.MESSAGE_TOO_LARGE, "INVALID_COMMIT_OFFSET_SIZE"),
        (ErrorCode.INVALID_RECORD, "INVALID_RECORD"),
    ],
)
def test_a_commit_that_cannot_be_written(error: ErrorCode, reported: str) -> None:
    harness = a_harness()
    harness.commits_at_once = False
    commit = harness.send_commit(5)
    harness.reject(error)
    assert harness.committed(commit) == reported
    assert harness.fetched() == {}


def test_of_two_commits_the_later_in_the_log_counts_whatever_is_reported_first() -> None:
    offsets = GroupOffsets()
    offsets.apply(2, ("t", 0), CommittedOffset(9))
    offsets.apply(1, ("t", 0), CommittedOffset(5))
    assert offsets.fetch(None)[0].committed == CommittedOffset(9)
    offsets.apply(4, ("t", 0), None)
    offsets.apply(3, ("t", 0), CommittedOffset(7))
    assert offsets.fetch(None) == ()


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


def test_a_generation_of_a_group_that_is_not_there() -> None:
    assert a_harness().commit_offset(5, "m1", 1) == "ILLEGAL_GENERATION"


def test_each_partition_has_its_own_error() -> None:
    harness = a_harness(replace(SETTINGS, max_offsets=1))
    requested = (
        OffsetToCommit("t", 0, 1),
        OffsetToCommit("t", 1, 1, metadata="x" * 4097),
        OffsetToCommit("t", -1, 1),
        OffsetToCommit("t", 2, 1),
    )
    response = harness.ask(OffsetCommit("g", requested))
    assert isinstance(response, OffsetCommitResponse)
    assert [entry.error.name for entry in response.partitions] == [
        "NONE",
        "OFFSET_METADATA_TOO_LARGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_COMMIT_OFFSET_SIZE",
    ]
    assert harness.fetched() == {"t": 1}


def test_what_was_never_committed_is_fetched_as_nothing() -> None:
    response = a_harness().ask(OffsetFetch("g", (("t", 3),)))
    assert isinstance(response, OffsetFetchResponse)
    assert [found.committed for found in response.offsets] == [None]


# Retention (KIP-211)


def test_offsets_of_a_simple_consumer_end_a_week_after_the_commit() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS - 1)))
    assert harness.fetched() == {"t": 5}
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS)))
    assert harness.fetched() == {}
    assert harness.coordinator.list_groups() == (ErrorCode.NONE, ())


def test_offsets_of_a_group_end_a_week_after_the_last_member_left() -> None:
    harness = a_harness()
    harness.stable(LONG)
    harness.commit_offset(5, "m1", 1)
    harness.perform(harness.coordinator.on_expiry(harness.after(2 * WEEK_MS)))
    assert harness.fetched() == {"t": 5}
    harness.now_ms += DAY_MS
    harness.leave("m1")
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS - 1)))
    assert harness.fetched() == {"t": 5}
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS)))
    assert harness.fetched() == {}


def test_topics_that_a_group_reads_no_longer_expire_under_it() -> None:
    harness = a_harness()
    harness.stable(LONG)
    harness.commit_offset(5, "m1", 1, "t")
    harness.commit_offset(6, "m1", 1, "former")
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS)))
    assert harness.fetched() == {"t": 5}


def test_a_retention_of_the_clients_own() -> None:
    harness = a_harness()
    harness.send(OffsetCommit("g", (OffsetToCommit("t", 0, 5),), retention_ms=1_000))
    harness.perform(harness.coordinator.on_expiry(harness.after(1_000)))
    assert harness.fetched() == {}


def test_a_retention_beyond_all_time_is_for_ever() -> None:
    harness = a_harness()
    commit = OffsetCommit("g", (OffsetToCommit("t", 0, 5),), retention_ms=2**63 - 1)
    assert harness.committed(harness.send(commit)) == "NONE"
    harness.perform(harness.coordinator.on_expiry(harness.after(100 * WEEK_MS)))
    assert harness.fetched() == {"t": 5}


def test_an_expiry_undoes_no_commit_that_is_on_its_way() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    harness.commit_offset(5, topic="former")
    harness.now_ms += WEEK_MS
    harness.commits_at_once = False
    request_id = harness.send_commit(6)
    harness.perform(harness.coordinator.on_expiry(harness.now))
    while harness.appends:
        harness.commit()
    assert harness.committed(request_id) == "NONE"
    harness.lead(2)
    assert harness.fetched() == {"t": 6}


def test_a_group_with_a_first_commit_on_its_way_is_not_over() -> None:
    harness = a_harness()
    (response,) = harness.stable(JOIN)
    harness.leave(response.member_id)
    harness.commits_at_once = False
    harness.send_commit(6)
    harness.perform(harness.coordinator.on_expiry(harness.now))
    while harness.appends:
        harness.commit()
    assert [group.protocol_type for group in harness.coordinator.list_groups()[1]] == ["consumer"]
    harness.lead(2)
    assert [group.protocol_type for group in harness.coordinator.list_groups()[1]] == ["consumer"]


# Deletion


def test_offsets_of_topics_that_a_group_reads_are_not_deleted() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    harness.commit_offset(5, "m1", 1, "t")
    harness.commit_offset(6, "m1", 1, "former")
    response = harness.ask(OffsetDelete("g", (("t", 0), ("former", 0), ("never", 0))))
    assert isinstance(response, OffsetDeleteResponse)
    assert [entry.error.name for entry in response.partitions] == [
        "GROUP_SUBSCRIBED_TO_TOPIC",
        "NONE",
        "NONE",
    ]
    assert harness.fetched() == {"t": 5}


def test_of_other_groups_with_members_nothing_is_deleted() -> None:
    harness = a_harness()
    harness.stable(replace(JOIN, protocol_type="connect"))
    response = harness.ask(OffsetDelete("g", (("t", 0),)))
    assert response == OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)
    missing = harness.ask(OffsetDelete("x", (("t", 0),)))
    assert missing == OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_group_is_deleted_when_nobody_is_in_it() -> None:
    harness = a_harness(replace(SETTINGS, records_per_append=2))
    harness.stable(JOIN)
    for topic in ("a", "b", "c"):
        harness.commit_offset(5, "m1", 1, topic)
    assert harness.ask(DeleteGroup("g")) == DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP)
    harness.leave("m1")
    assert harness.ask(DeleteGroup("g")) == DeleteGroupResponse(ErrorCode.NONE)
    assert harness.ask(DeleteGroup("g")) == DeleteGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND)
    assert harness.coordinator.describe_group("g").state == "Dead"
    harness.lead(2)
    assert harness.coordinator.list_groups() == (ErrorCode.NONE, ())


def test_a_commit_after_a_deletion_in_the_log_stays() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    harness.commits_at_once = False
    harness.send(DeleteGroup("g"))
    harness.send_commit(6)
    harness.commit()
    harness.commit()
    assert harness.fetched() == {"t": 6}
    harness.lead(2)
    assert harness.fetched() == {"t": 6}


# Coordinators that change


def test_a_new_coordinator_knows_members_assignment_and_offsets() -> None:
    harness = a_harness()
    harness.stable(JOIN, replace(JOIN, group_instance_id="i"))
    harness.commit_offset(5, "m1", 1)
    harness.commit_offset(6, "m1", 1)
    before = harness.coordinator.describe_group("g")
    harness.lead(2)
    assert harness.coordinator.describe_group("g") == before
    assert harness.fetched() == {"t": 6}
    assert harness.heartbeat("m1", 1) == harness.heartbeat("m2", 1, "i") == "NONE"
    harness.wait(SESSION_MS)
    assert harness.heartbeat("m1", 1) == "UNKNOWN_MEMBER_ID"


def test_a_coordinator_that_loads_says_so_and_one_that_resigned_too() -> None:
    harness = a_harness()
    harness.coordinator.become_leader(LeaderEpoch(2), harness.now)
    heartbeat = Heartbeat("g", 1, "m1")
    assert harness.ask(heartbeat) == HeartbeatResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert harness.coordinator.list_groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.perform(harness.coordinator.resign(LeaderEpoch(3), harness.now))
    assert harness.ask(heartbeat) == HeartbeatResponse(ErrorCode.NOT_COORDINATOR)
    assert harness.coordinator.describe_group("g").error is ErrorCode.NOT_COORDINATOR


def test_a_deposed_coordinator_answers_everybody_and_hears_no_late_report() -> None:
    harness = a_harness()
    harness.commits_at_once = False
    commit = harness.send_commit(5)
    join = harness.send_join()
    harness.perform(harness.coordinator.resign(LeaderEpoch(2), harness.now))
    assert harness.committed(commit) == "NOT_COORDINATOR"
    assert harness.joined(join).error is ErrorCode.NOT_COORDINATOR
    late = harness.appends.pop()
    harness.lead(3)
    harness.perform(harness.coordinator.on_committed(late.append_id, harness.now))
    assert harness.fetched() == {}


def test_leadership_of_an_older_epoch_is_no_news() -> None:
    harness = a_harness()
    harness.lead(5)
    harness.commit_offset(5)
    for epoch in (5, 4):
        assert harness.coordinator.become_leader(LeaderEpoch(epoch), harness.now) == ()
    harness.perform(harness.coordinator.resign(LeaderEpoch(4), harness.now))
    assert harness.fetched() == {"t": 5}


def test_records_of_an_older_load_are_not_taken() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    coordinator = harness.coordinator
    coordinator.become_leader(LeaderEpoch(2), harness.now)
    coordinator.become_leader(LeaderEpoch(3), harness.now)
    coordinator.on_record(LeaderEpoch(2), harness.log[0].key, harness.log[0].value)
    assert coordinator.on_loaded(LeaderEpoch(2), harness.now) == ()
    coordinator.on_loaded(LeaderEpoch(3), harness.now)
    assert harness.fetched() == {}


def test_a_record_that_cannot_be_read_is_counted_and_holds_nobody_up() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    epoch = LeaderEpoch(2)
    harness.coordinator.become_leader(epoch, harness.now)
    harness.coordinator.on_record(epoch, harness.log[0].key, harness.log[0].value)
    harness.coordinator.on_record(epoch, harness.log[0].key, b"\x00\x63garbage")
    harness.coordinator.on_record(epoch, b"", b"")
    harness.coordinator.on_loaded(epoch, harness.now)
    assert harness.coordinator.unreadable_records == 2
    assert harness.fetched() == {"t": 5}


def test_groups_are_listed_by_state() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    harness.send(OffsetCommit("simple", (OffsetToCommit("t", 0, 5),)))
    _, groups = harness.coordinator.list_groups(frozenset({"stable"}))
    assert [(group.group_id, group.protocol_type, group.state) for group in groups] == [
        ("g", "consumer", "Stable")
    ]
    assert len(harness.coordinator.list_groups()[1]) == 2


def test_a_partition_keeps_no_more_groups_than_it_may() -> None:
    harness = a_harness(GroupSettings(max_groups=1))
    harness.commit_offset(5)
    other: JoinGroup = replace(JOIN, group_id="other", protocols=protocols("range"))
    assert harness.join(other).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit = harness.ask(OffsetCommit("other", (OffsetToCommit("t", 0, 5),)))
    assert isinstance(commit, OffsetCommitResponse)
    assert commit.partitions[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_assignment_too_large_for_a_record_is_refused() -> None:
    harness: Harness = a_harness()
    harness.send_join()
    harness.wait(0)
    response = harness.ask(SyncGroup("g", 1, "m1", assignments=(("m1", bytes(1_000_000)),)))
    assert response == SyncGroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_offsets_of_a_deleted_topic_are_removed_and_others_stay() -> None:
    harness = a_harness()
    harness.send_commit(5)
    harness.send_commit(7, topic="other")
    harness.perform(harness.coordinator.on_topics_deleted(frozenset({"t"})))
    assert harness.fetched() == {"other": 7}
    harness.lead(9)
    assert harness.fetched() == {"other": 7}


def test_a_topic_that_is_deleted_while_its_offsets_are_loaded_is_not_forgotten() -> None:
    harness = a_harness()
    harness.send_commit(5)
    epoch = LeaderEpoch(9)
    harness.perform(harness.coordinator.become_leader(epoch, harness.now))
    for record in tuple(harness.log):
        harness.coordinator.on_record(epoch, record.key, record.value)
    harness.perform(harness.coordinator.on_topics_deleted(frozenset({"t"})))
    harness.perform(harness.coordinator.on_loaded(epoch, harness.now))
    assert harness.fetched() == {}


@pytest.mark.parametrize("is_first", [True, False], ids=["first of its group", "later one"])
def test_a_commit_under_way_when_its_topic_is_deleted_goes_with_it(is_first: bool) -> None:
    harness = a_harness()
    if not is_first:
        harness.send_commit(7, topic="other")
    harness.commits_at_once = False
    harness.send_commit(5)
    harness.perform(harness.coordinator.on_topics_deleted(frozenset({"t"})))
    harness.commit()
    harness.commit()
    left = {} if is_first else {"other": 7}
    assert harness.fetched() == left
    harness.lead(9)
    assert harness.fetched() == left


def test_a_commit_under_way_when_its_group_is_deleted_goes_with_it() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    harness.commits_at_once = False
    harness.send_commit(7, topic="other")
    deleted = harness.send(DeleteGroup("g"))
    harness.commit()
    harness.commit()
    assert harness.answers[deleted] == DeleteGroupResponse(ErrorCode.NONE)
    assert harness.coordinator.describe_group("g").state == "Dead"
    harness.lead(9)
    assert harness.coordinator.list_groups() == (ErrorCode.NONE, ())


def test_a_commit_under_way_when_its_offset_is_deleted_goes_with_it() -> None:
    harness = a_harness()
    harness.send_commit(7, topic="other")
    harness.commits_at_once = False
    harness.send_commit(5)
    deleted = harness.send(OffsetDelete("g", (("t", 0),)))
    harness.commit()
    harness.commit()
    response = harness.answers[deleted]
    assert isinstance(response, OffsetDeleteResponse)
    assert [entry.error.name for entry in response.partitions] == ["NONE"]
    assert harness.fetched() == {"other": 7}
