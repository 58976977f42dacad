"""Gaps and latencies by partition."""

from array import array

import pytest
from tidemark_chaos.workload_log import Produced, Read, Stalled, Started
from tidemark_chaos.workload_series import (
    Gap,
    WorkloadSeries,
    first_after_gap,
    latency_of,
    longest_gap,
)


@pytest.mark.parametrize(
    ("times", "gap"),
    [
        ([10.0, 20.0, 50.0, 60.0, 100.0], Gap(20.0, 50.0)),
        ([10.0, 20.0, 60.0], Gap(20.0, 60.0)),  # it may end after the window
        ([10.0, 20.0, 30.0], Gap(30.0, 55.0)),  # nothing after it: to its end
        ([], Gap(15.0, 55.0)),
        ([200.0], Gap(15.0, 200.0)),
    ],
)
def test_the_longest_gap_overlaps_the_window(times: list[float], gap: Gap) -> None:
    assert longest_gap(array("d", times), 15.0, 55.0) == gap


def series() -> WorkloadSeries:
    found = WorkloadSeries()
    found.on_event(Started(0.0, "run", "chaos", 2, 10.0))
    for number in range(10):
        t_ms = 100.0 + 10 * number
        found.on_event(Produced(t_ms, 0, number, "acknowledged", 1.0 + number, number))
    found.on_event(Produced(150.0, 1, 0, "unknown", 5.0))
    return found


def test_latencies_are_of_the_window() -> None:
    found = latency_of(series().latencies(100.0, 150.0))
    assert (found.p50_ms, found.max_ms) == (3.0, 5.0)
    assert latency_of([]).p99_ms is None


def test_counts_and_present_gaps() -> None:
    found = series()
    assert found.acknowledged_between(100.0, 130.0) == 3
    assert found.outcomes == {"acknowledged": 10, "unknown": 1}
    assert found.gaps_ms(200.0) == {0: 10.0}


def test_of_several_consumers_the_first_that_sees_a_record_counts() -> None:
    found = series()
    found.on_event(Read(200.0, 0, 0, [0, 1]))
    found.on_event(Read(250.0, 0, 0, [0, 1], rack="rack-1"))
    found.on_event(Read(300.0, 0, 2, [2]))
    assert list(found.partitions[0].read_ms) == [200.0, 300.0]


def test_a_stall_of_the_workload_is_found_in_its_window() -> None:
    found = series()
    found.on_event(Stalled(500.0, 80.0))
    assert found.stall_ms(0.0, 400.0) == 0.0
    assert found.stall_ms(450.0, 460.0) == 80.0


def test_the_first_event_after_an_interruption_is_not_one_that_was_under_way() -> None:
    times = array("d", [10.0, 20.0, 30.0, 100.0, 110.0, 300.0])
    assert first_after_gap(times, 15.0, 200.0, 50.0) == 100.0
    assert first_after_gap(times, 15.0, 200.0, 80.0) == 300.0
    assert first_after_gap(times, 15.0, 200.0, 500.0) == 20.0
    assert first_after_gap(array("d"), 15.0, 200.0, 50.0) == 200.0
