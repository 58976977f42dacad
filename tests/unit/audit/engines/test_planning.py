"""Before the first sample: settings, the slices' edges, and Kafka's followers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from tidemark_audit.aggregation.merge import merge
from tidemark_audit.aggregation.samples import DEFAULT_INTERVAL_MS, SampleBatch, is_stale
from tidemark_audit.aggregation.summarize import summarize
from tidemark_audit.analysis.context import Intervals
from tidemark_audit.engines.planning import (
    aggregation_settings,
    rows_for_intervals,
    scrape_intervals,
    summarize_slice,
    without_early_spread,
    without_followers,
)
from tidemark_audit.metrics.families import SeriesKey
from tidemark_audit.metrics.kafka_names import SAID_BY_KAFKA
from tidemark_audit.sources.source import LATEST_MS, SourceError, Window

from tests.support.audit_series import SETTINGS, Samples, at_each_second, batch_of

IN_SYNC = SeriesKey("partition_in_sync_replicas", topic="orders", partition=0, broker="1")
AGE = SeriesKey(
    "follower_caught_up_age_seconds", topic="orders", partition=0, broker="1", follower="2"
)
LEADER_ID = SeriesKey("partition_leader_id", topic="orders", partition=0, pool="p")


@dataclass(frozen=True)
class Part:
    """A slice of one batch, which may break."""

    batch: SampleBatch
    error: Exception | None = None
    place: str = "export.json"

    def read(self) -> Iterator[SampleBatch]:
        yield self.batch
        if self.error:
            raise self.error


def read_samples(part: Part, window: Window) -> dict[str, int]:
    rows = [row for batch in summarize_slice(part, window, SETTINGS) for row in batch.to_pylist()]
    return {row["family"]: row["samples"] for row in rows if row["band_start_ms"] == -1}


def intervals(*series: tuple[SeriesKey, Samples]) -> Intervals:
    table = merge(pa.Table.from_batches([summarize(batch_of(*series), SETTINGS)]), SETTINGS)
    found = scrape_intervals(table)
    assert scrape_intervals(rows_for_intervals(table)) == found
    return found


def test_runs_break_at_one_and_a_half_intervals() -> None:
    assert aggregation_settings([], Window(), 15_000).break_gap_ms == 22_500
    assert aggregation_settings([], Window(), None).break_gap_ms == DEFAULT_INTERVAL_MS * 3 // 2


def test_samples_from_before_the_window_are_read_but_histograms_are_not() -> None:
    part = Part(batch_of((IN_SYNC, at_each_second(*[3] * 10)), (AGE, at_each_second(*[1] * 10))))
    window = Window(5000, 8000, look_back_ms=2000)
    assert read_samples(part, window) == {
        "partition_in_sync_replicas": 5,
        "follower_caught_up_age_seconds": 3,
    }
    assert read_samples(part, Window()) == {
        "partition_in_sync_replicas": 10,
        "follower_caught_up_age_seconds": 10,
    }


def test_a_window_that_does_not_look_back_keeps_every_sample() -> None:
    batch = batch_of((AGE, at_each_second(1, 1)))
    assert without_early_spread(batch, Window(1000, 2000)) is batch


@pytest.mark.parametrize("error", [OSError("disk"), EOFError("short")])
def test_a_file_that_breaks_is_named(error: Exception) -> None:
    part = Part(batch_of((IN_SYNC, [(0, 3.0)])), error)
    with pytest.raises(SourceError) as failed:
        list(summarize_slice(part, Window(), SETTINGS))
    assert failed.value.place == "export.json"
    assert type(error).__name__ in str(failed.value)


def test_times_of_another_unit_are_refused() -> None:
    batch = batch_of((IN_SYNC, [(0, 3.0)]))
    late = SampleBatch(batch.series, batch.series_of, np.array([LATEST_MS + 1]), batch.values)
    with pytest.raises(SourceError, match="another unit"):
        list(summarize_slice(Part(late), Window(), SETTINGS))


def test_each_exporter_has_the_median_of_its_own_steps() -> None:
    jittering: Samples = [(0, 3.0), (15, 3.0), (30, 3.0), (90, 3.0)]
    operator: Samples = [(0, 1.0), (60, 1.0), (120, 2.0)]
    assert intervals((IN_SYNC, jittering), (LEADER_ID, operator)) == Intervals(15_000, 60_000)
    assert intervals((IN_SYNC, jittering)) == Intervals(15_000, 15_000)
    assert intervals((LEADER_ID, operator)) == Intervals(60_000, 60_000)


def test_one_sample_tells_of_no_interval() -> None:
    assert intervals((IN_SYNC, [(0, 3.0)])) == Intervals(DEFAULT_INTERVAL_MS, DEFAULT_INTERVAL_MS)


def test_kafkas_zero_says_that_a_broker_follows_and_ends_its_series() -> None:
    replicas = SeriesKey("partition_replicas", topic="t", partition=0, detail=SAID_BY_KAFKA)
    found = without_followers(batch_of((replicas, at_each_second(3, 0)), (IN_SYNC, [(0, 0.0)])))
    assert [key.family for key in found.series] == [
        "partition_replicas",
        "partition_in_sync_replicas",
        "replica_is_leader",
    ]
    assert {key.detail for key in found.series} == {""}
    values = [found.values[found.series_of == number] for number in range(3)]
    assert is_stale(values[0]).tolist() == [False, True]
    assert (values[1].tolist(), values[2].tolist()) == ([0.0], [1.0, 0.0])


def test_samples_of_tidemark_stay_as_they_are() -> None:
    batch = batch_of((IN_SYNC, at_each_second(3, 0)))
    assert without_followers(batch) is batch
