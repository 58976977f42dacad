"""What a consumer group may not do: skip a record, or lose a commit."""

import pytest
from tidemark_chaos.group_check import COMMIT_LOST, SKIPPED, check_group
from tidemark_chaos.workload_log import (
    ACKNOWLEDGED,
    REFUSED,
    UNKNOWN,
    Event,
    GroupCommitted,
    GroupRead,
    decode_event,
    encode_event,
)

LOG = {0: {offset: offset + 100 for offset in range(10)}, 1: {5: 7}}


def received(*offsets: int, partition: int = 0, member: int = 0) -> Event:
    return GroupRead(0.0, member, partition, list(offsets))


def committed(
    position: int, *, partition: int = 0, member: int = 0, outcome: str = ACKNOWLEDGED
) -> Event:
    return GroupCommitted(0.0, member, partition, position, outcome)


def anomalies(events: list[Event], at_end: dict[int, int]) -> list[tuple[str, int]]:
    return [(each.name, each.count) for each in check_group(events, LOG, at_end)]


def test_what_was_received_before_may_be_committed_and_be_received_again() -> None:
    events = [
        received(0, 1, 2),
        committed(3),
        received(2, 3, member=1),  # again, by the next owner
        committed(4, member=1),
        received(5, partition=1),
        committed(6, partition=1),
    ]
    assert anomalies(events, {0: 4, 1: 6}) == []


@pytest.mark.parametrize("outcome", [ACKNOWLEDGED, UNKNOWN, REFUSED])
def test_a_commit_past_a_record_that_no_member_received_is_told_once(outcome: str) -> None:
    events = [received(0, 1, 4), committed(5, outcome=outcome), committed(5)]
    (skipped,) = check_group(events, LOG, {0: 5})
    assert (skipped.name, skipped.count) == (SKIPPED, 2)
    assert skipped.samples[0] == (
        "0: member 0 committed position 5, but no member received record 102 at offset 2"
    )


def test_a_record_that_comes_after_the_commit_was_skipped_then() -> None:
    assert anomalies([received(1), committed(2), received(0)], {0: 2}) == [(SKIPPED, 1)]


def test_offsets_that_hold_no_record_are_not_missed() -> None:
    assert anomalies([committed(5, partition=1)], {1: 5}) == []


@pytest.mark.parametrize(("at_end", "found"), [({0: 2}, 1), ({}, 1), ({0: 3}, 0), ({0: 9}, 0)])
def test_an_acknowledged_commit_is_there_at_the_end(at_end: dict[int, int], found: int) -> None:
    events = [received(0, 1, 2, 3), committed(3), committed(4, outcome=UNKNOWN)]
    assert anomalies(events, at_end) == [(COMMIT_LOST, 1)] * found


def test_events_of_groups_are_read_back_as_they_were_written() -> None:
    for event in (received(1, 2), committed(3, outcome=UNKNOWN)):
        assert decode_event(encode_event(event)) == event
