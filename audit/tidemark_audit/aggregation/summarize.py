"""Summarize the samples of a slice, all series together."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark_audit.aggregation import histogram
from tidemark_audit.aggregation.samples import Flags, Floats, Longs, SampleBatch, is_stale
from tidemark_audit.aggregation.summaries import NO_BAND, SCHEMA, AggregationSettings, joins, lists
from tidemark_audit.metrics.families import FAMILIES, PREFIX, MetricShape, SeriesKey

BANDED_FAMILY = "follower_caught_up_age_seconds"
SIGNED_FAMILY = "broker_clock_skew_seconds"
LARGEST_VALUE = 2.0**53  # up to there a double tells integers apart
UNKNOWN_VALUE = -1.0


def summarize(batch: SampleBatch, settings: AggregationSettings) -> pa.RecordBatch:
    """Return rows of `summaries.SCHEMA`, one for each series key and one for each band."""
    if len(batch) == 0:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    columns = _Columns(batch)
    rows = columns.rows(settings)
    bands = _bands(columns, settings)
    if bands is None:
        return rows
    return pa.Table.from_batches([rows, bands]).combine_chunks().to_batches()[0]


class _Columns:
    """Hold a batch in order of series and time, without duplicates, and count what was dropped."""

    def __init__(self, batch: SampleBatch) -> None:
        place: dict[SeriesKey, int] = {}
        folded = np.array(
            [place.setdefault(key, len(place)) for key in batch.series], dtype=np.int32
        )
        self.keys = tuple(place)
        series, at_ms, values = folded[batch.series_of], batch.at_ms, batch.values
        same, later = series[1:] == series[:-1], at_ms[1:] > at_ms[:-1]
        none = np.zeros(len(self.keys), dtype=np.int64)
        self.out_of_order = self.duplicates = self.conflicts = none
        if not bool(np.all(np.where(same, later, series[1:] > series[:-1]))):
            self.out_of_order = self._count(series[1:][same & (at_ms[1:] < at_ms[:-1])])
            series, at_ms, values = self._in_order(series, at_ms, values)
        possible = self._possible(series, values)
        self.impossible = self._count(series[~possible & ~is_stale(values)])
        self.series, self.at_ms = series, at_ms
        self.values = values if possible.all() else np.where(possible, values, np.nan)
        self.possible = possible
        shapes = [FAMILIES[PREFIX + key.family].shape for key in self.keys]
        self.shape = np.array(shapes, dtype=np.int8)

    def _in_order(
        self, series: NDArray[np.int32], at_ms: Longs, values: Floats
    ) -> tuple[NDArray[np.int32], Longs, Floats]:
        """Sort the samples and keep each time of a series once."""
        # Equal times are put in order of value, so that every reader keeps the same one.
        order = np.lexsort((values, at_ms, series))
        series, at_ms, values = series[order], at_ms[order], values[order]
        again = np.zeros(len(series), dtype=np.bool_)
        again[1:] = (series[1:] == series[:-1]) & (at_ms[1:] == at_ms[:-1])
        differs = np.zeros(len(series), dtype=np.bool_)
        differs[1:] = again[1:] & (values.view(np.int64)[1:] != values.view(np.int64)[:-1])
        self.duplicates = self._count(series[again & ~differs])
        self.conflicts = self._count(series[differs])
        return series[~again], at_ms[~again], values[~again]

    def _possible(self, series: NDArray[np.int32], values: Floats) -> Flags:
        """Return whether each sample's family can have its value (docs/operations/metrics.md).

        Impossible values are left out and counted: half a record or -5 replicas would count as good
        or as a loss.
        """
        possible = np.abs(values) <= LARGEST_VALUE  # which NaN is not
        families = [key.family for key in self.keys]
        with np.errstate(invalid="ignore"):  # a stale marker is a signalling NaN
            is_broken = values != np.rint(values)
        for odd, is_excused in (
            (values < UNKNOWN_VALUE, [family == SIGNED_FAMILY for family in families]),
            (is_broken, [family.endswith("_seconds") for family in families]),
        ):
            places = np.flatnonzero(odd)  # few or none: only there it matters whose they are
            possible[places] &= np.array(is_excused, dtype=np.bool_)[series[places]]
        return np.asarray(possible)

    def _count(self, series: NDArray[np.int32]) -> Longs:
        return np.bincount(series, minlength=len(self.keys)).astype(np.int64)

    def rows(self, settings: AggregationSettings) -> pa.RecordBatch:
        first, last = self._run_ends(settings.break_gap_ms)
        run_of = np.searchsorted(self.series[first], np.arange(len(self.keys) + 1))
        bin_offsets, bin_numbers, bin_counts, maximum = self._histograms()
        columns: dict[str, pa.Array] = {
            name: pa.array([getattr(key, name) for key in self.keys], type=SCHEMA.field(name).type)
            for name in SeriesKey._fields
        }
        columns |= {
            "band_start_ms": pa.array(np.full(len(self.keys), NO_BAND, dtype=np.int64)),
            "samples": pa.array(self._count(self.series)),
            "duplicates": pa.array(self.duplicates),
            "conflicts": pa.array(self.conflicts),
            "out_of_order": pa.array(self.out_of_order),
            "impossible": pa.array(self.impossible),
            "maximum": pa.array(maximum),
            "run_first_ms": lists(run_of, self.at_ms[first]),
            "run_last_ms": lists(run_of, self.at_ms[last]),
            "run_samples": lists(run_of, (last - first + 1).astype(np.int64)),
            "run_first_value": lists(run_of, self.values[first]),
            "run_last_value": lists(run_of, self.values[last]),
            "bin": lists(bin_offsets, bin_numbers),
            "bin_count": lists(bin_offsets, bin_counts),
        }
        return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)

    def _run_ends(self, break_gap_ms: int) -> tuple[Longs, Longs]:
        joined = joins(
            shape=self.shape[self.series[1:]],
            same_series=self.series[1:] == self.series[:-1],
            gap_ms=np.diff(self.at_ms),
            before=self.values[:-1],
            after=self.values[1:],
            break_gap_ms=break_gap_ms,
        )
        first = np.flatnonzero(np.concatenate(([True], ~joined)))
        last = np.concatenate((first[1:] - 1, [len(self.series) - 1]))
        return first, last

    def _histograms(self) -> tuple[Longs, NDArray[np.int32], Longs, Floats]:
        """Return the histograms of SPREAD series: offsets by series, bins, counts.

        Also the largest value of each series.
        """
        series, values, _ = self.spread()
        maximum = np.full(len(self.keys), -np.inf)
        np.maximum.at(maximum, series, values)
        owner, bin_numbers, counts = counted(series.astype(np.int64), histogram.bins(values))
        offsets = np.searchsorted(owner, np.arange(len(self.keys) + 1))
        return offsets, bin_numbers, counts, maximum

    def spread(self) -> tuple[NDArray[np.int32], Floats, Longs]:
        """Return series, size and time of the SPREAD samples.

        A clock may be off in either direction, so only the size counts.
        """
        chosen = (self.shape[self.series] == MetricShape.SPREAD) & self.possible
        series, values = self.series[chosen], self.values[chosen]
        signed = np.array([key.family == SIGNED_FAMILY for key in self.keys])
        values = np.where(signed[series], np.abs(values), values)
        return series, values, self.at_ms[chosen]


def counted(owner: Longs, bin_numbers: NDArray[np.int32]) -> tuple[Longs, NDArray[np.int32], Longs]:
    """Return how often each (owner, bin) occurs, in their order."""
    code, counts = np.unique(owner * (2 * histogram.NEVER) + bin_numbers, return_counts=True)
    return (
        code // (2 * histogram.NEVER),
        (code % (2 * histogram.NEVER)).astype(np.int32),
        counts.astype(np.int64),
    )


def _bands(columns: _Columns, settings: AggregationSettings) -> pa.RecordBatch | None:
    """Summarize the caught-up age of all followers together, a row for each interval of time."""
    series, values, at_ms = columns.spread()
    banded = np.array([key.family == BANDED_FAMILY for key in columns.keys])
    chosen = banded[series]
    if not chosen.any():
        return None
    values, at_ms = values[chosen], at_ms[chosen]
    start = at_ms // settings.band_ms * settings.band_ms
    band_starts, place = np.unique(start, return_inverse=True)
    owner, bin_numbers, counts = counted(place.astype(np.int64), histogram.bins(values))
    offsets = np.searchsorted(owner, np.arange(len(band_starts) + 1))
    maximum = np.full(len(band_starts), -np.inf)
    np.maximum.at(maximum, place, values)
    none = np.zeros(len(band_starts), dtype=np.int64)
    nothing = lists(np.zeros(len(band_starts) + 1), np.empty(0, dtype=np.int64))
    no_values = lists(np.zeros(len(band_starts) + 1), np.empty(0, dtype=np.float64))
    key = SeriesKey(BANDED_FAMILY)
    filled: dict[str, pa.Array] = {
        name: pa.array([getattr(key, name)] * len(band_starts), type=SCHEMA.field(name).type)
        for name in SeriesKey._fields
    }
    filled |= {
        "band_start_ms": pa.array(band_starts),
        "samples": pa.array(np.bincount(place, minlength=len(band_starts)).astype(np.int64)),
        "maximum": pa.array(maximum),
        "bin": lists(offsets, bin_numbers),
        "bin_count": lists(offsets, counts),
    }
    filled |= {n: pa.array(none) for n in ("duplicates", "conflicts", "out_of_order", "impossible")}
    filled |= dict.fromkeys(("run_first_ms", "run_last_ms", "run_samples"), nothing)
    filled |= dict.fromkeys(("run_first_value", "run_last_value"), no_values)
    return pa.RecordBatch.from_pydict(filled, schema=SCHEMA)
