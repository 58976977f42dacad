"""Appends under way: their records count once committed, and each is answered once."""

import pytest
from tidemark_broker.coordinator.core.offsets_records import OffsetsRecord
from tidemark_broker.coordinator.core.pending_appends import (
    PendingAppends,
    group_error,
    offsets_error,
)
from tidemark_broker.coordinator.core.requests import (
    AppendRecords,
    ClockReading,
    HeartbeatResponse,
    Response,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

NOW = ClockReading(1, 2)
RECORDS = (OffsetsRecord(b"k", b"v"), OffsetsRecord(b"l", None))


class Recorded:
    """What was called, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def settle(self, error: ErrorCode, now: ClockReading) -> None:
        assert now == NOW
        self.calls.append(error.name)

    def apply(self, now: ClockReading) -> None:
        assert now == NOW
        self.calls.append("applied")


def one_append() -> tuple[PendingAppends, Recorded]:
    pending, recorded = PendingAppends(LeaderEpoch(3), 10), Recorded()
    pending.append(RECORDS, recorded.settle, recorded.apply)
    return pending, recorded


def test_effects_are_taken_once_and_in_order() -> None:
    pending, _ = one_append()
    answer = HeartbeatResponse(ErrorCode.NONE)
    pending.answer(7, answer)
    assert pending.take() == (AppendRecords(10, 3, RECORDS), Response(7, answer))
    assert pending.take() == ()


def test_committed_records_are_applied_before_the_request_is_answered() -> None:
    pending, recorded = one_append()
    pending.on_committed(10, NOW)
    assert recorded.calls == ["applied", "NONE"]
    pending.on_committed(10, NOW)
    assert recorded.calls == ["applied", "NONE"]


def test_rejected_records_are_not_applied() -> None:
    pending, recorded = one_append()
    pending.on_rejected(10, ErrorCode.NOT_ENOUGH_REPLICAS, NOW)
    pending.on_committed(10, NOW)
    assert recorded.calls == ["NOT_ENOUGH_REPLICAS"]


def test_late_append_is_answered_once_and_applied_when_it_is_committed() -> None:
    pending, recorded = one_append()
    pending.on_late(10, NOW)
    pending.on_late(10, NOW)
    assert recorded.calls == ["REQUEST_TIMED_OUT"]
    assert list(pending.keys_under_way()) == [b"k", b"l"]
    pending.on_committed(10, NOW)
    assert recorded.calls == ["REQUEST_TIMED_OUT", "applied"]


def test_late_append_that_is_rejected_is_not_answered_again() -> None:
    pending, recorded = one_append()
    pending.on_late(10, NOW)
    pending.on_rejected(10, ErrorCode.NOT_LEADER_OR_FOLLOWER, NOW)
    assert recorded.calls == ["REQUEST_TIMED_OUT"]
    assert list(pending.keys_under_way()) == []


def test_reports_of_another_leader_epoch_change_nothing() -> None:
    pending, recorded = one_append()
    for append_id in (9, 11):
        pending.on_committed(append_id, NOW)
        pending.on_rejected(append_id, ErrorCode.NONE, NOW)
        pending.on_late(append_id, NOW)
    assert recorded.calls == []


def test_resigning_answers_what_waits_and_applies_nothing() -> None:
    pending, recorded = one_append()
    late = Recorded()
    pending.append(RECORDS, late.settle, late.apply)
    pending.on_late(11, NOW)
    pending.resign(NOW)
    pending.on_committed(10, NOW)
    assert recorded.calls == ["NOT_LEADER_OR_FOLLOWER"]
    assert late.calls == ["REQUEST_TIMED_OUT"]


def test_oldest_append_is_the_first_under_way_or_the_next_one() -> None:
    pending = PendingAppends(LeaderEpoch(3), 10)
    assert pending.oldest_append_id == 10
    for _ in range(2):
        pending.append(RECORDS, Recorded().settle)
    assert (pending.oldest_append_id, pending.next_append_id) == (10, 12)
    pending.on_committed(10, NOW)
    assert pending.oldest_append_id == 11
    pending.on_rejected(11, ErrorCode.NONE, NOW)
    assert pending.oldest_append_id == pending.next_append_id == 12


@pytest.mark.parametrize(
    ("error", "of_group", "of_offsets"),
    [
        ("NONE", "NONE", "NONE"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        (
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            "COORDINATOR_NOT_AVAILABLE",
            "COORDINATOR_NOT_AVAILABLE",
        ),
        ("REQUEST_TIMED_OUT", "REBALANCE_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("FENCED_LEADER_EPOCH", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR", "INVALID_COMMIT_OFFSET_SIZE"),
        ("RECORD_LIST_TOO_LARGE", "UNKNOWN_SERVER_ERROR", "INVALID_COMMIT_OFFSET_SIZE"),
        ("INVALID_RECORD", "INVALID_RECORD", "INVALID_RECORD"),
    ],
)
def test_errors_of_the_log_become_those_that_members_know(
    error: str, of_group: str, of_offsets: str
) -> None:
    assert group_error(ErrorCode[error]).name == of_group
    assert offsets_error(ErrorCode[error]).name == of_offsets
