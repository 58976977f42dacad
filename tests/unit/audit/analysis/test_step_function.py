"""A sample is valid until the next one, at most two and a half intervals; counters may restart."""

import numpy as np
from tidemark_audit.analysis.step_function import NOTHING, Increment, increments, steps_of

from tests.support.audit_series import CAP_MS, at_each_second, gone, merged

COUNTER = "replica_committed_truncated_records_total"


def times(*at_ms: int) -> np.ndarray:
    return np.array(at_ms, dtype=np.int64)


def test_a_value_is_known_from_its_sample_until_two_and_a_half_intervals_after_the_last() -> None:
    steps = steps_of(merged("replica_is_leader", at_each_second(1, 1, since_s=1)), CAP_MS)
    known = steps.at(times(999, 1000, 2000, 2000 + CAP_MS - 1, 2000 + CAP_MS))
    assert np.isnan(known).tolist() == [True, False, False, False, True]
    assert steps.last_sample_at(times(1500, 3000)).tolist() == [2000, 2000]


def test_the_next_sample_ends_a_value_and_so_does_the_mark_of_an_ended_series() -> None:
    steps = steps_of(merged("replica_is_leader", at_each_second(1, 0, gone())), CAP_MS)
    assert steps.at(times(999, 1000, 1999)).tolist() == [1, 0, 0]
    assert np.isnan(steps.at(times(2000, 3000))).all()


def test_stretches_of_one_value_that_touch_are_one() -> None:
    samples = [(0, 1.0), (2, 1.0), (4, 0.0), (10, 1.0)]  # two runs: their gap breaks one
    steps = steps_of(merged("replica_is_leader", samples), CAP_MS)
    assert steps.intervals_of(1.0) == [(0, 4000), (10_000, 10_000 + CAP_MS)]
    assert steps.intervals_of(0.0) == [(4000, 4000 + CAP_MS)]
    assert steps.intervals_of(7.0) == []


def test_nothing_is_known_of_a_series_that_does_not_exist() -> None:
    assert steps_of(None, CAP_MS) is NOTHING
    assert np.isnan(NOTHING.at(times(0, 1))).all()
    assert len(NOTHING.borders()) == 0


def test_a_counter_that_restarts_rose_from_zero() -> None:
    found = increments(
        merged(COUNTER, at_each_second(5, 8, 3, gone(), 0, 2)), from_zero=False, cap_ms=CAP_MS
    )
    assert found == [
        Increment(0, 1000, 5.0, 8.0, 3.0),
        Increment(1000, 2000, 8.0, 3.0, 3.0),
        Increment(4000, 5000, 0.0, 2.0, 2.0),
    ]


def test_a_first_value_is_an_increment_only_if_the_counter_began_at_zero() -> None:
    counter = merged(COUNTER, at_each_second(4, 4, since_s=10))
    assert increments(counter, from_zero=False, cap_ms=CAP_MS) == []
    assert increments(counter, from_zero=True, cap_ms=CAP_MS) == [
        Increment(10_000 - CAP_MS, 10_000, 0.0, 4.0, 4.0)
    ]
    zero = merged(COUNTER, at_each_second(0, 0))
    assert increments(zero, from_zero=True, cap_ms=CAP_MS) == []
