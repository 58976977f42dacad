"""Define batches of samples of many series in columns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark_audit.metrics.families import SeriesKey

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Prometheus's mark that a series ended (model/value/value.go): one particular NaN.
STALE_BITS = 0x7FF0000000000002
STALE = np.array([STALE_BITS], dtype=np.uint64).view(np.float64)[0]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples in any order: sample i is `values[i]` of `series[series_of[i]]` at `at_ms[i]`."""

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
    """Return the samples in [start, end); servers disagree about the ends of a range."""
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


DEFAULT_INTERVAL_MS = 15_000
SCRAPED_AT = 200  # series by which an interval is guessed


def typical_step_ms(batch: SampleBatch) -> int | None:
    """Return the smallest of its series' median steps: the fastest scraped series decide."""
    steps = []
    for number in range(min(len(batch.series), SCRAPED_AT)):
        times = np.unique(batch.at_ms[batch.series_of == number])
        if len(times) >= 3:
            steps.append(float(np.median(np.diff(times))))
    return rounded(min(steps)) if steps else None


def rounded(interval_ms: float) -> int:
    """Round an interval: scrapes jitter by milliseconds around the configured one."""
    unit = 1 if interval_ms < 100 else 100 if interval_ms < 10_000 else 1000
    return max(1, round(interval_ms / unit) * unit)
