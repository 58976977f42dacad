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
    rig = a_harness()
    rig.commits_at_once = False
    commit = rig.send_commit(5)
    assert commit not in rig.answers
    assert rig.fetched() == {}
    rig.commit()
    assert rig.committed(commit) == "NONE"
    assert rig.fetched() == {"t": 5}


def test_a_commit_that_takes_too_long_is_refused_and_may_count_later() -> None:
    rig = a_harness()
    rig.commits_at_once = False
    commit = rig.send_commit(5)
    rig.perform(rig.coordinator.on_late(rig.appends[0].append_id, rig.now))
    assert rig.committed(commit) == "COORDINATOR_NOT_AVAILABLE"
    assert rig.fetched() == {}
    rig.commit()
    assert rig.fetched() == {"t": 5}


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
    rig = a_harness()
    rig.commits_at_once = False
    commit = rig.send_commit(5)
    rig.reject(error)
    assert rig.committed(commit) == reported
    assert rig.fetched() == {}


def test_of_two_commits_the_later_in_the_log_counts_whatever_is_reported_first() -> None:
    offsets = GroupOffsets()
    offsets.apply(2, ("t", 0), CommittedOffset(9))
    offsets.apply(1, ("t", 0), CommittedOffset(5))
    assert offsets.fetch(None)[0].committed == CommittedOffset(9)
    offsets.apply(4, ("t", 0), None)
    offsets.apply(3, ("t", 0), CommittedOffset(7))
    assert offsets.fetch(None) == ()


def test_members_commit_in_their_generation_only() -> None:
    rig = a_harness()
    rig.stable(JOIN)
    assert rig.commit_offset(5, "m1", 1) == "NONE"
    assert rig.commit_offset(5, "m1", 0) == "ILLEGAL_GENERATION"
    assert rig.commit_offset(5, "who", 1) == "UNKNOWN_MEMBER_ID"
    assert rig.commit_offset(5) == "UNKNOWN_MEMBER_ID"


def test_a_fenced_static_member_commits_nothing() -> None:
    rig = a_harness()
    static = replace(JOIN, group_instance_id="i")
    rig.stable(static)
    rig.join(static)
    answer = rig.ask(OffsetCommit("g", (OffsetToCommit("t", 0, 1),), 1, "m1", "i"))
    assert answer == OffsetCommitResponse((PartitionError("t", 0, ErrorCode.FENCED_INSTANCE_ID),))


def test_no_commit_before_the_assignment_and_one_during_the_next_rebalance() -> None:
    rig = a_harness()
    rig.send_join()
    rig.wait(0)
    assert rig.commit_offset(5, "m1", 1) == "REBALANCE_IN_PROGRESS"
    rig.ask(SyncGroup("g", 1, "m1"))
    rig.send_join()
    assert rig.state() == "PreparingRebalance"
    assert rig.commit_offset(6, "m1", 1) == "NONE"


def test_a_commit_shows_that_its_member_lives() -> None:
    rig = a_harness()
    rig.stable(JOIN)
    rig.wait(SESSION_MS - 1)
    rig.commit_offset(5, "m1", 1)
    rig.wait(SESSION_MS - 1)
    assert rig.heartbeat("m1", 1) == "NONE"


def test_a_generation_of_a_group_that_is_not_there() -> None:
    assert a_harness().commit_offset(5, "m1", 1) == "ILLEGAL_GENERATION"


def test_each_partition_has_its_own_error() -> None:
    rig = a_harness(replace(SETTINGS, max_offsets=1))
    requested = (
        OffsetToCommit("t", 0, 1),
        OffsetToCommit("t", 1, 1, metadata="x" * 4097),
        OffsetToCommit("t", -1, 1),
        OffsetToCommit("t", 2, 1),
    )
    answer = rig.ask(OffsetCommit("g", requested))
    assert isinstance(answer, OffsetCommitResponse)
    assert [entry.error.name for entry in answer.partitions] == [
        "NONE",
        "OFFSET_METADATA_TOO_LARGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_COMMIT_OFFSET_SIZE",
    ]
    assert rig.fetched() == {"t": 1}


def test_what_was_never_committed_is_fetched_as_nothing() -> None:
    answer = a_harness().ask(OffsetFetch("g", (("t", 3),)))
    assert isinstance(answer, OffsetFetchResponse)
    assert [found.committed for found in answer.offsets] == [None]


# Retention (KIP-211)


def test_offsets_of_a_simple_consumer_end_a_week_after_the_commit() -> None:
    rig = a_harness()
    rig.commit_offset(5)
    rig.perform(rig.coordinator.on_expiry(rig.after(WEEK_MS - 1)))
    assert rig.fetched() == {"t": 5}
    rig.perform(rig.coordinator.on_expiry(rig.after(WEEK_MS)))
    assert rig.fetched() == {}
    assert rig.coordinator.list_groups() == (ErrorCode.NONE, ())


def test_offsets_of_a_group_end_a_week_after_the_last_member_left() -> None:
    rig = a_harness()
    rig.stable(LONG)
    rig.commit_offset(5, "m1", 1)
    rig.perform(rig.coordinator.on_expiry(rig.after(2 * WEEK_MS)))
    assert rig.fetched() == {"t": 5}
    rig.now_ms += DAY_MS
    rig.leave("m1")
    rig.perform(rig.coordinator.on_expiry(rig.after(WEEK_MS - 1)))
    assert rig.fetched() == {"t": 5}
    rig.perform(rig.coordinator.on_expiry(rig.after(WEEK_MS)))
    assert rig.fetched() == {}


def test_topics_that_a_group_reads_no_longer_expire_under_it() -> None:
    rig = a_harness()
    rig.stable(LONG)
    rig.commit_offset(5, "m1", 1, "t")
    rig.commit_offset(6, "m1", 1, "former")
    rig.perform(rig.coordinator.on_expiry(rig.after(WEEK_MS)))
    assert rig.fetched() == {"t": 5}


def test_a_retention_of_the_clients_own() -> None:
    rig = a_harness()
    rig.send(OffsetCommit("g", (OffsetToCommit("t", 0, 5),), retention_ms=1_000))
    rig.perform(rig.coordinator.on_expiry(rig.after(1_000)))
    assert rig.fetched() == {}


def test_a_retention_beyond_all_time_is_for_ever() -> None:
    rig = a_harness()
    commit = OffsetCommit("g", (OffsetToCommit("t", 0, 5),), retention_ms=2**63 - 1)
    assert rig.committed(rig.send(commit)) == "NONE"
    rig.perform(rig.coordinator.on_expiry(rig.after(100 * WEEK_MS)))
    assert rig.fetched() == {"t": 5}


def test_an_expiry_undoes_no_commit_that_is_on_its_way() -> None:
    rig = a_harness()
    rig.commit_offset(5)
    rig.commit_offset(5, topic="former")
    rig.now_ms += WEEK_MS
    rig.commits_at_once = False
    request_id = rig.send_commit(6)
    rig.perform(rig.coordinator.on_expiry(rig.now))
    while rig.appends:
        rig.commit()
    assert rig.committed(request_id) == "NONE"
    rig.lead(2)
    assert rig.fetched() == {"t": 6}


def test_a_group_with_a_first_commit_on_its_way_is_not_over() -> None:
    rig = a_harness()
    (answer,) = rig.stable(JOIN)
    rig.leave(answer.member_id)
    rig.commits_at_once = False
    rig.send_commit(6)
    rig.perform(rig.coordinator.on_expiry(rig.now))
    while rig.appends:
        rig.commit()
    assert [group.protocol_type for group in rig.coordinator.list_groups()[1]] == ["consumer"]
    rig.lead(2)
    assert [group.protocol_type for group in rig.coordinator.list_groups()[1]] == ["consumer"]


# Deletion


def test_offsets_of_topics_that_a_group_reads_are_not_deleted() -> None:
    rig = a_harness()
    rig.stable(JOIN)
    rig.commit_offset(5, "m1", 1, "t")
    rig.commit_offset(6, "m1", 1, "former")
    answer = rig.ask(OffsetDelete("g", (("t", 0), ("former", 0), ("never", 0))))
    assert isinstance(answer, OffsetDeleteResponse)
    assert [entry.error.name for entry in answer.partitions] == [
        "GROUP_SUBSCRIBED_TO_TOPIC",
        "NONE",
        "NONE",
    ]
    assert rig.fetched() == {"t": 5}


def test_of_other_groups_with_members_nothing_is_deleted() -> None:
    rig = a_harness()
    rig.stable(replace(JOIN, protocol_type="connect"))
    answer = rig.ask(OffsetDelete("g", (("t", 0),)))
    assert answer == OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)
    missing = rig.ask(OffsetDelete("x", (("t", 0),)))
    assert missing == OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_group_is_deleted_when_nobody_is_in_it() -> None:
    rig = a_harness(replace(SETTINGS, records_per_append=2))
    rig.stable(JOIN)
    for topic in ("a", "b", "c"):
        rig.commit_offset(5, "m1", 1, topic)
    assert rig.ask(DeleteGroup("g")) == DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP)
    rig.leave("m1")
    assert rig.ask(DeleteGroup("g")) == DeleteGroupResponse(ErrorCode.NONE)
    assert rig.ask(DeleteGroup("g")) == DeleteGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND)
    assert rig.coordinator.describe_group("g").state == "Dead"
    rig.lead(2)
    assert rig.coordinator.list_groups() == (ErrorCode.NONE, ())


def test_a_commit_after_a_deletion_in_the_log_stays() -> None:
    rig = a_harness()
    rig.commit_offset(5)
    rig.commits_at_once = False
    rig.send(DeleteGroup("g"))
    rig.send_commit(6)
    rig.commit()
    rig.commit()
    assert rig.fetched() == {"t": 6}
    rig.lead(2)
    assert rig.fetched() == {"t": 6}


# Coordinators that change


def test_a_new_coordinator_knows_members_assignment_and_offsets() -> None:
    rig = a_harness()
    rig.stable(JOIN, replace(JOIN, group_instance_id="i"))
    rig.commit_offset(5, "m1", 1)
    rig.commit_offset(6, "m1", 1)
    before = rig.coordinator.describe_group("g")
    rig.lead(2)
    assert rig.coordinator.describe_group("g") == before
    assert rig.fetched() == {"t": 6}
    assert rig.heartbeat("m1", 1) == rig.heartbeat("m2", 1, "i") == "NONE"
    rig.wait(SESSION_MS)
    assert rig.heartbeat("m1", 1) == "UNKNOWN_MEMBER_ID"


def test_a_coordinator_that_loads_says_so_and_one_that_resigned_too() -> None:
    rig = a_harness()
    rig.coordinator.become_leader(LeaderEpoch(2), rig.now)
    heartbeat = Heartbeat("g", 1, "m1")
    assert rig.ask(heartbeat) == HeartbeatResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert rig.coordinator.list_groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.perform(rig.coordinator.resign(LeaderEpoch(3), rig.now))
    assert rig.ask(heartbeat) == HeartbeatResponse(ErrorCode.NOT_COORDINATOR)
    assert rig.coordinator.describe_group("g").error is ErrorCode.NOT_COORDINATOR


def test_a_deposed_coordinator_answers_everybody_and_hears_no_late_report() -> None:
    rig = a_harness()
    rig.commits_at_once = False
    commit = rig.send_commit(5)
    join = rig.send_join()
    rig.perform(rig.coordinator.resign(LeaderEpoch(2), rig.now))
    assert rig.committed(commit) == "NOT_COORDINATOR"
    assert rig.joined(join).error is ErrorCode.NOT_COORDINATOR
    late = rig.appends.pop()
    rig.lead(3)
    rig.perform(rig.coordinator.on_committed(late.append_id, rig.now))
    assert rig.fetched() == {}


def test_leadership_of_an_older_epoch_is_no_news() -> None:
    rig = a_harness()
    rig.lead(5)
    rig.commit_offset(5)
    for epoch in (5, 4):
        assert rig.coordinator.become_leader(LeaderEpoch(epoch), rig.now) == ()
    rig.perform(rig.coordinator.resign(LeaderEpoch(4), rig.now))
    assert rig.fetched() == {"t": 5}


def test_records_of_an_older_load_are_not_taken() -> None:
    rig = a_harness()
    rig.commit_offset(5)
    coordinator = rig.coordinator
    coordinator.become_leader(LeaderEpoch(2), rig.now)
    coordinator.become_leader(LeaderEpoch(3), rig.now)
    coordinator.on_record(LeaderEpoch(2), rig.log[0].key, rig.log[0].value)
    assert coordinator.on_loaded(LeaderEpoch(2), rig.now) == ()
    coordinator.on_loaded(LeaderEpoch(3), rig.now)
    assert rig.fetched() == {}


def test_a_record_that_cannot_be_read_is_counted_and_holds_nobody_up() -> None:
    rig = a_harness()
    rig.commit_offset(5)
    epoch = LeaderEpoch(2)
    rig.coordinator.become_leader(epoch, rig.now)
    rig.coordinator.on_record(epoch, rig.log[0].key, rig.log[0].value)
    rig.coordinator.on_record(epoch, rig.log[0].key, b"\x00\x63garbage")
    rig.coordinator.on_record(epoch, b"", b"")
    rig.coordinator.on_loaded(epoch, rig.now)
    assert rig.coordinator.unreadable_records == 2
    assert rig.fetched() == {"t": 5}


def test_groups_are_listed_by_state() -> None:
    rig = a_harness()
    rig.stable(JOIN)
    rig.send(OffsetCommit("simple", (OffsetToCommit("t", 0, 5),)))
    _, groups = rig.coordinator.list_groups(frozenset({"stable"}))
    assert [(group.group_id, group.protocol_type, group.state) for group in groups] == [
        ("g", "consumer", "Stable")
    ]
    assert len(rig.coordinator.list_groups()[1]) == 2


def test_a_partition_keeps_no_more_groups_than_it_may() -> None:
    rig = a_harness(GroupSettings(max_groups=1))
    rig.commit_offset(5)
    other: JoinGroup = replace(JOIN, group_id="other", protocols=protocols("range"))
    assert rig.join(other).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit = rig.ask(OffsetCommit("other", (OffsetToCommit("t", 0, 5),)))
    assert isinstance(commit, OffsetCommitResponse)
    assert commit.partitions[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_assignment_too_large_for_a_record_is_refused() -> None:
    rig: Harness = a_harness()
    rig.send_join()
    rig.wait(0)
    answer = rig.ask(SyncGroup("g", 1, "m1", assignments=(("m1", bytes(1_000_000)),)))
    assert answer == SyncGroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_offsets_of_a_deleted_topic_are_removed_and_others_stay() -> None:
    rig = a_harness()
    rig.send_commit(5)
    rig.send_commit(7, topic="other")
    rig.perform(rig.coordinator.on_topics_deleted(frozenset({"t"})))
    assert rig.fetched() == {"other": 7}
    rig.lead(9)
    assert rig.fetched() == {"other": 7}


def test_a_topic_that_is_deleted_while_its_offsets_are_loaded_is_not_forgotten() -> None:
    rig = a_harness()
    rig.send_commit(5)
    epoch = LeaderEpoch(9)
    rig.perform(rig.coordinator.become_leader(epoch, rig.now))
    for record in tuple(rig.log):
        rig.coordinator.on_record(epoch, record.key, record.value)
    rig.perform(rig.coordinator.on_topics_deleted(frozenset({"t"})))
    rig.perform(rig.coordinator.on_loaded(epoch, rig.now))
    assert rig.fetched() == {}


@pytest.mark.parametrize("is_first", [True, False], ids=["first of its group", "later one"])
def test_a_commit_under_way_when_its_topic_is_deleted_goes_with_it(is_first: bool) -> None:
    rig = a_harness()
    if not is_first:
        rig.send_commit(7, topic="other")
    rig.commits_at_once = False
    rig.send_commit(5)
    rig.perform(rig.coordinator.on_topics_deleted(frozenset({"t"})))
    rig.commit()
    rig.commit()
    left = {} if is_first else {"other": 7}
    assert rig.fetched() == left
    rig.lead(9)
    assert rig.fetched() == left


def test_a_commit_under_way_when_its_group_is_deleted_goes_with_it() -> None:
    rig = a_harness()
    rig.commit_offset(5)
    rig.commits_at_once = False
    rig.send_commit(7, topic="other")
    deleted = rig.send(DeleteGroup("g"))
    rig.commit()
    rig.commit()
    assert rig.answers[deleted] == DeleteGroupResponse(ErrorCode.NONE)
    assert rig.coordinator.describe_group("g").state == "Dead"
    rig.lead(9)
    assert rig.coordinator.list_groups() == (ErrorCode.NONE, ())


def test_a_commit_under_way_when_its_offset_is_deleted_goes_with_it() -> None:
    rig = a_harness()
    rig.send_commit(7, topic="other")
    rig.commits_at_once = False
    rig.send_commit(5)
    deleted = rig.send(OffsetDelete("g", (("t", 0),)))
    rig.commit()
    rig.commit()
    answer = rig.answers[deleted]
    assert isinstance(answer, OffsetDeleteResponse)
    assert [entry.error.name for entry in answer.partitions] == ["NONE"]
    assert rig.fetched() == {"other": 7}
