"""How far each follower was behind, over all the leaders that it had."""

from collections.abc import Sequence

import numpy as np

from tidemark_audit.facts.changes import partition_of
from tidemark_audit.facts.tracks import Track, added
from tidemark_audit.facts.view import Series
from tidemark_audit.kernel import histogram
from tidemark_audit.results import FollowerLag


def lag_of(series: Series) -> list[FollowerLag]:
    ages = _by_follower(series.all_of("follower_caught_up_age_seconds"))
    records = _by_follower(series.all_of("follower_lag_records"))
    return [
        _row(series, follower, ages.get(follower, ()), records.get(follower, ()))
        for follower in sorted(ages.keys() | records.keys(), key=lambda name: (len(name), name))
    ]


def _by_follower(tracks: Sequence[Track]) -> dict[str, list[Track]]:
    found: dict[str, list[Track]] = {}
    for track in tracks:
        found.setdefault(track.key.follower, []).append(track)
    return found


def _row(
    series: Series, follower: str, ages: Sequence[Track], records: Sequence[Track]
) -> FollowerLag:
    age, age_samples, never = _quantiles(ages)
    lag, lag_samples, _ = _quantiles(records)
    return FollowerLag(
        partition_of(series), follower, max(age_samples, lag_samples), never, *age, *lag
    )


def _quantiles(
    tracks: Sequence[Track],
) -> tuple[tuple[float | None, float | None, float | None, float | None], int, int]:
    bins, counts = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    for track in tracks:
        bins, counts = added(bins, counts, track.bins, track.bin_counts)
    maximum = max((track.maximum for track in tracks), default=-np.inf)
    at = [histogram.quantile(bins, counts, share) for share in (0.5, 0.99, 0.999)]
    largest = float(maximum) if np.isfinite(maximum) and maximum >= 0 else None
    never = int(counts[bins == histogram.NEVER].sum())
    # A bin's middle may lie above every member of it.
    bounded = [
        value if value is None or largest is None or np.isinf(value) else min(value, largest)
        for value in at
    ]
    return (bounded[0], bounded[1], bounded[2], largest), int(counts.sum()), never
