"""One partition's merged series from hand-written samples, for tests of the analysis."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from tidemark_audit.aggregation.merge import merge
from tidemark_audit.aggregation.samples import STALE, SampleBatch
from tidemark_audit.aggregation.summaries import AggregationSettings
from tidemark_audit.aggregation.summarize import summarize
from tidemark_audit.analysis.context import BrokerPlace, Context, Intervals, PlannedRestart
from tidemark_audit.analysis.partition_timeline import Series
from tidemark_audit.analysis.series import MergedSeries, merged_series_of
from tidemark_audit.metrics.families import SeriesKey

STEP_MS = 1000
CAP_MS = 2500  # how long the last sample is valid
SETTINGS = AggregationSettings(break_gap_ms=STEP_MS * 3 // 2, band_ms=60_000)
INTERVALS = Intervals(STEP_MS, STEP_MS)

Samples = Sequence[tuple[int, float]]  # seconds and values


def at_each_second(*values: float | None, since_s: int = 0) -> Samples:
    """One sample each second; None leaves the sample out."""
    return [(since_s + n, value) for n, value in enumerate(values) if value is not None]


def batch_of(*series: tuple[SeriesKey, Samples]) -> SampleBatch:
    """Return the samples of several series, in the order given."""
    every = [(n, at_s, value) for n, (_, samples) in enumerate(series) for at_s, value in samples]
    return SampleBatch(
        tuple(key for key, _ in series),
        np.array([number for number, _, _ in every], dtype=np.int32),
        np.array([1000 * at_s for _, at_s, _ in every], dtype=np.int64),
        np.array([value for _, _, value in every], dtype=np.float64),
    )


def merged(family: str, samples: Samples, **labels: str) -> MergedSeries:
    """Summarise samples as the audit does; `labels` are fields of SeriesKey."""
    of_a_partition = {} if family.startswith("broker_") else {"topic": "orders"}
    key = SeriesKey(family, **(of_a_partition | labels))
    key = key._replace(partition=0) if key.topic else key
    rows = merge(pa.Table.from_batches([summarize(batch_of((key, samples)), SETTINGS)]), SETTINGS)
    (found,) = merged_series_of(rows)
    return found


def context(
    *,
    window_s: tuple[int, int] = (0, 60),
    planned: dict[BrokerPlace, tuple[PlannedRestart, ...]] | None = None,
    broker_seen_ms: dict[BrokerPlace, tuple[int, int]] | None = None,
    operator_seen_ms: dict[str, tuple[int, int]] | None = None,
    cluster_since_ms: dict[str, int] | None = None,
    broker_lives_ms: dict[BrokerPlace, tuple[tuple[int, int], ...]] | None = None,
) -> Context:
    return Context(
        1000 * window_s[0],
        1000 * window_s[1],
        INTERVALS,
        planned or {},
        broker_seen_ms or {},
        operator_seen_ms or {},
        cluster_since_ms or {},
        broker_lives_ms or {},
    )


def series(*of: MergedSeries, within: Context | None = None) -> Series:
    return Series("", "", "orders", "", 0, {each.key: each for each in of}, within or context())


def leading(
    broker: str,
    in_sync: Samples,
    *,
    epoch: float = 5,
    replicas: float = 3,
    min_in_sync: float = 2,
) -> list[MergedSeries]:
    """What a leader says of its partition for as long as it says who is in sync."""
    times = [second for second, _ in in_sync]

    def said(family: str, value: float) -> MergedSeries:
        return merged(family, [(second, value) for second in times], broker=broker)

    return [
        merged("partition_in_sync_replicas", in_sync, broker=broker),
        said("partition_replicas", replicas),
        said("partition_min_in_sync_replicas", min_in_sync),
        said("replica_is_leader", 1),
        said("replica_leader_epoch", epoch),
    ]


def gone() -> float:
    """Return the mark that a series ended."""
    return float(STALE)
