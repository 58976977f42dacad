"""Collect series into batches of bounded size."""

import numpy as np

from tidemark_audit.aggregation.samples import EMPTY, STALE, Floats, Longs, SampleBatch
from tidemark_audit.metrics.families import SeriesKey

BATCH_SAMPLES = 2_000_000
# Of one answer, which is whole before any of it is handed on; slices are made for a batch each.
MOST_RESPONSE_SAMPLES = 8 * BATCH_SAMPLES


def values_of_text(values: Floats) -> Floats:
    """Return the values with each NaN as a stale marker, for formats that write both alike.

    No family that the audit reads has another NaN.
    """
    return np.where(np.isnan(values), STALE, values)


class BatchBuilder:
    def __init__(self) -> None:
        self._keys: list[SeriesKey] = []
        self._times: list[Longs] = []
        self._values: list[Floats] = []
        self._samples = 0

    @property
    def is_full(self) -> bool:
        return self._samples >= BATCH_SAMPLES

    def add(self, key: SeriesKey, at_ms: Longs, values: Floats) -> None:
        self._keys.append(key)
        self._times.append(at_ms)
        self._values.append(values)
        self._samples += len(values)

    def take(self) -> SampleBatch:
        """Return what was added since the last call."""
        if not self._samples:
            self._keys, self._times, self._values = [], [], []
            return EMPTY
        lengths = [len(times) for times in self._times]
        batch = SampleBatch(
            tuple(self._keys),
            np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
            np.concatenate(self._times),
            np.concatenate(self._values),
        )
        self._keys, self._times, self._values, self._samples = [], [], [], 0
        return batch
