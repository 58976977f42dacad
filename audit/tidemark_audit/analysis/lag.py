"""Measure how far each follower was behind, over all the leaders that it had."""

from collections.abc import Sequence

import numpy as np

from tidemark_audit.aggregation import histogram
from tidemark_audit.analysis.changes import partition_of
from tidemark_audit.analysis.partition_timeline import Series
from tidemark_audit.analysis.series import MergedSeries, added
from tidemark_audit.results import FollowerLag


def lag_of(series: Series) -> list[FollowerLag]:
    ages = _by_follower(series.all_of("follower_caught_up_age_seconds"))
    records = _by_follower(series.all_of("follower_lag_records"))
    scrapes = _scrapes(series)
    return [
        _row(series, follower, ages.get(follower, ()), records.get(follower, ()), scrapes)
        for follower in sorted(ages.keys() | records.keys(), key=lambda name: (len(name), name))
    ]


def _by_follower(merged_series_list: Sequence[MergedSeries]) -> dict[str, list[MergedSeries]]:
    found: dict[str, list[MergedSeries]] = {}
    for merged_series in merged_series_list:
        found.setdefault(merged_series.key.follower, []).append(merged_series)
    return found


def _scrapes(series: Series) -> int:
    """Return how often a leader was scraped: as often as its best known follower.

    A follower that exports its own lag (Kafka's) does not count.
    """
    by_leader: dict[str, int] = {}
    for family in ("follower_caught_up_age_seconds", "follower_lag_records"):
        for merged_series in series.all_of(family):
            broker = merged_series.key.broker
            if broker == merged_series.key.follower:
                continue
            by_leader[broker] = max(by_leader.get(broker, 0), int(merged_series.bin_counts.sum()))
    return sum(by_leader.values())


def _row(
    series: Series,
    follower: str,
    ages: Sequence[MergedSeries],
    records: Sequence[MergedSeries],
    scrapes: int,
) -> FollowerLag:
    age, age_samples, never = _quantiles(ages, scrapes)
    lag, lag_samples, _ = _quantiles(records, scrapes)
    return FollowerLag(
        partition_of(series), follower, max(age_samples, lag_samples), never, *age, *lag
    )


def _quantiles(
    merged_series_list: Sequence[MergedSeries], scrapes: int
) -> tuple[tuple[float | None, float | None, float | None, float | None], int, int]:
    bins, counts = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    for merged_series in merged_series_list:
        bins, counts = added(bins, counts, merged_series.bins, merged_series.bin_counts)
    own = int(counts.sum())
    if own:
        # While it led it was as far as the leader: else a minute as a follower, just after a
        # restart, would be all that is known of its day.
        zero = np.zeros(1, dtype=np.int32)
        bins, counts = added(bins, counts, zero, np.array([max(0, scrapes - own)], dtype=np.int64))
    maximum = max((merged_series.maximum for merged_series in merged_series_list), default=-np.inf)
    at = [histogram.quantile(bins, counts, share) for share in (0.5, 0.99, 0.999)]
    largest = float(maximum) if np.isfinite(maximum) and maximum >= 0 else None
    never = int(counts[bins == histogram.NEVER].sum())
    # A bin's middle may lie above every member of it.
    bounded = [
        value if value is None or largest is None or np.isinf(value) else min(value, largest)
        for value in at
    ]
    return (bounded[0], bounded[1], bounded[2], largest), own, never
