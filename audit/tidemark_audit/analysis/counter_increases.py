"""Find when a counter or latched value rose, including from before its first sample.

Proof of loss must not be dropped if an earlier sample is missing, nor be reported again in every
later window.
"""

from enum import Enum, auto

import numpy as np

from tidemark_audit.analysis.partition_timeline import Series
from tidemark_audit.analysis.series import MergedSeries
from tidemark_audit.analysis.step_function import Increment, increments
from tidemark_audit.metrics.families import FAMILIES, PREFIX, Exporter


class CounterIncrease(Enum):
    """Say how to judge a rise from 0 to the first value that was seen."""

    EARLIER = auto()  # it is seen to have stood when the window began
    WITHIN = auto()
    UNKNOWN = auto()  # before the window, or in it


def first_rise(series: Series, merged_series: MergedSeries) -> CounterIncrease:
    """Return how the series' first value rose; a series without values never rose."""
    known = merged_series.first_ms[~np.isnan(merged_series.first_value)]
    context = series.context
    exporter = FAMILIES[PREFIX + merged_series.key.family].exporter
    cap_ms = context.intervals.cap_ms(exporter)
    since = (
        context.broker_since_ms(series.place_of(merged_series.key.broker))
        if exporter is Exporter.BROKER
        else context.operator_since_ms(series.cluster)
    )
    if not len(known) or since is None:
        return CounterIncrease.UNKNOWN
    if known[0] > since + cap_ms:
        return CounterIncrease.WITHIN  # its exporter had long been seen without it
    if exporter is Exporter.BROKER and _came_up(series, merged_series.key.broker, since, cap_ms):
        return CounterIncrease.WITHIN
    return (
        CounterIncrease.EARLIER if known[0] < context.window_start_ms else CounterIncrease.UNKNOWN
    )


def _came_up(series: Series, broker: str, since_ms: int, cap_ms: int) -> bool:
    """Return whether a broker, first seen then, started within the window.

    Its counters then count from its start. A broker that was in sync earlier was running, and only
    not scraped.
    """
    context = series.context
    begun = context.cluster_since_ms.get(series.cluster, context.window_start_ms)
    if since_ms <= max(begun, context.window_start_ms) + cap_ms:
        return False
    return not any(
        merged_series.key.follower == broker
        and (merged_series.first_ms[merged_series.first_value == 1.0] < since_ms).any()
        for merged_series in series.all_of("follower_in_sync")
    )


def stood_at_start(series: Series, merged_series: MergedSeries) -> float:
    """Return the value of the last sample before the window; 0 if there is none."""
    is_before = (merged_series.first_ms < series.context.window_start_ms) & ~np.isnan(
        merged_series.first_value
    )
    before = np.flatnonzero(is_before)
    return float(merged_series.first_value[before[-1]]) if len(before) else 0.0


def counted_steps(series: Series, merged_series: MergedSeries | None) -> list[Increment]:
    """Return a counter's increments, including those of the time read before the window."""
    if merged_series is None or merged_series.is_empty:
        return []
    return increments(
        merged_series,
        from_zero=first_rise(series, merged_series) is CounterIncrease.WITHIN,
        cap_ms=series.cap_ms(merged_series.key.family),
    )
