"""Committed offsets: which of two counts, and when they expire."""

from dataclasses import replace

from tidemark_broker.coordinator.core.group_offsets import GroupOffsets, Loading
from tidemark_broker.coordinator.core.offsets_records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    encode_key,
    encode_offset,
)
from tidemark_broker.coordinator.core.requests import (
    OffsetCommit,
    OffsetToCommit,
)
from tidemark_protocol.error_codes import ErrorCode

from tests.support.coordinator_harness import (
    JOIN,
    a_harness,
)

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS
LONG = replace(JOIN, session_timeout_ms=1_800_000)


def test_of_two_commits_the_later_in_the_log_counts_whatever_is_reported_first() -> None:
    offsets = GroupOffsets()
    offsets.apply(2, ("t", 0), CommittedOffset(9))
    offsets.apply(1, ("t", 0), CommittedOffset(5))
    assert offsets.fetch(None)[0].committed == CommittedOffset(9)
    offsets.apply(4, ("t", 0), None)
    offsets.apply(3, ("t", 0), CommittedOffset(7))
    assert offsets.fetch(None) == ()


def test_offsets_are_fetched_by_partition_or_all_in_the_order_committed() -> None:
    offsets = GroupOffsets()
    offsets.load(("t", 1), CommittedOffset(5))
    offsets.apply(0, ("t", 0), CommittedOffset(6))
    assert [(found.partition, found.committed) for found in offsets.fetch(None)] == [
        (1, CommittedOffset(5)),
        (0, CommittedOffset(6)),
    ]
    chosen = offsets.fetch([("t", 0), ("u", 0)])
    assert [(found.topic, found.committed) for found in chosen] == [
        ("t", CommittedOffset(6)),
        ("u", None),
    ]
    assert (len(offsets), ("t", 1) in offsets, ("u", 0) in offsets) == (2, True, False)


def test_order_of_a_removal_is_kept_while_an_earlier_append_may_come() -> None:
    offsets = GroupOffsets()
    offsets.apply(4, ("t", 0), None)
    offsets.forget_removed(before_append_id=4)
    offsets.apply(3, ("t", 0), CommittedOffset(7))
    assert len(offsets) == 0
    offsets.forget_removed(before_append_id=5)
    offsets.apply(3, ("t", 0), CommittedOffset(7))
    assert len(offsets) == 1


def test_newest_value_of_each_key_is_loaded_and_a_tombstone_removes_it() -> None:
    loading = Loading()
    for topic, committed in (("t", 1), ("u", 2), ("t", 3), ("u", None)):
        value = None if committed is None else encode_offset(CommittedOffset(committed))
        loading.on_record(encode_key(OffsetKey("g", topic, 0)), value)
    loading.on_record(encode_key(OffsetKey("h", "never", 0)), None)
    loading.on_record(encode_key(GroupKey("g")), None)
    loading.on_record(b"\x00\x09of a later kind", b"")
    assert loading.offsets == {"g": {("t", 0): CommittedOffset(3)}, "h": {}}
    assert (loading.groups, loading.unreadable_records) == ({}, 0)


# Retention (KIP-211)


def test_offsets_of_a_simple_consumer_end_a_week_after_the_commit() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS - 1)))
    assert harness.fetched() == {"t": 5}
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS)))
    assert harness.fetched() == {}
    assert harness.coordinator.list_groups() == (ErrorCode.NONE, ())


def test_new_coordinator_does_not_prolong_the_offsets_of_a_simple_consumer() -> None:
    harness = a_harness()
    harness.commit_offset(5)
    harness.now_ms += DAY_MS
    harness.lead(2)
    harness.perform(harness.coordinator.on_expiry(harness.after(WEEK_MS - DAY_MS)))
    assert harness.fetched() == {}


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
