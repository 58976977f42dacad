"""Hold merged summaries as arrays, and combine several scrapes of one target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark_audit.aggregation.samples import Floats, Longs
from tidemark_audit.aggregation.summaries import NO_BAND
from tidemark_audit.metrics.families import FAMILIES, PREFIX, Exporter, MetricShape, SeriesKey


@dataclass(frozen=True, slots=True)
class MergedSeries:
    """Hold one series over the window; run i spans its first to its last sample, inclusive."""

    key: SeriesKey
    samples: int
    maximum: float
    first_ms: Longs
    last_ms: Longs
    run_samples: Longs
    first_value: Floats
    last_value: Floats
    bins: NDArray[np.int32]
    bin_counts: Longs

    @property
    def is_empty(self) -> bool:
        return len(self.first_ms) == 0


def merged_series_of(merged: pa.Table) -> Iterator[MergedSeries]:
    """Yield one MergedSeries per row that is a series, in the order of rows."""
    merged = merged.combine_chunks()
    keys = zip(*(merged[name].to_pylist() for name in SeriesKey._fields), strict=True)
    flat = {name: _Lists(merged[name]) for name in merged.column_names if _is_list(merged, name)}
    samples, maximum = merged["samples"].to_pylist(), merged["maximum"].to_pylist()
    bands = merged["band_start_ms"].to_pylist()
    for row, key in enumerate(keys):
        if bands[row] != NO_BAND:
            continue
        yield MergedSeries(
            SeriesKey(*key),
            samples[row],
            maximum[row],
            flat["run_first_ms"].row(row),
            flat["run_last_ms"].row(row),
            flat["run_samples"].row(row),
            flat["run_first_value"].row(row),
            flat["run_last_value"].row(row),
            flat["bin"].row(row),
            flat["bin_count"].row(row),
        )


def _is_list(table: pa.Table, name: str) -> bool:
    return bool(pa.types.is_list(table.schema.field(name).type))


class _Lists:
    """Rows of a list column as views of one array."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        whole = column.combine_chunks()
        self._offsets = whole.offsets.to_numpy()
        self._values = whole.values.to_numpy()

    def row(self, number: int) -> NDArray[Any]:
        return np.asarray(self._values[self._offsets[number] : self._offsets[number + 1]])


def fold_scrapes(merged_series_list: Sequence[MergedSeries], cap_ms: int) -> list[MergedSeries]:
    """Return one series per key: the fuller scrape of a target counts, others fill its gaps.

    Prometheus pairs, a second job for the same target, and pods that return under another name all
    end here. Scrapes are chosen for all series of a target together, so a consistent cut stays one;
    two clocks mixed could make a counter go back.
    """
    by_target: dict[tuple[str, str, Exporter, str], dict[str, list[MergedSeries]]] = {}
    for merged_series in merged_series_list:
        exporter = FAMILIES[PREFIX + merged_series.key.family].exporter
        broker = merged_series.key.broker if exporter is Exporter.BROKER else ""
        target = (merged_series.key.cluster, merged_series.key.pool, exporter, broker)
        by_target.setdefault(target, {}).setdefault(merged_series.key.scrape, []).append(
            merged_series
        )
    return [
        _renamed(merged_series, key)
        for scrapes in by_target.values()
        for key, merged_series in _folded(scrapes, cap_ms).items()
    ]


def _folded(scrapes: dict[str, list[MergedSeries]], cap_ms: int) -> dict[SeriesKey, MergedSeries]:
    ranked = sorted(
        scrapes.items(),
        key=lambda look: (-sum(merged_series.samples for merged_series in look[1]), look[0]),
    )
    whole: dict[SeriesKey, MergedSeries] = {}
    known = _NOTHING_KNOWN
    for _, look in ranked:
        for merged_series in look:
            key = merged_series.key._replace(scrape="")
            # Nothing of this look can lie where an earlier one saw the target, even if it saw
            # no such series there: then there was none.
            whole[key] = _filled(whole.get(key, _emptied(merged_series)), merged_series, known)
        if len(ranked) > 1:
            known = _union(known, look, cap_ms)
    return whole


_Known = tuple[Longs, Longs]  # starts and ends of disjoint stretches, in order
_NOTHING_KNOWN: _Known = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def _union(known: _Known, look: Sequence[MergedSeries], cap_ms: int) -> _Known:
    """Return when the target was seen by what was known or by this scrape.

    Times after the end of its series do not count.
    """
    there = [~np.isnan(merged_series.first_value) for merged_series in look]
    scrapes = list(zip(look, there, strict=True))
    starts = np.concatenate(
        [known[0], *(merged_series.first_ms[seen] for merged_series, seen in scrapes)]
    )
    ends = np.concatenate(
        [known[1], *(_ends(merged_series, cap_ms)[seen] for merged_series, seen in scrapes)]
    )
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    begins = np.concatenate((np.ones(min(1, len(starts)), dtype=bool), starts[1:] > ends[:-1]))
    places = np.flatnonzero(begins)
    lasts = np.append(places[1:], len(starts)) - 1
    return starts[places], ends[lasts] if len(places) else ends


def _emptied(merged_series: MergedSeries) -> MergedSeries:
    return MergedSeries(
        merged_series.key,
        0,
        float("-inf"),
        merged_series.first_ms[:0],
        merged_series.last_ms[:0],
        merged_series.run_samples[:0],
        merged_series.first_value[:0],
        merged_series.last_value[:0],
        merged_series.bins[:0],
        merged_series.bin_counts[:0],
    )


def _renamed(merged_series: MergedSeries, key: SeriesKey) -> MergedSeries:
    return MergedSeries(
        key,
        merged_series.samples,
        merged_series.maximum,
        merged_series.first_ms,
        merged_series.last_ms,
        merged_series.run_samples,
        merged_series.first_value,
        merged_series.last_value,
        merged_series.bins,
        merged_series.bin_counts,
    )


def _filled(base: MergedSeries, other: MergedSeries, known: _Known) -> MergedSeries:
    """Return `base` with those runs of `other` that lie in no interval of `known`.

    A run that reaches into such an interval is cut there; one of RISING keeps only the end that
    lies outside, as its values in between are not known. A histogram cannot be cut: if most of its
    scrape overlaps what is known it is left out, otherwise it is taken whole.
    """
    known_start, known_end = known
    if not len(known_start):
        return other if base.is_empty else base
    window_parts = [_columns(base)]
    rises = FAMILIES[PREFIX + other.key.family].shape is MetricShape.RISING
    overlapping = 0.0  # of its samples, as if they were spread evenly
    for first, last, samples, value, last_value in zip(*_columns(other), strict=True):
        place = int(np.searchsorted(known_start, first, side="right"))
        free_from = max(int(first), int(known_end[place - 1])) if place else int(first)
        free_to = int(known_start[place]) - 1 if place < len(known_start) else int(last)
        start, end = free_from, min(int(last), free_to)
        inside = int(last) - int(first) - max(0, end - start)
        overlapping += (
            samples * inside / (last - first) if last > first else samples * (start > end)
        )
        if start > end:
            continue
        if rises and start != first:
            if end != last:
                continue
            start, value, samples = end, last_value, 1
        elif rises and end != last:
            end, last_value = start, value
        window_parts.append(_one_run(start, end, samples, value, last_value))
    first, last, samples, value, last_value = (
        np.concatenate(column) for column in zip(*window_parts, strict=True)
    )
    order = np.argsort(first, kind="stable")
    bins, counts = base.bins, base.bin_counts
    is_taken = 2 * overlapping <= other.samples
    if is_taken:
        bins, counts = added(bins, counts, other.bins, other.bin_counts)
    return MergedSeries(
        base.key,
        base.samples + (other.samples if is_taken else 0),
        max(base.maximum, other.maximum) if is_taken else base.maximum,
        first[order],
        last[order],
        samples[order],
        value[order],
        last_value[order],
        bins,
        counts,
    )


def _columns(merged_series: MergedSeries) -> tuple[Longs, Longs, Longs, Floats, Floats]:
    return (
        merged_series.first_ms,
        merged_series.last_ms,
        merged_series.run_samples,
        merged_series.first_value,
        merged_series.last_value,
    )


def _one_run(
    start: int, end: int, samples: int, value: float, last_value: float
) -> tuple[Longs, Longs, Longs, Floats, Floats]:
    return (
        np.array([start], dtype=np.int64),
        np.array([end], dtype=np.int64),
        np.array([samples], dtype=np.int64),
        np.array([value]),
        np.array([last_value]),
    )


def _ends(merged_series: MergedSeries, cap_ms: int) -> Longs:
    """Return until when each run is valid.

    That is the next run's first sample, or `cap_ms` after its own last one.
    """
    following = np.append(merged_series.first_ms[1:], np.iinfo(np.int64).max)
    return np.asarray(np.minimum(following, merged_series.last_ms + cap_ms))


def added(
    bins: NDArray[np.int32], counts: Longs, other_bins: NDArray[np.int32], other_counts: Longs
) -> tuple[NDArray[np.int32], Longs]:
    """Two histograms in one."""
    both, place = np.unique(np.concatenate((bins, other_bins)), return_inverse=True)
    total = np.zeros(len(both), dtype=np.int64)
    np.add.at(total, place, np.concatenate((counts, other_counts)))
    return both, total
