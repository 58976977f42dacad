"""Define the table of summaries, and which neighbouring samples belong to one run.

A row is of a series (and band), with its runs and its histogram. The columns are Arrow's, so that
Spark moves rows between processes unchanged.

Two samples of a series join when no more than `break_gap_ms` lies between them and, for STEP, they
are equal; for RISING, the later is not smaller; for SPREAD, always. NaN (a series that ended) joins
only NaN. The rule uses two neighbours and nothing else, so it does not matter whether a slice ended
between them: that is why summaries merge in any order.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark_audit.aggregation.samples import Flags, Floats, Longs
from tidemark_audit.metrics.families import MetricShape, SeriesKey

NO_BAND = -1
KEY_COLUMNS = (*SeriesKey._fields, "band_start_ms")
COUNT_COLUMNS = ("samples", "duplicates", "conflicts", "out_of_order", "impossible")
RUN_COLUMNS = ("run_first_ms", "run_last_ms", "run_samples", "run_first_value", "run_last_value")

SCHEMA = pa.schema(
    [
        *(
            pa.field(name, pa.int32() if name == "partition" else pa.string(), nullable=False)
            for name in SeriesKey._fields
        ),
        # Start of a stretch of time over which series are summed up; NO_BAND for one series.
        pa.field("band_start_ms", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in COUNT_COLUMNS),
        pa.field("maximum", pa.float64(), nullable=False),
        pa.field("run_first_ms", pa.list_(pa.int64()), nullable=False),
        pa.field("run_last_ms", pa.list_(pa.int64()), nullable=False),
        pa.field("run_samples", pa.list_(pa.int64()), nullable=False),
        pa.field("run_first_value", pa.list_(pa.float64()), nullable=False),
        pa.field("run_last_value", pa.list_(pa.float64()), nullable=False),
        pa.field("bin", pa.list_(pa.int32()), nullable=False),
        pa.field("bin_count", pa.list_(pa.int64()), nullable=False),
    ]
)
EMPTY = SCHEMA.empty_table()


@dataclass(frozen=True, slots=True)
class AggregationSettings:
    """Hold the settings that summaries must share to be merged."""

    break_gap_ms: int  # a longer gap between two samples ends a run
    band_ms: int  # length of the stretches of the lag bands


def lists(offsets: np.ndarray, values: np.ndarray) -> pa.ListArray:
    """Return one list per row: values[offsets[i]:offsets[i + 1]]."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


def joins(
    *,
    shape: NDArray[np.int8],
    same_series: Flags,
    gap_ms: Longs,
    before: Floats,
    after: Floats,
    break_gap_ms: int,
) -> Flags:
    """Return whether each pair of neighbours joins; all arrays have one length."""
    absent_before, absent_after = np.isnan(before), np.isnan(after)
    equal = before == after
    rises = after >= before
    alike = np.where(
        shape == MetricShape.STEP, equal, np.where(shape == MetricShape.RISING, rises, True)
    )
    alike &= ~(absent_before | absent_after)
    alike |= absent_before & absent_after
    return np.asarray(same_series & (gap_ms <= break_gap_ms) & alike)
