"""Samples of many series in columns: what a source reads and the kernel takes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark_audit.families import SeriesKey

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Prometheus's mark that a series ended (model/value/value.go): one particular NaN.
STALE_BITS = 0x7FF0000000000002
STALE = np.array([STALE_BITS], dtype=np.uint64).view(np.float64)[0]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Sample i is `values[i]` of `series[series_of[i]]` at `at_ms[i]`; any order is allowed."""

    series: tuple[SeriesKey, ...]
    series_of: NDArray[np.int32]
    at_ms: Longs
    values: Floats

    def __len__(self) -> int:
        return len(self.at_ms)


EMPTY = SampleBatch(
    (), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
)


def within(batch: SampleBatch, start_ms: int | None, end_ms: int | None) -> SampleBatch:
    """The samples in [start, end). Servers disagree about the ends of a range: we cut again."""
    kept = np.ones(len(batch), dtype=np.bool_)
    if start_ms is not None:
        kept &= batch.at_ms >= start_ms
    if end_ms is not None:
        kept &= batch.at_ms < end_ms
    if kept.all():
        return batch
    return SampleBatch(batch.series, batch.series_of[kept], batch.at_ms[kept], batch.values[kept])


def is_stale(values: Floats) -> Flags:
    return np.asarray(values.view(np.uint64) == np.uint64(STALE_BITS))
