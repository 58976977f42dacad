"""The groups of one coordinator: commits and fetches, deletion, expiry, and how many there are."""

from dataclasses import replace

import pytest
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.requests import (
    DeleteGroup,
    DeleteGroupResponse,
    GroupGauges,
    JoinGroup,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from tidemark_protocol.error_codes import ErrorCode

from tests.support.coordinator_harness import (
    JOIN,
    SETTINGS,
    a_harness,
    protocols,
)

WEEK_MS = 7 * 24 * 3_600_000


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


def test_a_partition_keeps_no_more_groups_than_it_may() -> None:
    harness = a_harness(GroupSettings(max_groups=1))
    harness.commit_offset(5)
    other: JoinGroup = replace(JOIN, group_id="other", protocols=protocols("range"))
    assert harness.join(other).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit = harness.ask(OffsetCommit("other", (OffsetToCommit("t", 0, 5),)))
    assert isinstance(commit, OffsetCommitResponse)
    assert commit.partitions[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_offsets_of_a_deleted_topic_are_removed_and_others_stay() -> None:
    harness = a_harness()
    harness.send_commit(5)
    harness.send_commit(7, topic="other")
    harness.perform(harness.coordinator.on_topics_deleted(frozenset({"t"})))
    assert harness.fetched() == {"other": 7}
    harness.lead(9)
    assert harness.fetched() == {"other": 7}


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


def test_nothing_that_was_committed_is_counted_before_it_is_in_the_log() -> None:
    harness = a_harness()
    gauges = GroupGauges()
    harness.stable(JOIN, JOIN)
    harness.commit_offset(5, "m1", 1)
    harness.send(OffsetCommit("simple", (OffsetToCommit("t", 0, 5),)))
    harness.commits_at_once = False
    harness.send(OffsetCommit("coming", (OffsetToCommit("t", 0, 5),)))
    harness.coordinator.count(gauges)
    assert (gauges.groups, gauges.members, gauges.offsets) == ({"Stable": 1, "Empty": 1}, 2, 2)


def test_commit_too_large_for_a_record_is_rejected() -> None:
    harness = a_harness(replace(SETTINGS, max_group_bytes=30))
    assert harness.commit_offset(5) == "INVALID_COMMIT_OFFSET_SIZE"
    assert harness.fetched() == {}
    assert harness.log == []


def test_names_of_topics_are_bounded() -> None:
    harness = a_harness()
    assert harness.commit_offset(5, topic="") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert harness.commit_offset(5, topic="t" * 250) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert harness.commit_offset(5, topic="t" * 249) == "NONE"


def test_group_whose_member_ids_nobody_used_is_forgotten() -> None:
    harness = a_harness()
    harness.join(replace(JOIN, requires_member_id=True))
    assert len(harness.coordinator.list_groups()[1]) == 1
    harness.wait(JOIN.session_timeout_ms)
    assert harness.coordinator.list_groups()[1] == ()
    assert harness.coordinator.next_deadline_ms is None
    assert harness.log == []


def test_members_are_described_in_full_only_while_the_group_is_stable() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    (member,) = harness.coordinator.describe_group("g").members
    assert (member.metadata, member.assignment) == (JOIN.protocols[0].metadata, b"yours")
    assert harness.coordinator.describe_group("g").protocol == "range"
    harness.send_join()
    described = harness.coordinator.describe_group("g")
    assert [(each.metadata, each.assignment) for each in described.members] == [(b"", b"")] * 2
    assert (described.protocol, described.protocol_type) == ("", "consumer")


def test_group_that_had_members_is_kept_until_it_expires() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    harness.leave("m1")
    harness.perform(harness.coordinator.on_tick(harness.after(1)))
    assert [group.state for group in harness.coordinator.list_groups()[1]] == ["Empty"]
    harness.perform(harness.coordinator.on_expiry(harness.after(1)))
    assert harness.coordinator.list_groups()[1] == ()


def test_group_that_gets_a_member_id_while_it_is_deleted_stays() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    harness.commits_at_once = False
    harness.send(DeleteGroup("g"))
    harness.join(replace(JOIN, requires_member_id=True))
    harness.commit()
    assert [group.group_id for group in harness.coordinator.list_groups()[1]] == ["g"]
    assert harness.fetched() == {}


def test_deletion_of_what_was_never_committed_writes_nothing() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    records = len(harness.log)
    response = harness.ask(OffsetDelete("g", (("never", 0),)))
    assert isinstance(response, OffsetDeleteResponse)
    assert [entry.error for entry in response.partitions] == [ErrorCode.NONE]
    assert len(harness.log) == records
