"""Find what is needed before the first sample is read: slices, and where runs may break.

Kafka's followers export 0 where its leaders export how many replicas a partition has.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_audit.aggregation.samples import (
    DEFAULT_INTERVAL_MS,
    SCRAPED_AT,
    STALE,
    Floats,
    SampleBatch,
    rounded,
    typical_step_ms,
    within,
)
from tidemark_audit.aggregation.summaries import KEY_COLUMNS, NO_BAND, AggregationSettings
from tidemark_audit.aggregation.summarize import summarize
from tidemark_audit.analysis.context import Intervals
from tidemark_audit.metrics.families import FAMILIES, PREFIX, Exporter, MetricShape
from tidemark_audit.metrics.kafka_names import SAID_BY_KAFKA
from tidemark_audit.sources.checkpointed_summaries import SummarySlice
from tidemark_audit.sources.source import (
    EARLIEST_MS,
    LATEST_MS,
    Slice,
    Source,
    SourceError,
    Window,
    unit_of,
)

SAYS_WHO_LEADS = "partition_replicas"
LEADS = "replica_is_leader"


def without_followers(batch: SampleBatch) -> SampleBatch:
    """End the series of a partition's replicas where Kafka's follower exports them.

    Its 0 says that it does not lead: a leader never exports 0, as it is a replica itself.
    """
    of_kafka = np.array([key.detail == SAID_BY_KAFKA for key in batch.series], dtype=np.bool_)
    if not of_kafka.any():
        return batch
    plain = tuple(
        key._replace(detail="") if is_its else key
        for key, is_its in zip(batch.series, of_kafka, strict=True)
    )
    follows = of_kafka[batch.series_of] & (batch.values == 0)
    # One more series for each that says who leads.
    says = [number for number, key in enumerate(plain) if key.family == SAYS_WHO_LEADS]
    says = [number for number in says if of_kafka[number]]
    place = np.full(len(plain), -1, dtype=np.int32)
    place[says] = np.arange(len(plain), len(plain) + len(says))
    said = np.flatnonzero(place[batch.series_of] >= 0)
    return SampleBatch(
        (*plain, *(plain[number]._replace(family=LEADS) for number in says)),
        np.concatenate((batch.series_of, place[batch.series_of[said]])),
        np.concatenate((batch.at_ms, batch.at_ms[said])),
        np.concatenate((np.where(follows, STALE, batch.values), _leads(batch.values[said]))),
    )


def _leads(replicas: Floats) -> Floats:
    """Return 1 where the broker leads, 0 where not; values that are not finite stay (stale)."""
    return np.where(np.isfinite(replicas), replicas > 0, replicas)


BAND_MS = 60_000
_INTERVAL_COLUMNS = ["run_first_ms", "run_last_ms", "run_samples"]


def aggregation_settings(
    sources: Sequence[Source], window: Window, interval_ms: int | None
) -> AggregationSettings:
    """Choose the settings: runs break at gaps that are long for the most frequent target.

    For targets that are scraped less often they break more than needed, which costs rows and
    changes nothing: how long a sample is valid is decided later, from all of them.
    """
    if interval_ms is None:
        guesses = [
            guess
            for source in sources
            if (batch := source.first_batch(window)) is not None
            and (guess := typical_step_ms(batch)) is not None
        ]
        interval_ms = min(guesses, default=DEFAULT_INTERVAL_MS)
    return AggregationSettings(break_gap_ms=round(interval_ms * 1.5), band_ms=BAND_MS)


def summarize_slice(
    part: Slice, window: Window, settings: AggregationSettings
) -> Iterator[pa.RecordBatch]:
    """Summarise one slice.

    Raises SourceError, also for a slice that is not what it seemed.
    """
    try:
        if isinstance(part, SummarySlice):
            yield from part.summaries()
            return
        for batch in part.read():
            _check_times(batch, part.place)
            requested = window.to_read
            cut = without_followers(within(batch, requested.start_ms, requested.end_ms))
            cut = without_early_spread(cut, window)
            if len(cut):
                yield summarize(cut, settings)
    except SourceError:
        raise
    except (OSError, EOFError) as error:
        raise SourceError(
            part.place,
            expected="a completely readable file",
            found=f"{type(error).__name__}: {error}",
            to_do="check that the file is complete and is not changed during the audit",
        ) from error


def without_early_spread(batch: SampleBatch, window: Window) -> SampleBatch:
    """Drop histograms' samples from before the window: a histogram cannot be cut later."""
    if not window.look_back_ms or window.start_ms is None:
        return batch
    spread = [FAMILIES[PREFIX + key.family].shape is MetricShape.SPREAD for key in batch.series]
    is_spread = np.array(spread, dtype=np.bool_)[batch.series_of]
    kept = ~is_spread | (batch.at_ms >= window.start_ms)
    return SampleBatch(batch.series, batch.series_of[kept], batch.at_ms[kept], batch.values[kept])


def _check_times(batch: SampleBatch, place: str) -> None:
    if len(batch) and not EARLIEST_MS <= batch.at_ms.min() <= batch.at_ms.max() <= LATEST_MS:
        unit = unit_of(float(batch.at_ms.max()))
        raise SourceError(
            place,
            expected="times between the years 1 and 9999",
            found=f"{batch.at_ms.min()} to {batch.at_ms.max()} ms since 1970{unit}",
            to_do="export it again: it is corrupt, or its times have another unit",
        )


def scrape_intervals(merged: pa.Table) -> Intervals:
    """Return the median step of each exporter, from merged summaries in the order of their keys."""
    found = {
        exporter: _median_step(merged, exporter)
        for exporter in (Exporter.BROKER, Exporter.OPERATOR)
    }
    broker = found[Exporter.BROKER] or found[Exporter.OPERATOR] or DEFAULT_INTERVAL_MS
    return Intervals(broker, found[Exporter.OPERATOR] or broker)


def rows_for_intervals(merged: pa.Table) -> pa.Table:
    """Return the rows that `scrape_intervals` reads, of summaries in the order of their keys.

    Rows of several such tables can be sorted together.
    """
    rows = pa.concat_tables([_scraped_between(merged, exporter) for exporter in Exporter])
    return rows.select([*KEY_COLUMNS, *_INTERVAL_COLUMNS])


def _scraped_between(merged: pa.Table, exporter: Exporter) -> pa.Table:
    names = [family.name for family in FAMILIES.values() if family.exporter is exporter]
    is_its = pc.is_in(merged["family"], value_set=pa.array(names))
    is_series = pc.equal(merged["band_start_ms"], NO_BAND)
    return merged.filter(pc.and_(is_its, is_series)).slice(0, SCRAPED_AT)


def _median_step(merged: pa.Table, exporter: Exporter) -> int | None:
    chosen = _scraped_between(merged, exporter).select(_INTERVAL_COLUMNS).to_pylist()
    steps: list[float] = []
    weights: list[int] = []
    for row in chosen:
        firsts, lasts, samples = row["run_first_ms"], row["run_last_ms"], row["run_samples"]
        for place, count in enumerate(samples):
            if count > 1:
                steps.append((lasts[place] - firsts[place]) / (count - 1))
                weights.append(count - 1)
            if place:
                steps.append(firsts[place] - lasts[place - 1])
                weights.append(1)
    if not steps:
        return None
    order = np.argsort(steps, kind="stable")
    reached = np.cumsum(np.array(weights)[order])
    middle = int(np.searchsorted(reached, reached[-1] / 2))
    return rounded(float(np.array(steps)[order][middle]))
