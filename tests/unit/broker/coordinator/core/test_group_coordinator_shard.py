"""A coordinator in its leader epochs: what it loads, lists and describes, and when it is silent."""

from dataclasses import replace

from tidemark_broker.coordinator.core.requests import (
    GroupGauges,
    Heartbeat,
    HeartbeatResponse,
    OffsetCommit,
    OffsetToCommit,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

from tests.support.coordinator_harness import (
    JOIN,
    SESSION_MS,
    a_harness,
)


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


def test_request_is_checked_before_the_coordinator_says_that_it_is_absent() -> None:
    harness = a_harness()
    harness.perform(harness.coordinator.resign(LeaderEpoch(2), harness.now))
    assert harness.ask(Heartbeat("", 1, "m1")) == HeartbeatResponse(ErrorCode.INVALID_GROUP_ID)
    assert harness.coordinator.describe_group("").error is ErrorCode.INVALID_GROUP_ID


def test_resigned_coordinator_has_no_groups_and_does_nothing() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    harness.commit_offset(5, "m1", 1)
    coordinator, gauges = harness.coordinator, GroupGauges()
    assert coordinator.resign(LeaderEpoch(1), harness.now) == ()  # of the same epoch: removed
    coordinator.count(gauges)
    assert (gauges.members, coordinator.group_ids()) == (0, ())
    assert coordinator.list_groups() == (ErrorCode.NONE, ())
    assert coordinator.report("g") is None
    assert coordinator.next_deadline_ms is None
    for effects in (
        coordinator.on_tick(harness.after(SESSION_MS)),
        coordinator.on_expiry(harness.after(SESSION_MS)),
        coordinator.on_topics_deleted(frozenset({"t"})),
    ):
        assert effects == ()


def test_group_that_does_not_exist_is_dead_and_has_no_report() -> None:
    described = a_harness().coordinator.describe_group("x")
    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert a_harness().coordinator.report("x") is None


def test_report_has_the_description_and_the_offsets() -> None:
    harness = a_harness()
    harness.stable(JOIN)
    harness.commit_offset(5, "m1", 1)
    report = harness.coordinator.report("g")
    assert report is not None
    assert report.described == harness.coordinator.describe_group("g")
    assert [(found.topic, found.partition) for found in report.offsets] == [("t", 0)]
    assert harness.coordinator.group_ids() == ("g",)


def test_append_of_an_earlier_epoch_is_no_append_of_this_one() -> None:
    harness = a_harness()
    harness.commits_at_once = False
    harness.send_commit(5)
    earlier = harness.appends.pop()
    harness.lead(2)
    commit = harness.send_commit(6)
    harness.perform(harness.coordinator.on_committed(earlier.append_id, harness.now))
    assert commit not in harness.answers
    assert harness.fetched() == {}
