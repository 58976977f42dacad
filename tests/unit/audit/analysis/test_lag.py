"""How far a follower was behind, over all its leaders."""

import math

import pytest
from tidemark_audit.analysis.lag import lag_of

from tests.support.audit_series import Samples, at_each_second, merged, series

AGE, RECORDS = "follower_caught_up_age_seconds", "follower_lag_records"


def test_a_follower_of_two_leaders_has_the_samples_of_both() -> None:
    (found,) = lag_of(
        series(
            merged(AGE, at_each_second(*[1.0] * 50), broker="1", follower="3"),
            merged(AGE, at_each_second(*[4.0] * 50, since_s=50), broker="2", follower="3"),
        )
    )
    assert (found.follower, found.samples, found.age_max_seconds) == ("3", 100, 4.0)
    assert found.age_p50_seconds == pytest.approx(1.0, rel=0.01)
    assert found.age_p99_seconds == pytest.approx(4.0, rel=0.01)
    assert found.records_p99 is None


def test_while_a_replica_leads_it_counts_as_caught_up() -> None:
    """Broker 3 follows for one second of a hundred, far behind, and leads for the others."""
    found = lag_of(
        series(
            merged(AGE, [(0, 30.0)], broker="2", follower="3"),
            merged(AGE, [(0, 0.0)], broker="2", follower="1"),
            merged(AGE, at_each_second(*[2.0] * 99, since_s=1), broker="3", follower="1"),
        )
    )
    behind = {lag.follower: (lag.age_p99_seconds, lag.age_max_seconds) for lag in found}
    assert behind["3"] == (0.0, 30.0)
    assert behind["1"][0] == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("age", [0.5, 0.505, 1.0, 1.005, 1.01])
def test_no_quantile_exceeds_the_largest_sample(age: float) -> None:
    (found,) = lag_of(series(merged(AGE, at_each_second(age, age), broker="1", follower="2")))
    assert found.age_p999_seconds is not None
    assert found.age_p999_seconds <= age


def test_a_follower_that_never_caught_up_ranks_above_each_number() -> None:
    ages = at_each_second(0.5, -1, -1)
    (found,) = lag_of(series(merged(AGE, ages, broker="1", follower="2")))
    assert (found.never_caught_up_samples, found.age_p50_seconds) == (2, math.inf)
    assert found.age_max_seconds == 0.5


def test_followers_stand_in_the_order_of_their_numbers() -> None:
    few: Samples = [(0, 1.0)]
    found = lag_of(
        series(*(merged(RECORDS, few, broker="1", follower=name) for name in ("10", "9", "2")))
    )
    assert [lag.follower for lag in found] == ["2", "9", "10"]
    assert lag_of(series()) == []
