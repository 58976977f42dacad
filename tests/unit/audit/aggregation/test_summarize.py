"""Samples of a slice become one row for each series: its runs, its histogram, what was dropped."""

from typing import Any

import pytest
from tidemark_audit.aggregation.summaries import NO_BAND
from tidemark_audit.aggregation.summarize import LARGEST_VALUE, summarize
from tidemark_audit.metrics.families import SeriesKey

from tests.support.audit_series import SETTINGS, Samples, at_each_second, batch_of, gone

IN_SYNC = SeriesKey("partition_in_sync_replicas", topic="orders", partition=0, broker="1")
MARK = SeriesKey("replica_high_watermark_offset", topic="orders", partition=0, broker="1")
AGE = SeriesKey(
    "follower_caught_up_age_seconds", topic="orders", partition=0, broker="1", follower="2"
)
SKEW = SeriesKey("broker_clock_skew_seconds", pool="p", broker="2")


def rows(*series: tuple[SeriesKey, Samples]) -> list[dict[str, Any]]:
    return summarize(batch_of(*series), SETTINGS).to_pylist()


def runs(key: SeriesKey, samples: Samples) -> list[tuple[int, int, float, float]]:
    (row,) = rows((key, samples))
    names = ("run_first_ms", "run_last_ms", "run_first_value", "run_last_value")
    return list(zip(*(row[name] for name in names), strict=True))


def dropped(key: SeriesKey, samples: Samples) -> dict[str, int]:
    row = rows((key, samples))[0]
    names = ("duplicates", "conflicts", "out_of_order", "impossible")
    return {name: row[name] for name in names if row[name]}


def test_equal_values_are_one_run_until_a_gap_or_another_value() -> None:
    samples = [(0, 3.0), (1, 3.0), (3, 3.0), (4, 2.0)]
    assert runs(IN_SYNC, samples) == [(0, 1000, 3, 3), (3000, 3000, 3, 3), (4000, 4000, 2, 2)]


def test_a_value_that_rises_is_one_run_until_it_falls() -> None:
    assert runs(MARK, at_each_second(5, 9, 9, 4, 6)) == [(0, 2000, 5, 9), (3000, 4000, 4, 6)]


def test_samples_of_two_series_are_two_rows_and_of_one_key_one_row() -> None:
    found = rows((IN_SYNC, [(0, 3.0)]), (MARK, [(0, 7.0)]), (IN_SYNC, [(1, 3.0)]))
    assert [(row["family"], row["samples"]) for row in found] == [
        ("partition_in_sync_replicas", 2),
        ("replica_high_watermark_offset", 1),
    ]
    assert rows() == []


@pytest.mark.parametrize(
    ("samples", "counted"),
    [
        ([(0, 3.0), (0, 3.0), (1, 2.0)], {"duplicates": 1}),
        ([(0, 3.0), (0, 2.0)], {"conflicts": 1}),
        ([(1, 3.0), (0, 3.0)], {"out_of_order": 1}),
        ([(0, 3.0), (1, gone())], {}),  # a series that ended is nothing bad
        ([(0, float("nan"))], {"impossible": 1}),
        ([(0, float("inf"))], {"impossible": 1}),
        ([(0, -2.0)], {"impossible": 1}),
        ([(0, 2.5)], {"impossible": 1}),
        ([(0, 2 * LARGEST_VALUE)], {"impossible": 1}),
        ([(0, -1.0), (1, LARGEST_VALUE)], {}),
    ],
)
def test_samples_that_cannot_be_taken_are_counted(
    samples: Samples, counted: dict[str, int]
) -> None:
    assert dropped(IN_SYNC, samples) == counted


def test_seconds_may_be_broken_and_a_clock_may_be_off_to_either_side() -> None:
    assert dropped(AGE, [(0, 0.25), (1, -1.0)]) == {}
    assert dropped(AGE, [(0, -1.5)]) == {"impossible": 1}
    assert dropped(SKEW, [(0, -7.25)]) == {}
    assert rows((SKEW, [(0, -7.25), (1, 3.0)]))[0]["maximum"] == 7.25


def test_ages_of_all_followers_are_summed_up_by_minute() -> None:
    other = AGE._replace(follower="3")
    found = rows((AGE, [(0, 1.0), (59, 1.0), (60, 9.0)]), (other, [(1, 2.0)]), (SKEW, [(0, 5.0)]))
    bands = [row for row in found if row["band_start_ms"] != NO_BAND]
    assert [(row["band_start_ms"], row["samples"], row["maximum"]) for row in bands] == [
        (0, 3, 2.0),
        (60_000, 1, 9.0),
    ]
    assert {(row["topic"], row["follower"]) for row in bands} == {("", "")}
