"""Quantiles of a histogram are right to one percent, however far its values lie apart."""

import math

import numpy as np
import pytest
from tidemark_audit.aggregation.histogram import GROWTH, NEVER, UNIT, bins, quantile, value_of


def of(*values: float) -> tuple[np.ndarray, np.ndarray]:
    return np.unique(bins(np.array(values)), return_counts=True)


@pytest.mark.parametrize("value", [2e-6, 0.001, 0.5, 1.0, 3.0, 59.9, 10_000.0, 2.0**53])
def test_the_value_of_a_bin_is_within_one_percent_of_each_member(value: float) -> None:
    (number,) = bins(np.array([value])).tolist()
    assert value_of(number) == pytest.approx(value, rel=0.01)


def test_zero_and_what_is_smaller_than_the_unit_share_a_bin() -> None:
    assert bins(np.array([0.0, UNIT / 2, UNIT, UNIT * 1.001])).tolist() == [0, 0, 0, 1]
    assert value_of(0) == 0.0


def test_a_value_on_the_edge_of_a_bin_stays_in_it() -> None:
    edges = UNIT * GROWTH ** np.arange(1, 1500)
    assert bins(edges).tolist() == list(range(1, 1500))


def test_never_caught_up_ranks_above_each_number() -> None:
    assert bins(np.array([-1.0])).tolist() == [NEVER]
    assert value_of(NEVER) == math.inf
    numbers, counts = of(*[1.0] * 98, -1.0, -1.0)
    assert quantile(numbers, counts, 0.98) == pytest.approx(1.0, rel=0.01)
    assert quantile(numbers, counts, 0.99) == math.inf


def test_a_quantile_is_the_smallest_value_that_enough_samples_do_not_exceed() -> None:
    numbers, counts = of(*[3.0] * 99, 10_000.0)
    assert quantile(numbers, counts, 0.99) == pytest.approx(3.0, rel=0.01)
    assert quantile(numbers, counts, 0.991) == pytest.approx(10_000.0, rel=0.01)
    assert quantile(numbers, counts, 0.0) == pytest.approx(3.0, rel=0.01)
    assert quantile(np.array([0, 5], dtype=np.int32), np.array([0, 3]), 0.0) == value_of(5)
    assert quantile(numbers, counts, 1.0) == pytest.approx(10_000.0, rel=0.01)


def test_no_samples_have_no_quantile() -> None:
    assert quantile(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64), 0.5) is None
