"""Collect all facts of one partition, and of all partitions of a table of merged summaries."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa

from tidemark_audit.analysis.anomalies import Anomaly, anomalies_of
from tidemark_audit.analysis.changes import (
    CounterChange,
    counted_of,
    elections_of,
    isr_changes_of,
    partition_of,
)
from tidemark_audit.analysis.context import Context
from tidemark_audit.analysis.intervals import intervals_of, planned_segments, sli_of
from tidemark_audit.analysis.lag import lag_of
from tidemark_audit.analysis.loss import loss_of
from tidemark_audit.analysis.partition_timeline import Series, timeline_of
from tidemark_audit.analysis.reporting_coverage import Reporter, reporters_of
from tidemark_audit.analysis.series import MergedSeries, fold_scrapes, merged_series_of
from tidemark_audit.metrics.families import FAMILIES, PREFIX, Exporter
from tidemark_audit.results import (
    Coverage,
    Election,
    FollowerLag,
    Interval,
    IsrChange,
    LossEvidence,
    SliRow,
)

RETAINED = "replica_is_retained"


@dataclass(frozen=True, slots=True)
class PartitionAnalysis:
    cluster: str
    pool: str
    sli: SliRow
    coverage: Coverage
    intervals: tuple[Interval, ...]
    elections: tuple[Election, ...]
    isr_changes: tuple[IsrChange, ...]
    counted: tuple[CounterChange, ...]
    follower_lag: tuple[FollowerLag, ...]
    loss_evidence: tuple[LossEvidence, ...]
    oddities: tuple[Anomaly, ...]
    witnesses: tuple[Reporter, ...]
    life_ms: tuple[int, int]  # the part of the window in which the partition existed
    lag_max_seconds: float | None  # replica.lag.time.max.ms of the topic
    largest_append_records: float | None


def analysis_of(merged: pa.Table, context: Context) -> Iterator[PartitionAnalysis]:
    """Yield the facts of each partition; `merged` must hold all series of each."""
    partitions: dict[tuple[str, str, str, int], list[MergedSeries]] = {}
    for merged_series in merged_series_of(merged):
        key = merged_series.key
        if key.topic and key.partition >= 0:
            place = (key.cluster, key.topic, key.topic_id, key.partition)
            partitions.setdefault(place, []).append(merged_series)
    for (cluster, topic, topic_id, partition), merged_series_list in sorted(partitions.items()):
        folded = fold_scrapes(
            merged_series_list, context.intervals.cap_ms(_exporter(merged_series_list))
        )
        # Brokers do not name their pool in these families; the operator does.
        named = max((merged_series.key.pool for merged_series in merged_series_list), default="")
        pool = context.pool_of(cluster, named)
        by_key = {merged_series.key._replace(pool=""): merged_series for merged_series in folded}
        series = Series(cluster, pool, topic, topic_id, partition, by_key, context)
        life = life_of(series)
        if life.window_start_ms < life.window_end_ms:  # else deleted before the window
            yield _analysis(replace(series, context=life))


def life_of(series: Series) -> Context:
    """Return the window, cut to when the partition existed: it is not unobserved before.

    It is cut only where an exporter that would have reported the partition was seen before its
    first sample, or after its last. A deleted topic whose data is retained does not exist.
    """
    context = series.context
    seen_series = [
        merged_series
        for merged_series in series.merged_series_list.values()
        if not merged_series.is_empty
    ]
    merged_series_list = [
        merged_series for merged_series in seen_series if merged_series.key.family != RETAINED
    ]
    if not merged_series_list:
        was_kept = bool(seen_series)
        return _none_of(context) if was_kept else context
    first = min(int(merged_series.first_ms[0]) for merged_series in merged_series_list)
    last = max(int(merged_series.last_ms[-1]) for merged_series in merged_series_list)
    cap = max(context.intervals.cap_ms(exporter) for exporter in Exporter)
    seen = [context.broker_seen_ms.get(series.place_of(name)) for name in series.brokers()]
    if any(
        merged_series.key.family == "partition_leader_id" for merged_series in merged_series_list
    ):
        seen = [context.operator_seen_ms.get(series.cluster)]
    known = [each for each in seen if each is not None]
    start, end = context.window_start_ms, context.window_end_ms
    if known and all(since < first - cap for since, _ in known) and first - cap > start:
        start = first
    if known and all(until > last + cap for _, until in known) and last + cap < end:
        end = last + 1
    kept = min(
        (at for merged_series in seen_series for at in _times_retained(merged_series)), default=end
    )
    if kept < end and not _is_led_after(merged_series_list, kept + cap):
        end = max(start, kept)
    return replace(context, window_start_ms=start, window_end_ms=end)


def _none_of(context: Context) -> Context:
    return replace(context, window_end_ms=context.window_start_ms)


def _times_retained(merged_series: MergedSeries) -> list[int]:
    """Return when the data was reported as retained without a topic."""
    if merged_series.key.family != RETAINED:
        return []
    return [int(at) for at in merged_series.first_ms[merged_series.first_value == 1.0]]


def _is_led_after(merged_series_list: list[MergedSeries], at_ms: int) -> bool:
    """Return whether the partition is led later: a Topic may have adopted retained data."""
    return any(
        int(merged_series.last_ms[-1]) > at_ms
        for merged_series in merged_series_list
        if merged_series.key.family == "partition_in_sync_replicas"
    )


def _exporter(merged_series_list: list[MergedSeries]) -> Exporter:
    return max(
        FAMILIES[PREFIX + merged_series.key.family].exporter for merged_series in merged_series_list
    )


def _analysis(series: Series) -> PartitionAnalysis:
    start_ms = series.context.window_start_ms
    whole = timeline_of(series)
    all_planned = planned_segments(series, whole)
    timeline = whole.since(start_ms)
    sli = sli_of(series, timeline, all_planned[-len(timeline.state) :])
    return PartitionAnalysis(
        cluster=series.cluster,
        pool=series.pool,
        sli=sli,
        coverage=Coverage(
            partition_of(series),
            sli.observed_ms,
            sli.total_ms,
            sum(merged_series.samples for merged_series in series.merged_series_list.values()),
        ),
        intervals=tuple(intervals_of(series, whole, all_planned)),
        elections=tuple(e for e in elections_of(series, whole) if e.at_ms >= start_ms),
        isr_changes=tuple(c for c in isr_changes_of(series, whole) if c.at_ms >= start_ms),
        counted=tuple(counted_of(series)),
        follower_lag=tuple(lag_of(series)),
        loss_evidence=tuple(loss_of(series)),
        oddities=tuple(anomalies_of(series)),
        witnesses=tuple(reporters_of(series, timeline)),
        life_ms=(series.context.window_start_ms, series.context.window_end_ms),
        lag_max_seconds=_lag_max_seconds(series),
        largest_append_records=_largest(series, "partition_largest_append_records"),
    )


def _lag_max_seconds(series: Series) -> float | None:
    what_if = series.context.what_if
    if what_if is not None and what_if.lag_max_seconds is not None:
        return what_if.lag_max_seconds
    return _largest(series, "partition_replica_lag_max_seconds", last=True)


def _largest(series: Series, family: str, *, last: bool = False) -> float | None:
    found = [merged_series for merged_series in series.all_of(family) if not merged_series.is_empty]
    if last and found:
        newest = max(found, key=lambda merged_series: int(merged_series.last_ms[-1]))
        found = [newest]
    values = [
        float(np.nanmax(merged_series.first_value))
        for merged_series in found
        if not np.isnan(merged_series.first_value).all()
    ]
    return max(values, default=None)


def to_bytes(analysis: PartitionAnalysis) -> bytes:
    """Encode the facts for the way from Spark's workers to its driver."""
    return msgspec.msgpack.encode(analysis)


def from_bytes(data: bytes) -> PartitionAnalysis:
    return msgspec.msgpack.decode(data, type=PartitionAnalysis)
