"""Find what must never occur and is no loss by itself.

That is two leaders in an epoch, an epoch that goes back, an unclean election, corrupt batches,
contradicting samples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tidemark_audit.analysis.counter_increases import (
    CounterIncrease,
    counted_steps,
    first_rise,
    stood_at_start,
)
from tidemark_audit.analysis.loss import epochs_of
from tidemark_audit.analysis.partition_timeline import Series
from tidemark_audit.analysis.series import MergedSeries
from tidemark_audit.analysis.step_function import StepFunction
from tidemark_audit.metrics.families import Exporter, key_as_text
from tidemark_audit.results import Confidence, Sample


@dataclass(frozen=True, slots=True)
class _Claim:
    """Record that a broker was seen to lead in the epoch, at both times."""

    broker: str
    epoch: int
    first_ms: int
    last_ms: int
    text: str  # its series


class AnomalyKind(StrEnum):
    UNCLEAN_ELECTION = "unclean-election"
    TWO_LEADERS = "two-leaders-in-an-epoch"
    EPOCH_REGRESS = "leader-epoch-regress"
    LOSS_ON_RECORD = "loss-before-the-window"
    LOSS_OF_UNKNOWN_TIME = "loss-of-unknown-time"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: AnomalyKind
    after_ms: int
    at_ms: int
    sentence: str
    confidence: Confidence
    samples: tuple[Sample, ...]


def anomalies_of(series: Series) -> list[Anomaly]:
    found = [
        *_unclean_elections(series),
        *_two_leaders(series),
        *_epoch_regresses(series),
        *_losses_on_record(series),
    ]
    start = series.context.window_start_ms
    inside = [anomaly for anomaly in found if anomaly.at_ms >= start]
    return sorted(inside, key=lambda anomaly: (anomaly.at_ms, anomaly.kind))


def _unclean_elections(series: Series) -> Iterator[Anomaly]:
    counted = series.find("partition_leader_elections_total", detail="unclean")
    reported = []
    for step in counted_steps(series, counted):
        assert counted is not None
        reported.append(step)
        text = key_as_text(counted.key)
        yield Anomaly(
            AnomalyKind.UNCLEAN_ELECTION,
            step.after_ms,
            step.at_ms,
            f"{int(step.by)} leader(s) elected that may lack committed records",
            Confidence.PROVED,
            (Sample(text, step.after_ms, step.before), Sample(text, step.at_ms, step.value)),
        )
    slack = series.context.intervals.cap_ms(Exporter.OPERATOR)
    for merged_series in series.all_of("partition_recovery_epoch"):
        for step in counted_steps(series, merged_series):
            if any(
                known.after_ms - slack <= step.at_ms and step.after_ms <= known.at_ms + slack
                for known in reported
            ):
                continue  # the counter told it already
            yield Anomaly(
                AnomalyKind.UNCLEAN_ELECTION,
                step.after_ms,
                step.at_ms,
                f"unclean election of leader epoch {int(step.value)} ({merged_series.key.detail})",
                Confidence.PROVED,
                (Sample(key_as_text(merged_series.key), step.at_ms, step.value),),
            )


def _two_leaders(series: Series) -> Iterator[Anomaly]:
    """Two brokers with real samples on both sides of a common moment, each leading one epoch."""
    by_epoch: dict[int, list[_Claim]] = {}
    for merged_series in series.all_of("replica_is_leader"):
        epochs = epochs_of(series, merged_series.key.broker)
        for run in np.flatnonzero(merged_series.first_value == 1.0).tolist():
            for claim in _claims(merged_series, run, epochs):
                by_epoch.setdefault(claim.epoch, []).append(claim)
    for claims in by_epoch.values():
        claims.sort(key=lambda claim: (claim.first_ms, claim.broker))
        open_ones: list[_Claim] = []
        for claim in claims:
            open_ones = [other for other in open_ones if other.last_ms > claim.first_ms]
            for other in open_ones:
                if other.broker != claim.broker and claim.first_ms < claim.last_ms:
                    yield _both_lead(other, claim)
            open_ones.append(claim)


def _both_lead(one: "_Claim", other: "_Claim") -> Anomaly:
    first = max(one.first_ms, other.first_ms)
    low, high = sorted((one, other), key=lambda claim: claim.broker)
    return Anomaly(
        AnomalyKind.TWO_LEADERS,
        first,
        min(one.last_ms, other.last_ms),
        f"brokers {low.broker} and {high.broker} were both leader in leader epoch {one.epoch}",
        Confidence.PROVED,
        (Sample(low.text, first, 1.0), Sample(high.text, first, 1.0)),
    )


def _claims(merged_series: MergedSeries, run: int, epochs: StepFunction) -> Iterator[_Claim]:
    """Yield a broker's claims to lead over a run of samples, one per epoch it was in meanwhile."""
    start, end = int(merged_series.first_ms[run]), int(merged_series.last_ms[run])
    place = int(np.searchsorted(epochs.last_sample_ms, start, side="left"))
    until = int(np.searchsorted(epochs.start_ms, end, side="right"))
    for number in range(place, until):
        first = max(start, int(epochs.start_ms[number]))
        last = min(end, int(epochs.last_sample_ms[number]))
        epoch = int(epochs.value[number])
        yield _Claim(merged_series.key.broker, epoch, first, last, key_as_text(merged_series.key))


def _epoch_regresses(series: Series) -> Iterator[Anomaly]:
    """Find a leader whose epoch goes back: an old state was restored."""
    for merged_series in series.all_of("replica_leader_epoch"):
        leads = series.steps("replica_is_leader", broker=merged_series.key.broker)
        text = key_as_text(merged_series.key)
        highest, highest_at = -1.0, 0
        for run in range(len(merged_series.first_ms)):
            epoch, at_ms = float(merged_series.first_value[run]), int(merged_series.first_ms[run])
            led = leads.at(np.array([at_ms], dtype=np.int64))[0] == 1.0
            if np.isnan(epoch):
                continue
            if led and 0 <= epoch < highest:
                yield Anomaly(
                    AnomalyKind.EPOCH_REGRESS,
                    highest_at,
                    at_ms,
                    f"broker {merged_series.key.broker} is leader in epoch {int(epoch)}"
                    f" after epoch {int(highest)}",
                    Confidence.PROVED,
                    (Sample(text, highest_at, highest), Sample(text, at_ms, epoch)),
                )
            if epoch > highest:
                highest, highest_at = epoch, int(merged_series.last_ms[run])


COUNTER_INCREASES = (
    "replica_committed_truncated_records_total",
    "partition_election_committed_gap_records",
    "partition_recovery_lost_committed_records",
)


def _losses_on_record(series: Series) -> Iterator[Anomaly]:
    """Proof of loss that is latched: told by an earlier window, or nobody knows by which."""
    standing: dict[AnomalyKind, list[Sample]] = {}
    for family in COUNTER_INCREASES:
        for merged_series in series.all_of(family):
            if (found := _on_record(series, merged_series)) is not None:
                kind, at_ms, value = found
                sample = Sample(key_as_text(merged_series.key), at_ms, value)
                standing.setdefault(kind, []).append(sample)
    for kind, samples in standing.items():
        largest = max(samples, key=lambda sample: (sample.value, -sample.at_ms))
        when = "before this window"
        if kind is AnomalyKind.LOSS_OF_UNKNOWN_TIME:
            when += ", or in it and before its first sample"
        yield Anomaly(
            kind,
            series.context.window_start_ms,
            largest.at_ms,
            f"{int(largest.value)} committed records were lost {when}",
            Confidence.PROVED,
            (largest,),
        )


def _on_record(
    series: Series, merged_series: MergedSeries
) -> tuple[AnomalyKind, int, float] | None:
    if stood := stood_at_start(series, merged_series):
        return AnomalyKind.LOSS_ON_RECORD, series.context.window_start_ms, stood
    is_up = not merged_series.is_empty and merged_series.first_value[0] > 0
    if is_up and first_rise(series, merged_series) is CounterIncrease.UNKNOWN:
        return (
            AnomalyKind.LOSS_OF_UNKNOWN_TIME,
            int(merged_series.first_ms[0]),
            float(merged_series.first_value[0]),
        )
    return None
