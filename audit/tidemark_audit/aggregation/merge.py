"""Merge summaries: rows of one key become one. Associative and commutative.

Slices must not overlap in time within one key: all readers divide the window at the same times. A
slice no longer than `break_gap_ms` is merged with its neighbours together, or in the order of time:
two slices whose samples are no further apart are joined as if nothing were between them, and a
later one in between is rejected as overlapping. Two scrapes of one target (`scrape`) stay separate
here and are combined afterwards.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark_audit.aggregation.samples import Longs
from tidemark_audit.aggregation.summaries import (
    COUNT_COLUMNS,
    EMPTY,
    KEY_COLUMNS,
    NO_BAND,
    SCHEMA,
    AggregationSettings,
    joins,
    lists,
)
from tidemark_audit.metrics.families import FAMILIES, PREFIX


class OverlappingSlices(ValueError):
    """Report that two slices hold samples of one series over the same time."""


def merge(summaries: pa.Table, settings: AggregationSettings) -> pa.Table:
    """Return one row per key.

    Raises OverlappingSlices.
    """
    if summaries.num_rows == 0:
        return EMPTY
    group, first_row = _groups(summaries)
    count = len(first_row)
    keys = summaries.select(list(KEY_COLUMNS)).take(pa.array(first_row)).combine_chunks()
    columns = {name: keys[name] for name in KEY_COLUMNS}
    for name in COUNT_COLUMNS:
        columns[name] = pa.array(_sum_by(group, _numbers(summaries, name), count))
    maximum = np.full(count, -np.inf)
    np.maximum.at(maximum, group, _numbers(summaries, "maximum"))
    columns["maximum"] = pa.array(maximum)
    columns |= _merged_runs(summaries, group, keys, settings)
    columns |= _merged_bins(summaries, group, count)
    return pa.table(columns, schema=SCHEMA)


def _groups(summaries: pa.Table) -> tuple[Longs, Longs]:
    """Return the group of each row, in the order of their keys, and a row of each group."""
    code: Longs = np.zeros(summaries.num_rows, dtype=np.int64)
    for name in KEY_COLUMNS:
        values, places = (
            np.unique(
                np.asarray(summaries[name].to_numpy(zero_copy_only=False)), return_inverse=True
            )
            if name in ("partition", "band_start_ms")
            else _dictionary(summaries[name])
        )
        _, code = np.unique(code * len(values) + places, return_inverse=True)
    _, first_row = np.unique(code, return_index=True)
    return code.astype(np.int64), first_row.astype(np.int64)


def _dictionary(column: pa.ChunkedArray) -> tuple[list[str], Longs]:
    """Return the distinct strings in order, and the index of each row's."""
    encoded = column.combine_chunks().dictionary_encode()
    words = encoded.dictionary.to_pylist()
    order = sorted(range(len(words)), key=words.__getitem__)
    rank = np.empty(len(words), dtype=np.int64)
    rank[order] = np.arange(len(words))
    return [words[place] for place in order], rank[encoded.indices.to_numpy()]


def _numbers(summaries: pa.Table, name: str) -> NDArray[Any]:
    return np.asarray(summaries[name].to_numpy())


def _sum_by(group: Longs, values: NDArray[Any], count: int) -> Longs:
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, group, values.astype(np.int64))
    return total


def _flat(summaries: pa.Table, group: Longs, name: str) -> tuple[Longs, NDArray[Any]]:
    """Return all list members of a column, with the group of each."""
    column = summaries[name].combine_chunks()
    lengths = np.diff(column.offsets.to_numpy())
    values = column.values.to_numpy()[column.offsets[0].as_py() : column.offsets[-1].as_py()]
    return np.repeat(group, lengths), values


def _merged_runs(
    summaries: pa.Table, group: Longs, keys: pa.Table, settings: AggregationSettings
) -> dict[str, pa.Array]:
    owner, first_ms = _flat(summaries, group, "run_first_ms")
    _, last_ms = _flat(summaries, group, "run_last_ms")
    _, samples = _flat(summaries, group, "run_samples")
    _, first_value = _flat(summaries, group, "run_first_value")
    _, last_value = _flat(summaries, group, "run_last_value")
    order = np.lexsort((first_ms, owner))
    owner, first_ms, last_ms = owner[order], first_ms[order], last_ms[order]
    samples, first_value, last_value = samples[order], first_value[order], last_value[order]
    shapes = np.array(
        [FAMILIES[PREFIX + name].shape for name in keys["family"].to_pylist()], dtype=np.int8
    )
    same = owner[1:] == owner[:-1]
    overlapping = np.flatnonzero(same & (first_ms[1:] <= last_ms[:-1]))
    if len(overlapping):
        raise _overlap(keys, int(owner[1:][overlapping[0]]), int(first_ms[1:][overlapping[0]]))
    joined = joins(
        shape=shapes[owner[1:]],
        same_series=same,
        gap_ms=first_ms[1:] - last_ms[:-1],
        before=last_value[:-1],
        after=first_value[1:],
        break_gap_ms=settings.break_gap_ms,
    )
    starts = np.flatnonzero(np.concatenate((np.ones(min(1, len(owner)), dtype=bool), ~joined)))
    ends = np.concatenate((starts[1:], [len(owner)])).astype(np.int64) - 1
    offsets = np.searchsorted(owner[starts], np.arange(len(shapes) + 1))
    total = np.add.reduceat(samples, starts) if len(starts) else samples
    ends = ends[: len(starts)]
    return {
        "run_first_ms": lists(offsets, first_ms[starts]),
        "run_last_ms": lists(offsets, last_ms[ends]),
        "run_samples": lists(offsets, total),
        "run_first_value": lists(offsets, first_value[starts]),
        "run_last_value": lists(offsets, last_value[ends]),
    }


def _overlap(keys: pa.Table, group: int, at_ms: int) -> OverlappingSlices:
    row = keys.slice(group, 1).to_pylist()[0]
    named = ", ".join(
        f"{name}={text}" for name, text in row.items() if text not in ("", -1, NO_BAND)
    )
    return OverlappingSlices(
        f"two sources have samples of the same series ({named}) for the same time, at {at_ms} ms"
    )


def _merged_bins(summaries: pa.Table, group: Longs, count: int) -> dict[str, pa.Array]:
    owner, bin_numbers = _flat(summaries, group, "bin")
    _, counts = _flat(summaries, group, "bin_count")
    order = np.lexsort((bin_numbers, owner))
    owner, bin_numbers, counts = owner[order], bin_numbers[order], counts[order]
    starts = np.flatnonzero(
        np.concatenate(
            (
                np.ones(min(1, len(owner)), dtype=bool),
                (owner[1:] != owner[:-1]) | (bin_numbers[1:] != bin_numbers[:-1]),
            )
        )
    )
    total = np.add.reduceat(counts, starts) if len(starts) else counts
    offsets = np.searchsorted(owner[starts], np.arange(count + 1))
    return {
        "bin": lists(offsets, bin_numbers[starts].astype(np.int32)),
        "bin_count": lists(offsets, total),
    }
