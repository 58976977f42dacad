"""A merged summary as arrays, and two looks at one thing laid over each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark_audit.families import FAMILIES, PREFIX, SeriesKey, Shape
from tidemark_audit.kernel.samples import Floats, Longs
from tidemark_audit.kernel.summaries import NO_BAND


@dataclass(frozen=True, slots=True)
class Track:
    """One series over the window; run i goes from its first to its last sample, both included."""

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


def tracks_of(merged: pa.Table) -> Iterator[Track]:
    """One per row that is a series, in the order of rows."""
    merged = merged.combine_chunks()
    keys = zip(*(merged[name].to_pylist() for name in SeriesKey._fields), strict=True)
    flat = {name: _Lists(merged[name]) for name in merged.column_names if _is_list(merged, name)}
    samples, maximum = merged["samples"].to_pylist(), merged["maximum"].to_pylist()
    bands = merged["band_start_ms"].to_pylist()
    for row, key in enumerate(keys):
        if bands[row] != NO_BAND:
            continue
        yield Track(
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


def fold_scrapes(tracks: Sequence[Track], cap_ms: int) -> list[Track]:
    """One track for each thing: of two looks the fuller counts, the others fill its gaps.

    Prometheus pairs, a second job for the same target, and pods that came back under another name
    all end here. Their samples are never mixed: two clocks could make a counter step back.
    """
    by_thing: dict[SeriesKey, list[Track]] = {}
    for track in tracks:
        by_thing.setdefault(track.key._replace(scrape=""), []).append(track)
    folded = []
    for thing, looks in by_thing.items():
        looks.sort(key=lambda track: (-track.samples, track.key.scrape))
        whole = looks[0]
        for look in looks[1:]:
            whole = _filled(whole, look, cap_ms)
        folded.append(_renamed(whole, thing))
    return folded


def _renamed(track: Track, key: SeriesKey) -> Track:
    return Track(
        key,
        track.samples,
        track.maximum,
        track.first_ms,
        track.last_ms,
        track.run_samples,
        track.first_value,
        track.last_value,
        track.bins,
        track.bin_counts,
    )


def _filled(base: Track, other: Track, cap_ms: int) -> Track:
    """`base` and those runs of `other` that touch no stretch that `base` saw.

    A run of `other` that reaches into such a stretch is cut there; one of RISING keeps only the
    end that lies outside, for its values in between are not known. Histograms are added for the
    part that was not seen before only if the looks do not overlap at all.
    """
    pieces = [_columns(base)]
    known_start = base.first_ms
    known_end = _ends(base, cap_ms)
    rises = FAMILIES[PREFIX + other.key.family].shape is Shape.RISING
    for first, last, samples, value, last_value in zip(*_columns(other), strict=True):
        place = int(np.searchsorted(known_start, first, side="right"))
        free_from = int(known_end[place - 1]) if place else int(first)
        free_to = int(known_start[place]) - 1 if place < len(known_start) else int(last)
        start, end = max(int(first), free_from), min(int(last), free_to)
        if start > end or (rises and start != first):
            continue
        if rises and end != last:
            end, last_value = start, value
        pieces.append(_one_run(start, end, samples, value, last_value))
    first, last, samples, value, last_value = (
        np.concatenate(column) for column in zip(*pieces, strict=True)
    )
    order = np.argsort(first, kind="stable")
    apart = (
        base.is_empty
        or other.is_empty
        or (base.last_ms[-1] < other.first_ms[0] or other.last_ms[-1] < base.first_ms[0])
    )
    bins, counts = (
        added(base.bins, base.bin_counts, other.bins, other.bin_counts)
        if apart
        else (base.bins, base.bin_counts)
    )
    return Track(
        base.key,
        base.samples + other.samples if apart else base.samples,
        max(base.maximum, other.maximum) if apart else base.maximum,
        first[order],
        last[order],
        samples[order],
        value[order],
        last_value[order],
        bins,
        counts,
    )


def _columns(track: Track) -> tuple[Longs, Longs, Longs, Floats, Floats]:
    return (
        track.first_ms, track.last_ms, track.run_samples, track.first_value, track.last_value
    )  # fmt: skip


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


def _ends(track: Track, cap_ms: int) -> Longs:
    """Until when each run stands: the next one's first sample, or `cap_ms` after its last."""
    following = np.append(track.first_ms[1:], np.iinfo(np.int64).max)
    return np.asarray(np.minimum(following, track.last_ms + cap_ms))


def added(
    bins: NDArray[np.int32], counts: Longs, other_bins: NDArray[np.int32], other_counts: Longs
) -> tuple[NDArray[np.int32], Longs]:
    """Two histograms in one."""
    both, place = np.unique(np.concatenate((bins, other_bins)), return_inverse=True)
    total = np.zeros(len(both), dtype=np.int64)
    np.add.at(total, place, np.concatenate((counts, other_counts)))
    return both, total
