"""The online check finds what it promises to find, and forgets only what it does not need."""

import pytest
from msgspec.structs import replace
from tidemark_chaos.online_check import KEPT_MS, OnlineCheck
from tidemark_chaos.workload_log import Event, Produced, Violation


def acknowledged(sequence: int, offset: int, began_ms: float, ended_ms: float) -> Produced:
    return Produced(ended_ms, 0, sequence, "acknowledged", ended_ms - began_ms, offset)


def violations(*events: Event) -> list[str]:
    check = OnlineCheck()
    for event in events:
        check.on_event(event)
    return check.violations


def test_rising_and_overlapping_acknowledgements_are_good() -> None:
    assert (
        violations(
            acknowledged(0, 0, 1.0, 2.0),
            acknowledged(2, 2, 1.5, 3.0),
            acknowledged(1, 1, 1.4, 4.0),  # it overlaps with the one above
        )
        == []
    )


def test_an_offset_below_one_that_was_acknowledged_before_the_write_began_is_found() -> None:
    (found,) = violations(acknowledged(0, 5, 1.0, 2.0), acknowledged(1, 3, 2.5, 3.0))
    assert found == (
        "partition 0: record 1 acknowledged at offset 3, when 5 was acknowledged before it began"
    )


def test_an_offset_of_two_records_is_found() -> None:
    (found,) = violations(acknowledged(0, 5, 1.0, 2.0), acknowledged(1, 5, 1.5, 3.0))
    assert found == "partition 0: offset 5 acknowledged to record 0 and to record 1"


def test_what_the_consumer_saw_is_a_violation_too() -> None:
    assert violations(Violation(1.0, 2, "a hole")) == ["partition 2: a hole"]


@pytest.mark.parametrize("outcome", ["refused", "unknown"])
def test_other_outcomes_are_no_acknowledgement(outcome: str) -> None:
    other = Produced(3.0, 0, 1, outcome, 0.5)
    assert violations(acknowledged(0, 5, 1.0, 2.0), other) == []


def test_acks_1_of_a_mix_promises_no_offset() -> None:
    unpromised = replace(acknowledged(1, 3, 2.5, 3.0), acks="1")
    assert violations(acknowledged(0, 5, 1.0, 2.0), unpromised) == []


def test_a_long_run_is_forgotten_but_not_what_it_needs() -> None:
    check = OnlineCheck()
    step_ms = KEPT_MS / 4000
    for number in range(20_000):
        at_ms = number * step_ms
        check.on_event(acknowledged(number, number, at_ms, at_ms + 1))
    kept = check._partitions[0]
    assert len(kept.times_ms) < 10_000
    assert len(kept.offsets) < 10_000
    at_ms = 20_000 * step_ms
    check.on_event(acknowledged(20_000, 3, at_ms, at_ms + 1))
    assert len(check.violations) == 1
