"""Define what an engine returns to the rules, and the steps that both engines share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark_audit.aggregation import histogram
from tidemark_audit.aggregation.samples import Longs
from tidemark_audit.aggregation.summaries import NO_BAND, AggregationSettings
from tidemark_audit.analysis.context import Context, Intervals, context_of, lives_of
from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.analysis.series import MergedSeries, fold_scrapes, merged_series_of
from tidemark_audit.analysis.step_function import increments
from tidemark_audit.analysis.what_if import WhatIf
from tidemark_audit.engines.planning import BAND_MS
from tidemark_audit.metrics.families import Exporter
from tidemark_audit.results import LagBand
from tidemark_audit.rules.evaluation import BadSamples, BrokerRun, ClockSkew
from tidemark_audit.sources.source import Slice, Window

MOST_BANDS = 96
Progress = Callable[[int, int], None]  # slices done, of how many


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what to read, and how to make summaries."""

    slices: Sequence[Slice]
    window: Window
    settings: AggregationSettings
    interval_ms: int | None = None  # of scrapes; None: from the samples
    what_if: WhatIf | None = None  # settings under which partitions are judged a second time


@dataclass(frozen=True, slots=True)
class Observed:
    """Hold all that the samples say, before any objective."""

    window_start_ms: int
    window_end_ms: int
    intervals: Intervals
    samples: int
    series: int
    families: frozenset[str]
    partitions: tuple[PartitionAnalysis, ...]
    lag_bands: tuple[LagBand, ...]
    clock_skew: tuple[ClockSkew, ...]
    bad_samples: tuple[BadSamples, ...]
    crc_failures: tuple[tuple[str, str, int], ...]
    clusters: tuple[str, ...]
    broker_lives: tuple[BrokerRun, ...]
    partitions_what_if: tuple[PartitionAnalysis, ...] = ()


class NoSamples(Exception):
    """Report that the window has no sample of a family that the audit reads."""


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def observe(self, request: Request, progress: Progress) -> Observed:
        """Read the request's sources and return all facts.

        Raises SourceError, NoSamples, OverlappingSlices.
        """

    def summaries(self, request: Request, progress: Progress) -> pa.Table:
        """Return the merged summaries of the whole request.

        Raises SourceError, OverlappingSlices.
        """


@dataclass(frozen=True, slots=True)
class FamilyCounts:
    """Hold the counts of one family, over all its series."""

    family: str
    samples: int
    series: int
    conflicts: int
    impossible: int
    out_of_order: int
    first_ms: int
    last_ms: int


def family_counts(merged: pa.Table) -> list[FamilyCounts]:
    """Count the samples of each family in a table of merged summaries.

    `added_counts` adds those of several tables.
    """
    found = []
    is_series = pc.and_(
        pc.equal(merged["band_start_ms"], NO_BAND), pc.greater(merged["samples"], 0)
    )
    rows = merged.filter(is_series)  # a series without a sample is no evidence of its family
    for family in sorted(set(rows["family"].to_pylist())):
        mine = rows.filter(pc.equal(rows["family"], family))
        found.append(
            FamilyCounts(
                family,
                pc.sum(mine["samples"]).as_py(),
                mine.num_rows,
                pc.sum(mine["conflicts"]).as_py(),
                pc.sum(mine["impossible"]).as_py(),
                pc.sum(mine["out_of_order"]).as_py(),
                pc.min(pc.list_flatten(mine["run_first_ms"])).as_py(),
                pc.max(pc.list_flatten(mine["run_last_ms"])).as_py(),
            )
        )
    return found


def added_counts(counts: Iterable[FamilyCounts]) -> list[FamilyCounts]:
    by_family: dict[str, FamilyCounts] = {}
    for each in counts:
        known = by_family.get(each.family)
        by_family[each.family] = each if known is None else _sum(known, each)
    return [by_family[family] for family in sorted(by_family)]


def _sum(one: FamilyCounts, other: FamilyCounts) -> FamilyCounts:
    return FamilyCounts(
        one.family,
        one.samples + other.samples,
        one.series + other.series,
        one.conflicts + other.conflicts,
        one.impossible + other.impossible,
        one.out_of_order + other.out_of_order,
        min(one.first_ms, other.first_ms),
        max(one.last_ms, other.last_ms),
    )


def window_of(request: Request, counts: Sequence[FamilyCounts]) -> tuple[int, int]:
    """Return the requested window, or the one from the first sample to the last.

    Raises NoSamples.
    """
    if not counts:
        raise NoSamples("no samples of metric families that the audit reads")
    start = request.window.start_ms
    end = request.window.end_ms
    start = min(each.first_ms for each in counts) if start is None else start
    end = max(each.last_ms for each in counts) if end is None else end
    if end <= start or (
        request.window.look_back_ms and max(each.last_ms for each in counts) < start
    ):
        raise NoSamples("fewer than two sample times in the window")
    return start, end


def observed(
    counts: Sequence[FamilyCounts],
    without_topic: pa.Table,
    partitions: Sequence[PartitionAnalysis],
    context: Context,
    partitions_what_if: Sequence[PartitionAnalysis] = (),
) -> Observed:
    """Collect the small rows (brokers, operator, bands) and the facts of partitions."""
    merged_series_list = list(merged_series_of(without_topic))
    named = {partition.cluster for partition in partitions}
    return Observed(
        context.window_start_ms,
        context.window_end_ms,
        context.intervals,
        sum(each.samples for each in counts),
        sum(each.series for each in counts),
        frozenset(each.family for each in counts),
        tuple(sorted(partitions, key=_place)),
        _lag_bands(without_topic, context),
        tuple(
            ClockSkew(merged_series.key.cluster, merged_series.key.broker, skew)
            for merged_series in fold_scrapes(
                [
                    each
                    for each in merged_series_list
                    if each.key.family == "broker_clock_skew_seconds"
                ],
                0,
            )
            if (skew := histogram.quantile(merged_series.bins, merged_series.bin_counts, 0.99))
            is not None
        ),
        tuple(
            BadSamples(each.family, each.conflicts, each.impossible, each.out_of_order)
            for each in counts
            if each.conflicts or each.impossible or each.out_of_order
        ),
        _crc_failures(without_topic, context),
        tuple(sorted(named)),
        tuple(_broker_lives(merged_series_list)),
        tuple(sorted(partitions_what_if, key=_place)),
    )


def _broker_lives(merged_series_list: Sequence[MergedSeries]) -> Iterator[BrokerRun]:
    """Yield brokers' processes by their epochs: each start has another one."""
    epochs = [
        merged_series
        for merged_series in merged_series_list
        if merged_series.key.family == "broker_epoch"
    ]
    for merged_series in fold_scrapes(epochs, 0):
        key = merged_series.key
        for first, last, epoch in lives_of(merged_series):
            yield BrokerRun(key.cluster, key.pool, key.broker, epoch, first, last)


def _place(analysis: PartitionAnalysis) -> tuple[str, str, str, int]:
    assert analysis.sli.partition is not None
    return (analysis.cluster, analysis.sli.topic, analysis.sli.topic_id, analysis.sli.partition)


def _crc_failures(rows: pa.Table, context: Context) -> tuple[tuple[str, str, int], ...]:
    total: dict[tuple[str, str], int] = {}
    cap_ms = context.intervals.cap_ms(Exporter.BROKER)
    merged_series_list = [
        merged_series
        for merged_series in merged_series_of(rows)
        if merged_series.key.family == "crc_failures_total"
    ]
    for merged_series in fold_scrapes(merged_series_list, cap_ms):
        if merged_series.is_empty:
            continue
        by = sum(
            step.by
            for step in increments(merged_series, from_zero=False, cap_ms=cap_ms)
            if step.at_ms >= context.window_start_ms
        )
        place = (merged_series.key.cluster, merged_series.key.detail)
        total[place] = total.get(place, 0) + int(by)
    return tuple((*place, count) for place, count in sorted(total.items()) if count)


@dataclass(frozen=True, slots=True)
class _Band:
    """Hold one of the kernel's bands: the ages of a minute's samples."""

    start_ms: int
    bins: NDArray[np.int32]
    counts: Longs
    maximum: float


def _lag_bands(rows: pa.Table, context: Context) -> tuple[LagBand, ...]:
    """Join the kernel's bands into as many intervals as a reader can see, each of whole bands."""
    window = context.window_end_ms - context.window_start_ms
    length = BAND_MS * max(1, -(-window // (MOST_BANDS * BAND_MS)))
    merged: dict[int, list[_Band]] = {}
    for band in _bands(rows):
        merged.setdefault(band.start_ms // length * length, []).append(band)
    found = []
    for start, members in sorted(merged.items()):
        bins = np.concatenate([band.bins for band in members])
        counts = np.concatenate([band.counts for band in members])
        order = np.argsort(bins, kind="stable")
        p50, p90, p99 = (
            None if value is None or np.isinf(value) else value
            for share in (0.5, 0.9, 0.99)
            for value in (histogram.quantile(bins[order], counts[order], share),)
        )
        first = max(start, context.window_start_ms)
        end = max(min(start + length, context.window_end_ms), first + 1)
        largest = max(band.maximum for band in members)
        found.append(LagBand(first, end, int(counts.sum()), p50, p90, p99, largest))
    return tuple(found)


def _bands(rows: pa.Table) -> Iterator[_Band]:
    wanted = ("band_start_ms", "bin", "bin_count", "maximum")
    for batch in rows.filter(pc.not_equal(rows["band_start_ms"], NO_BAND)).to_batches():
        starts, bins, counts, maxima = (batch.column(name) for name in wanted)
        for row in range(batch.num_rows):
            yield _Band(
                starts[row].as_py(),
                bins[row].values.to_numpy(),
                counts[row].values.to_numpy(),
                maxima[row].as_py(),
            )


def make_context(without_topic: pa.Table, window: tuple[int, int], intervals: Intervals) -> Context:
    return context_of(
        list(merged_series_of(without_topic)),
        window_start_ms=window[0],
        window_end_ms=window[1],
        intervals=intervals,
    )


def is_without_topic(merged: pa.Table) -> pa.Table:
    return merged.filter(pc.equal(merged["topic"], ""))
