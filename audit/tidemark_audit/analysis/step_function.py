"""Represent a sampled value over time: sample i is valid in [t_i, min(t_i+1, t_i + cap)).

The whole audit defines time here: outside of every sample's validity a value is unknown, not the
same as before.
"""

from dataclasses import dataclass

import numpy as np

from tidemark_audit.aggregation.samples import Floats, Longs
from tidemark_audit.analysis.series import MergedSeries

CAP_INTERVALS = 2.5


@dataclass(frozen=True, slots=True)
class StepFunction:
    """Disjoint stretches [start, end), in order, each with its value and its last real sample."""

    start_ms: Longs
    end_ms: Longs
    value: Floats
    last_sample_ms: Longs

    def at(self, times_ms: Longs) -> Floats:
        """NaN where nothing is known."""
        return self._taken(times_ms, self.value)

    def last_sample_at(self, times_ms: Longs) -> Floats:
        """Return the time of the last sample of the step that holds each time."""
        return self._taken(times_ms, self.last_sample_ms.astype(np.float64))

    def _taken(self, times_ms: Longs, values: Floats) -> Floats:
        if len(self.start_ms) == 0:
            return np.full(len(times_ms), np.nan)
        place = np.searchsorted(self.start_ms, times_ms, side="right") - 1
        known = (place >= 0) & (times_ms < self.end_ms[np.maximum(place, 0)])
        return np.where(known, values[np.maximum(place, 0)], np.nan)

    def borders(self) -> Longs:
        return np.concatenate((self.start_ms, self.end_ms))

    def intervals_of(self, value: float) -> list[tuple[int, int]]:
        """Return the intervals with a value; those that touch are one."""
        found: list[tuple[int, int]] = []
        for start, end in zip(
            self.start_ms[self.value == value], self.end_ms[self.value == value], strict=True
        ):
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], int(end))
            else:
                found.append((int(start), int(end)))
        return found


NOTHING = StepFunction(
    np.empty(0, dtype=np.int64),
    np.empty(0, dtype=np.int64),
    np.empty(0, dtype=np.float64),
    np.empty(0, dtype=np.int64),
)


def steps_of(merged_series: MergedSeries | None, cap_ms: int) -> StepFunction:
    """Return the steps of a STEP family.

    Runs of NaN (the series ended) only end the run before them.
    """
    if merged_series is None or merged_series.is_empty:
        return NOTHING
    following = np.append(merged_series.first_ms[1:], np.iinfo(np.int64).max)
    end_ms = np.minimum(following, merged_series.last_ms + cap_ms)
    known = ~np.isnan(merged_series.first_value)
    return StepFunction(
        merged_series.first_ms[known],
        end_ms[known],
        merged_series.first_value[known],
        merged_series.last_ms[known],
    )


@dataclass(frozen=True, slots=True)
class Increment:
    """Record that a counter rose by `records` between two samples, or from its start."""

    after_ms: int
    at_ms: int
    before: float
    value: float
    by: float


def increments(merged_series: MergedSeries, *, from_zero: bool, cap_ms: int) -> list[Increment]:
    """Return a counter's increments; a lower value is a reset, and rose from 0 to that.

    `from_zero`: the first value is an increment too, otherwise it may be from before.
    """
    known = ~np.isnan(merged_series.first_value)
    first, last, value = (
        merged_series.first_ms[known],
        merged_series.last_ms[known],
        merged_series.first_value[known],
    )
    found = []
    for place in range(len(value)):
        before, after_ms = 0.0, int(first[0]) - cap_ms
        if place:
            before, after_ms = float(value[place - 1]), int(last[place - 1])
        elif not from_zero:
            continue
        by = value[place] - before if value[place] >= before else value[place]
        if by > 0:
            found.append(
                Increment(after_ms, int(first[place]), before, float(value[place]), float(by))
            )
    return found
