"""Find evidence that committed records are lost; each kind holds whatever else the samples say.

Latched counters prove a loss; watermarks only show what a scrape happened to see. No comparison
mixes two epochs, two topic ids or a replica's watermark with another clock's: a high watermark may
lag right after a clean election, and retention moves only the log's start.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tidemark_audit.analysis.changes import partition_of
from tidemark_audit.analysis.counter_increases import CounterIncrease, counted_steps, first_rise
from tidemark_audit.analysis.partition_timeline import Series
from tidemark_audit.analysis.series import MergedSeries
from tidemark_audit.analysis.step_function import StepFunction, steps_of
from tidemark_audit.metrics.families import Exporter, key_as_text
from tidemark_audit.results import Confidence, LossEvidence, LossKind, Sample


def loss_of(series: Series) -> list[LossEvidence]:
    """Return the evidence of the window in order of time.

    Earlier windows report what came before.
    """
    searches: tuple[Callable[[Series], Iterator[LossEvidence]], ...] = (
        _committed_truncations,
        _election_gaps,
        _recoveries,
        _digest_mismatches,
        _high_watermark_regresses,
        _leaders_below_high_watermark,
    )
    found = [
        evidence
        for search in searches
        for evidence in search(series)
        if evidence.at_ms >= series.context.window_start_ms
    ]
    if found:
        starts = {epoch: int(sample.value) for epoch, sample in _epoch_starts(series)}
        found = [_with_offset(evidence, starts) for evidence in found]
    return sorted(found, key=lambda evidence: (evidence.at_ms, evidence.kind))


def _with_offset(evidence: LossEvidence, starts: Mapping[int, int]) -> LossEvidence:
    """Add the first lost offset: where the first epoch without the records begins."""
    if evidence.first_offset is not None or not evidence.records:
        return evidence
    first, last = evidence.epochs
    known = [start for epoch, start in starts.items() if first <= epoch <= last]
    return replace(evidence, first_offset=min(known, default=None))


def epochs_of(series: Series, broker: str) -> StepFunction:
    return series.steps("replica_leader_epoch", broker=broker)


def _epoch_at(series: Series, broker: str, at_ms: int) -> int:
    epoch = epochs_of(series, broker).at(np.array([at_ms], dtype=np.int64))[0]
    return -1 if np.isnan(epoch) else int(epoch)


def _committed_truncations(series: Series) -> Iterator[LossEvidence]:
    for merged_series in series.all_of("replica_committed_truncated_records_total"):
        text = key_as_text(merged_series.key)
        for step in counted_steps(series, merged_series):
            yield LossEvidence(
                partition_of(series),
                LossKind.COMMITTED_TRUNCATION,
                step.after_ms,
                step.at_ms,
                _epoch_at(series, merged_series.key.broker, step.at_ms),
                int(step.by),
                Confidence.PROVED,
                f"broker {merged_series.key.broker} truncated {int(step.by)} records below"
                " its high watermark to follow a leader without them",
                (Sample(text, step.after_ms, step.before), Sample(text, step.at_ms, step.value)),
                since_epoch=_epoch_in_sync(series, merged_series.key.broker, step.at_ms),
            )


def _epoch_in_sync(series: Series, broker: str, until_ms: int) -> int:
    """Return the last epoch in which a broker was seen to lead or be in sync; -1 if never.

    Records that it truncates later were lost since then, maybe by an election that other evidence
    shows too.
    """
    held = [
        (int(time), merged_series.key.broker)
        for family in ("follower_in_sync", "replica_is_leader")
        for merged_series in series.all_of(family)
        if (merged_series.key.follower or merged_series.key.broker) == broker
        for time in merged_series.last_ms[
            (merged_series.first_value == 1.0) & (merged_series.last_ms < until_ms)
        ][-1:]
    ]
    at_ms, leader = max(held, default=(0, ""))
    return _epoch_at(series, leader, at_ms) if leader else -1


def _election_gaps(series: Series) -> Iterator[LossEvidence]:
    for merged_series in series.all_of("partition_election_committed_gap_records"):
        text = key_as_text(merged_series.key)
        seen: set[tuple[int, float]] = set()
        for run in np.flatnonzero(merged_series.first_value > 0).tolist():
            at_ms, records = int(merged_series.first_ms[run]), float(merged_series.first_value[run])
            epoch = _epoch_at(series, merged_series.key.broker, at_ms)
            is_old = run == 0 and first_rise(series, merged_series) is not CounterIncrease.WITHIN
            if (epoch, records) not in seen and not is_old:
                before = int(merged_series.last_ms[run - 1]) if run else at_ms
                yield _election_gap(
                    series, merged_series, before, Sample(text, at_ms, records), epoch
                )
            seen.add((epoch, records))


def _election_gap(
    series: Series, merged_series: MergedSeries, before_ms: int, sample: Sample, epoch: int
) -> LossEvidence:
    records = int(sample.value)
    return LossEvidence(
        partition_of(series),
        LossKind.ELECTION_GAP,
        before_ms,
        sample.at_ms,
        epoch,
        records,
        Confidence.PROVED,
        f"broker {merged_series.key.broker} became leader with {records} records less than"
        " the high watermark that it knew",
        (sample,),
    )


def _recoveries(series: Series) -> Iterator[LossEvidence]:
    for merged_series in series.all_of("partition_recovery_lost_committed_records"):
        text = key_as_text(merged_series.key)
        for step in counted_steps(series, merged_series):
            yield LossEvidence(
                partition_of(series),
                LossKind.RECOVERY,
                step.after_ms,
                step.at_ms,
                _recovery_epoch(series, merged_series.key.detail, step.at_ms),
                int(step.value),
                Confidence.PROVED,
                f"an unclean election ({merged_series.key.detail}) lost {int(step.value)}"
                " committed records of another log",
                (Sample(text, step.at_ms, step.value),),
            )


def _recovery_epoch(series: Series, cause: str, at_ms: int) -> int:
    merged_series = series.find("partition_recovery_epoch", detail=cause)
    epoch = steps_of(merged_series, series.context.intervals.cap_ms(Exporter.OPERATOR)).at(
        np.array([at_ms], dtype=np.int64)
    )[0]
    return -1 if np.isnan(epoch) else int(epoch)


def _digest_mismatches(series: Series) -> Iterator[LossEvidence]:
    """Find two digests of one boundary in one epoch."""
    known: dict[tuple[int, int], Sample] = {}
    reported: set[tuple[int, int]] = set()
    for sample, boundary, epoch in sorted(_digests(series), key=lambda each: each[0].at_ms):
        place = (boundary, epoch)
        first = known.setdefault(place, sample)
        if first.value == sample.value or place in reported:
            continue
        reported.add(place)
        yield LossEvidence(
            partition_of(series),
            LossKind.DIGEST_MISMATCH,
            first.at_ms,
            sample.at_ms,
            epoch,
            None,
            Confidence.PROVED,
            f"two replicas hold different records below offset {boundary}",
            (first, sample),
        )


def _digests(series: Series) -> Iterator[tuple[Sample, int, int]]:
    for merged_series in series.all_of("replica_digest"):
        broker = merged_series.key.broker
        boundaries = series.steps("replica_digest_offset", broker=broker).at(merged_series.first_ms)
        epochs = epochs_of(series, broker).at(merged_series.first_ms)
        text = key_as_text(merged_series.key)
        # Where one address's series ends, another's boundary may stand already.
        reported = (boundaries > 0) & ~np.isnan(epochs) & ~np.isnan(merged_series.first_value)
        for place in np.flatnonzero(reported).tolist():
            sample = Sample(
                text, int(merged_series.first_ms[place]), float(merged_series.first_value[place])
            )
            yield sample, int(boundaries[place]), int(epochs[place])


def _high_watermark_regresses(series: Series) -> Iterator[LossEvidence]:
    """Find a leader's own high watermark that goes back within its epoch."""
    for merged_series in series.all_of("replica_high_watermark_offset"):
        broker, text = merged_series.key.broker, key_as_text(merged_series.key)
        leads = series.steps("replica_is_leader", broker=broker)
        epochs = epochs_of(series, broker)
        # A failed scrape leaves a NaN between two runs; it hides nothing of what they say.
        known = np.flatnonzero(~np.isnan(merged_series.first_value)).tolist()
        for before, run in itertools.pairwise(known):
            high, low = (
                float(merged_series.last_value[before]),
                float(merged_series.first_value[run]),
            )
            if not low < high:
                continue
            times = np.array(
                [merged_series.last_ms[before], merged_series.first_ms[run]], dtype=np.int64
            )
            epoch = epochs.at(times)
            if not ((leads.at(times) == 1.0).all() and epoch[0] == epoch[1]):
                continue
            samples = (Sample(text, int(times[0]), high), Sample(text, int(times[1]), low))
            yield LossEvidence(
                partition_of(series),
                LossKind.HIGH_WATERMARK_REGRESS,
                int(times[0]),
                int(times[1]),
                int(epoch[0]),
                int(high - low),
                Confidence.PROVED,
                f"the high watermark of leader {broker} decreased by {int(high - low)}"
                f" within leader epoch {int(epoch[0])}",
                samples,
                first_offset=int(low),
            )


def _leaders_below_high_watermark(series: Series) -> Iterator[LossEvidence]:
    """Find leaders that begin below a watermark of an earlier epoch.

    A leader's epoch then starts, or its log ends, below a high watermark that a replica knew.
    """
    known_starts = dict(_epoch_starts(series))
    # Where nobody said it, the log of who leads ends at or after it.
    bounds = {epoch: sample for epoch, sample in _leaders_ends(series) if epoch not in known_starts}
    starts = sorted((known_starts | bounds).items())
    watermarks = list(_watermarks(series))
    for epoch, sample in starts:
        # Earlier by its epoch and by the clock: an epoch that goes back is another finding's.
        earlier = [
            (mark.value, mark, known)
            for known, mark in watermarks
            if known < epoch and mark.at_ms <= sample.at_ms
        ]
        if not earlier:
            continue
        highest, mark, known_in = max(earlier, key=lambda each: (each[0], -each[1].at_ms))
        if sample.value < highest:
            records = int(highest - sample.value)
            yield LossEvidence(
                partition_of(series),
                LossKind.LEADER_BELOW_HIGH_WATERMARK,
                min(mark.at_ms, sample.at_ms),
                sample.at_ms,
                epoch,
                records,
                Confidence.PROVED,
                f"leader epoch {epoch} {'ends' if epoch in bounds else 'starts'} {records}"
                " records below an earlier high watermark",
                (mark, sample),
                since_epoch=known_in,
                first_offset=int(sample.value),
            )
            # What is lost once is missing in every later epoch: tell it once.
            watermarks = [each for each in watermarks if each[1].value <= sample.value]


def _epoch_starts(series: Series) -> Iterator[tuple[int, Sample]]:
    """Yield the first offset of each epoch that a leader was seen in."""
    reported: set[int] = set()
    for merged_series in series.all_of("replica_leader_epoch_start_offset"):
        broker = merged_series.key.broker
        leads = series.steps("replica_is_leader", broker=broker).at(merged_series.first_ms)
        epochs = epochs_of(series, broker).at(merged_series.first_ms)
        for run in np.flatnonzero((leads == 1.0) & (merged_series.first_value >= 0)).tolist():
            epoch = -1 if np.isnan(epochs[run]) else int(epochs[run])
            if epoch >= 0 and epoch not in reported:
                reported.add(epoch)
                yield (
                    epoch,
                    Sample(
                        key_as_text(merged_series.key),
                        int(merged_series.first_ms[run]),
                        float(merged_series.first_value[run]),
                    ),
                )


def _leaders_ends(series: Series) -> Iterator[tuple[int, Sample]]:
    """Yield the first log end that each epoch's leader was seen with, the last epoch first."""
    found: list[tuple[int, int, float, str]] = []
    for merged_series in series.all_of("replica_log_end_offset"):
        broker, text = merged_series.key.broker, key_as_text(merged_series.key)
        leads, epochs = series.steps("replica_is_leader", broker=broker), epochs_of(series, broker)
        for times, values in (
            (merged_series.first_ms, merged_series.first_value),
            (merged_series.last_ms, merged_series.last_value),
        ):
            epoch = epochs.at(times)
            reported = (leads.at(times) == 1.0) & (epoch >= 0) & ~np.isnan(values)
            for place in np.flatnonzero(reported).tolist():
                found.append((int(times[place]), int(epoch[place]), float(values[place]), text))
    for at_ms, epoch_of, value, text in sorted(found, reverse=True):
        yield epoch_of, Sample(text, at_ms, value)


def _watermarks(series: Series) -> Iterator[tuple[int, Sample]]:
    """Both ends of every stretch in which a watermark rose, with the replica's epoch then."""
    for merged_series in series.all_of("replica_high_watermark_offset"):
        epochs = epochs_of(series, merged_series.key.broker)
        text = key_as_text(merged_series.key)
        for times, values in (
            (merged_series.first_ms, merged_series.first_value),
            (merged_series.last_ms, merged_series.last_value),
        ):
            known = epochs.at(times)
            for place in np.flatnonzero(~np.isnan(values) & (known >= 0)).tolist():
                yield (
                    int(known[place]),
                    Sample(text, int(times[place]), float(values[place])),
                )
