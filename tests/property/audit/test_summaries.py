"""Any cut of the samples and any tree of merges gives the summary of the uncut samples."""

import itertools
from collections.abc import Iterable
from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_audit.aggregation.merge import merge
from tidemark_audit.aggregation.samples import STALE, SampleBatch, within
from tidemark_audit.aggregation.summaries import AggregationSettings
from tidemark_audit.aggregation.summarize import summarize
from tidemark_audit.metrics.families import SeriesKey

KERNEL = AggregationSettings(break_gap_ms=25, band_ms=40)
KEYS = (
    SeriesKey("partition_in_sync_replicas", topic="t", partition=0, broker="1"),
    SeriesKey("replica_high_watermark_offset", topic="t", partition=0, broker="1"),
    SeriesKey("follower_caught_up_age_seconds", topic="t", partition=0, broker="1", follower="2"),
    SeriesKey("broker_clock_skew_seconds", pool="p", broker="2"),
)
VALUES = st.sampled_from([-1.0, 0.0, 1.0, 1.0, 1.0, 2.0, 3.5, 1e4, float("inf"), float(STALE)])


@st.composite
def batches(draw: st.DrawFn) -> SampleBatch:
    series, times, values = [], [], []
    for number in range(len(KEYS)):
        gaps = draw(st.lists(st.integers(1, 40), max_size=25))
        for at_ms in np.cumsum(gaps):
            series.append(number)
            times.append(int(at_ms))
            values.append(draw(VALUES))
    return SampleBatch(
        KEYS,
        np.array(series, dtype=np.int32),
        np.array(times, dtype=np.int64),
        np.array(values, dtype=np.float64),
    )


def table(batch: SampleBatch) -> pa.Table:
    return pa.Table.from_batches([summarize(batch, KERNEL)])


def as_rows(summaries: pa.Table) -> list[str]:
    """As text, for NaN is not equal to itself."""
    return [repr(row) for row in merge(summaries, KERNEL).to_pylist()]


def pieces_of(batch: SampleBatch, cuts: Iterable[int]) -> list[pa.Table]:
    borders = [None, *sorted(set(cuts)), None]
    return [table(within(batch, start, end)) for start, end in itertools.pairwise(borders)]


@given(batches(), st.lists(st.integers(0, 900), max_size=6))
@settings(max_examples=200)
def test_any_cut_is_the_uncut_summary(batch: SampleBatch, cuts: list[int]) -> None:
    """However short the slices are: at once, and in the order of time."""
    pieces = pieces_of(batch, cuts)
    expected = as_rows(table(batch))
    assert as_rows(pa.concat_tables(pieces)) == expected
    merged = pieces[0]
    for piece in pieces[1:]:
        merged = merge(pa.concat_tables([merged, piece]), KERNEL)
    assert as_rows(merged) == expected


@given(batches(), st.lists(st.integers(KERNEL.break_gap_ms + 1, 300), max_size=6), st.data())
@settings(max_examples=200)
def test_any_tree_of_merges_is_the_uncut_summary(
    batch: SampleBatch, lengths_ms: list[int], data: st.DataObject
) -> None:
    """Of slices longer than the gap that breaks a run."""
    pieces = pieces_of(batch, itertools.accumulate(lengths_ms))
    while len(pieces) > 1:
        first = pieces.pop(data.draw(st.integers(0, len(pieces) - 1)))
        second = pieces.pop(data.draw(st.integers(0, len(pieces) - 1)))
        pieces.append(merge(pa.concat_tables([first, second]), KERNEL))
    assert as_rows(pieces[0]) == as_rows(table(batch))


@given(batches(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_samples_makes_no_difference(batch: SampleBatch, random: Random) -> None:
    order = list(range(len(batch)))
    random.shuffle(order)
    shuffled = SampleBatch(
        batch.series, batch.series_of[order], batch.at_ms[order], batch.values[order]
    )
    columns = [name for name in table(batch).column_names if name != "out_of_order"]
    assert as_rows_of(table(shuffled), columns) == as_rows_of(table(batch), columns)


def as_rows_of(summaries: pa.Table, columns: list[str]) -> list[str]:
    return [repr(row) for row in merge(summaries, KERNEL).select(columns).to_pylist()]
