"""Batches of samples are cut to a window, and tell how often they were scraped."""

import numpy as np
import pytest
from tidemark_audit.aggregation.samples import (
    EMPTY,
    STALE,
    SampleBatch,
    is_stale,
    rounded,
    typical_step_ms,
    within,
)
from tidemark_audit.metrics.families import SeriesKey


def batch(*times: list[int]) -> SampleBatch:
    """One series for each list of times."""
    series_of = [number for number, each in enumerate(times) for _ in each]
    at_ms = [at for each in times for at in each]
    return SampleBatch(
        tuple(SeriesKey("broker_epoch", broker=str(number)) for number in range(len(times))),
        np.array(series_of, dtype=np.int32),
        np.array(at_ms, dtype=np.int64),
        np.zeros(len(at_ms)),
    )


def test_a_window_has_its_start_and_not_its_end() -> None:
    samples = batch([0, 10, 20, 30])
    assert within(samples, 10, 30).at_ms.tolist() == [10, 20]
    assert within(samples, None, 10).at_ms.tolist() == [0]
    assert within(samples, 30, None).at_ms.tolist() == [30]
    assert within(samples, None, None) is samples
    assert len(within(samples, 31, 40)) == 0


def test_only_the_mark_of_prometheus_is_stale_among_the_nans() -> None:
    assert is_stale(np.array([STALE, np.nan, 0.0])).tolist() == [True, False, False]


def test_the_series_that_is_scraped_most_often_gives_the_step() -> None:
    slow, fast = list(range(0, 600_000, 60_000)), [0, 14_990, 30_010, 45_000, 45_000]
    assert typical_step_ms(batch(slow, fast)) == 15_000


def test_two_samples_of_a_series_give_no_step() -> None:
    assert typical_step_ms(batch([0, 15_000])) is None
    assert typical_step_ms(EMPTY) is None


@pytest.mark.parametrize(
    ("interval_ms", "expected"),
    [
        *((0.2, 1), (1, 1), (20, 20), (49, 49), (50, 50), (99.4, 99), (130, 100), (160, 200)),
        *((4987, 5000), (9999, 10_000), (10_400, 10_000), (14_990, 15_000)),
    ],
)
def test_an_interval_is_rounded_by_less_than_half_of_it(interval_ms: float, expected: int) -> None:
    assert rounded(interval_ms) == expected
