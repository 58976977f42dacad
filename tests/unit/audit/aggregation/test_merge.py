"""Summaries of one key become one row; slices of one time are refused."""

from typing import Any

import pyarrow as pa
import pytest
from tidemark_audit.aggregation.merge import OverlappingSlices, merge
from tidemark_audit.aggregation.summaries import EMPTY
from tidemark_audit.aggregation.summarize import summarize
from tidemark_audit.metrics.families import SeriesKey

from tests.support.audit_series import SETTINGS, Samples, at_each_second, batch_of

IN_SYNC = SeriesKey("partition_in_sync_replicas", topic="orders", partition=0, broker="1")
LAG = SeriesKey("follower_lag_records", topic="orders", partition=0, broker="1", follower="2")


def merged(*slices: tuple[SeriesKey, Samples]) -> list[dict[str, Any]]:
    """Summarise each slice alone, then merge."""
    batches = [summarize(batch_of(each), SETTINGS) for each in slices]
    return merge(pa.Table.from_batches(batches), SETTINGS).to_pylist()


def test_nothing_merges_to_nothing() -> None:
    assert merge(EMPTY, SETTINGS).num_rows == 0


@pytest.mark.parametrize(("begin_s", "runs"), [(2, [[0, 3000]]), (3, [[0, 1000], [3000, 4000]])])
def test_runs_join_over_the_border_of_two_slices_that_are_close(
    begin_s: int, runs: list[list[int]]
) -> None:
    later = (IN_SYNC, at_each_second(3, 3, since_s=begin_s))
    earlier = (IN_SYNC, at_each_second(3, 3))
    for order in ((earlier, later), (later, earlier)):
        (row,) = merged(*order)
        found = zip(row["run_first_ms"], row["run_last_ms"], strict=True)
        assert [list(run) for run in found] == runs
        assert (row["samples"], sum(row["run_samples"])) == (4, 4)


def test_histograms_and_maxima_of_one_series_are_one() -> None:
    earlier, later = at_each_second(3, 50), at_each_second(3, 7, since_s=2)
    (row,) = merged((LAG, earlier), (LAG, later))
    assert (row["maximum"], row["bin_count"]) == (50.0, [2, 1, 1])
    assert row["bin"] == sorted(row["bin"])


def test_rows_are_in_the_order_of_their_keys() -> None:
    keys = [
        IN_SYNC._replace(partition=10),
        IN_SYNC._replace(partition=9),
        IN_SYNC._replace(topic="a"),
        LAG,
    ]
    found = merged(*((key, [(0, 3.0)]) for key in keys))
    assert [(row["family"], row["topic"], row["partition"]) for row in found] == [
        ("follower_lag_records", "orders", 0),
        ("partition_in_sync_replicas", "a", 0),
        ("partition_in_sync_replicas", "orders", 9),
        ("partition_in_sync_replicas", "orders", 10),
    ]


def test_two_slices_of_one_time_are_refused_with_the_series_and_the_time() -> None:
    one, other = (IN_SYNC, at_each_second(3, 3, 3)), (IN_SYNC, at_each_second(3, since_s=1))
    with pytest.raises(OverlappingSlices, match=r"topic=orders.*at 1000 ms"):
        merged(one, other)
    assert len(merged(one, (IN_SYNC._replace(scrape="b"), at_each_second(3, since_s=1)))) == 2
