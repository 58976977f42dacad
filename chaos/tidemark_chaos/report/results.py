"""Turn the observations of an experiment into its report: verdict, figures, series. Pure.

Times of a fault are in ms since it began; None where the thing did not happen. What the time line
shows is as exact as the samples of the status (25 ms).
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from tidemark_chaos.history_checker import REPORTED_ONLY
from tidemark_chaos.runner import FaultRecord, Observations
from tidemark_chaos.spec import ChaosExperiment, Role, Workload
from tidemark_chaos.timeline import Change
from tidemark_chaos.verification import VerifyReport, percentile
from tidemark_chaos.workload_series import (
    UNPROMISED,
    Gap,
    Latency,
    WorkloadSeries,
    first_after_gap,
    latency_of,
    longest_gap,
)

SYSTEM = "tidemark"
BIN_MS = 100.0
AROUND_MS = 10_000.0  # of load without a fault: the latency before and after
SAMPLE_SLACK_MS = 250.0  # a sample shows a change later than the runner may see it
INTERRUPTION_MS = 50.0  # longer than a busy machine keeps a process waiting, mostly
INTERRUPTED_RECORDS = 3  # so many records later than the one before, where few are sent
MAX_REASONS = 12
# Of the whole history and of all records; found or not, the report has a row for each.
CHECKED = (
    *("lost", "duplicated", "misplaced", "rejected but found", "read otherwise"),
    *("replicas that differ", "online check"),
    *("lost-write", "unseen", "vanished", "duplicate", "inconsistent-offsets", "unknown-value"),
    *("refused-read", "read-above-watermark", "acknowledged-below", "nonmonotonic-send"),
    *("int-nonmonotonic-send", "int-poll-skip", "int-nonmonotonic-poll", "poll-skip"),
    *("nonmonotonic-poll", "group-skipped", "group-commit-lost"),
)


class Verdict(StrEnum):
    PASSED = "PASSED"
    FAILED = "FAILED"
    ABORTED = "ABORTED"


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class FaultFigures(_Struct, frozen=True):
    number: int
    kind: str
    role: str
    detail: str
    brokers: tuple[int, ...]
    text: str
    at_ms: float  # since the faults may begin
    skipped: str
    detect_ms: float | None
    elect_ms: float | None
    first_ack_ms: float | None
    full_isr_ms: float | None
    healed_ms: float | None
    write_gap_ms: float
    read_gap_ms: float
    workload_stall_ms: float  # how long the workload itself had no processor
    latency_before: Latency
    latency_during: Latency
    latency_after: Latency


class Spread(_Struct, frozen=True):
    """Of one figure over the faults of a kind; only those that have it count."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def percentiles_ms(self) -> tuple[float, float, float]:
        return self.p50_ms, self.p99_ms, self.max_ms


class KindFigures(_Struct, frozen=True):
    kind: str
    role: str
    detail: str
    count: int
    detect: Spread | None
    elect: Spread | None
    first_ack: Spread | None
    full_isr: Spread | None
    write_gap: Spread | None
    read_gap: Spread | None


class AnomalyRow(_Struct, frozen=True):
    name: str
    count: int
    breaks_guarantee: bool
    samples: tuple[str, ...] = ()


class PartitionRow(_Struct, frozen=True):
    partition: int
    acknowledged: int
    write_gap_ms: float
    read_gap_ms: float
    per_bin: tuple[int, ...]  # acknowledgements of each 100 ms since the faults may begin


class ChaosReport(_Struct, frozen=True):
    name: str
    verdict: Verdict
    sentence: str
    reasons: tuple[str, ...]
    seed: int
    command: str  # that repeats the run
    version: str
    started_ms: float
    steady_ms: float
    seconds: float
    workload: Workload
    acknowledged: int
    rejected: int
    unknown: int
    unpromised: int  # sent with acks 0 and 1 in a mix: they may be lost
    found: int
    lost: int
    duplicated: int
    write_gap_ms: float
    read_gap_ms: float
    worst_read_lag_ms: float
    latency: Latency
    faults: tuple[FaultFigures, ...]
    by_kind: tuple[KindFigures, ...]
    anomalies: tuple[AnomalyRow, ...]
    partitions: tuple[PartitionRow, ...]
    timeline: tuple[Change, ...]
    system: str = SYSTEM

    @property
    def system_name(self) -> str:
        return f"{self.system} {self.version}"


def chaos_report(
    experiment: ChaosExperiment,
    seed: int,
    seen: Observations,
    *,
    command: str,
    version: str,
    system: str = SYSTEM,
) -> ChaosReport:
    verified = seen.verified
    counted = None if verified is None else verified.verdict
    begin_ms, end_ms = seen.steady_ms, _end_of_faults(seen)
    partitions = tuple(
        _partition_row(partition, seen.series, begin_ms, end_ms)
        for partition in sorted(seen.series.partitions)
    )
    verdict, sentence = _verdict(seen)
    interval_ms = 1000 / experiment.spec.workload.records_per_second
    faults = fault_figures(seen, max(INTERRUPTION_MS, INTERRUPTED_RECORDS * interval_ms))
    return ChaosReport(
        name=experiment.metadata.name,
        verdict=verdict,
        sentence=sentence,
        reasons=_reasons(seen),
        seed=seed,
        command=command,
        version=version,
        started_ms=round(seen.started_ms, 1),
        steady_ms=round(seen.steady_ms, 1),
        seconds=round((seen.ended_ms - seen.started_ms) / 1000, 1),
        workload=experiment.spec.workload,
        acknowledged=seen.series.outcomes["acknowledged"],
        rejected=seen.series.outcomes["refused"],
        unknown=seen.series.outcomes["unknown"],
        unpromised=seen.series.outcomes[UNPROMISED],
        found=0 if counted is None else counted.found,
        lost=0 if counted is None else counted.lost,
        duplicated=0 if counted is None else counted.duplicated,
        write_gap_ms=max((row.write_gap_ms for row in partitions), default=0.0),
        read_gap_ms=max((row.read_gap_ms for row in partitions), default=0.0),
        worst_read_lag_ms=0.0 if verified is None else verified.worst_read_lag_ms,
        latency=_latency(seen.series, begin_ms, end_ms),
        faults=faults,
        by_kind=figures_by_kind(faults),
        anomalies=_anomalies(seen),
        partitions=partitions,
        timeline=tuple(seen.timeline.changes),
        system=system,
    )


def _verdict(seen: Observations) -> tuple[Verdict, str]:
    struck = sum(not fault.skipped for fault in seen.faults)
    faults = f"{struck} fault{'s' * (struck != 1)}"
    if skipped := len(seen.faults) - struck:
        faults += f" ({skipped} skipped)"
    counted = None if seen.verified is None else seen.verified.verdict
    total = seen.series.outcomes["acknowledged"]
    if counted is not None and counted.lost:
        words = f"{counted.lost} of {total} acknowledged records are lost after {faults}"
        return Verdict.FAILED, words
    if seen.aborted:
        return Verdict.ABORTED, f"after {faults}: {seen.aborted}"
    if seen.is_good:
        words = f"{total} records acknowledged, none lost, none duplicated, after {faults}"
        return Verdict.PASSED, words
    if counted is None:
        return Verdict.FAILED, f"the records are not verified, after {faults}"
    return Verdict.FAILED, f"a guarantee was broken, or the pool did not recover, after {faults}"


def _reasons(seen: Observations) -> tuple[str, ...]:
    reasons = [*([seen.aborted] if seen.aborted else []), *seen.problems]
    reasons += seen.online_violations[:1]
    if (verified := seen.verified) is not None:
        reasons += verified.verdict.examples[:3] + verified.verdict.complaints[:2]
        reasons += _differences(verified)
        for entry in verified.broken_guarantees:
            text = next(iter(entry.samples), "")
            reasons.append(f"{entry.name} ({entry.count}): partition {text}")
    return tuple(reasons[:MAX_REASONS])


def _differences(verified: VerifyReport) -> list[str]:
    found = []
    for entry in verified.replicas:
        if entry.missing:
            found += [f"partition {entry.partition}: {sentence}" for sentence in entry.missing]
        elif not entry.is_identical:
            found.append(f"partition {entry.partition}: the replicas differ")
    return found


def _anomalies(seen: Observations) -> tuple[AnomalyRow, ...]:
    found: dict[str, AnomalyRow] = {}
    online = tuple(seen.online_violations[:8])
    found["online check"] = AnomalyRow(
        "online check", len(seen.online_violations), bool(online), online
    )
    if (verified := seen.verified) is not None:
        counted, differing = verified.verdict, _differences(verified)
        for name, count in (
            ("lost", counted.lost),
            ("duplicated", counted.duplicated),
            ("misplaced", counted.misplaced),
            ("rejected but found", counted.refused_found),
            ("read otherwise", counted.read_otherwise),
        ):
            samples = tuple(text for text in counted.examples if text.startswith(name))
            found[name] = AnomalyRow(name, count, bool(count), samples[:8])
        found["replicas that differ"] = AnomalyRow(
            "replicas that differ", len(differing), bool(differing), tuple(differing[:8])
        )
        for entry in verified.anomalies:
            is_broken = entry.name not in REPORTED_ONLY
            samples = tuple(f"partition {text}" for text in entry.samples)
            found[entry.name] = AnomalyRow(entry.name, entry.count, is_broken, samples)
    rows = [found.pop(name, AnomalyRow(name, 0, False)) for name in CHECKED]
    return (*rows, *found.values())


# ---- figures of each fault


def fault_figures(seen: Observations, interruption_ms: float) -> tuple[FaultFigures, ...]:
    """Return the figures of each fault; a shorter gap between two records is no interruption."""
    faults = sorted(seen.faults, key=lambda fault: fault.begin_ms)
    return tuple(
        _figures(fault, seen, _next_begin(fault, faults, seen), interruption_ms) for fault in faults
    )


def figures_by_kind(faults: Sequence[FaultFigures]) -> tuple[KindFigures, ...]:
    """Return the figures of faults that are alike, in the order of the first of them."""
    groups: dict[tuple[str, str, str], list[FaultFigures]] = {}
    for fault in faults:
        if not fault.skipped:
            groups.setdefault((fault.kind, fault.role, fault.detail), []).append(fault)
    return tuple(
        KindFigures(
            kind=kind,
            role=role,
            detail=detail,
            count=len(group),
            detect=_spread(each.detect_ms for each in group),
            elect=_spread(each.elect_ms for each in group),
            first_ack=_spread(each.first_ack_ms for each in group),
            full_isr=_spread(each.full_isr_ms for each in group),
            write_gap=_spread(each.write_gap_ms for each in group),
            read_gap=_spread(each.read_gap_ms for each in group),
        )
        for (kind, role, detail), group in groups.items()
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    return Spread(len(found), percentile(found, 50), percentile(found, 99), found[-1])


def _next_begin(fault: FaultRecord, faults: Sequence[FaultRecord], seen: Observations) -> float:
    """Return when the next fault began that began after this one was healed."""
    healed_ms = fault.heal_ms or fault.begin_ms
    later = [each.begin_ms for each in faults if each.begin_ms > healed_ms and not each.skipped]
    return min(later, default=_end_of_faults(seen))


def _figures(
    fault: FaultRecord, seen: Observations, next_ms: float, interruption_ms: float
) -> FaultFigures:
    begin_ms, series = fault.begin_ms, seen.series
    if fault.skipped:
        next_ms = begin_ms
    next_ms = max(next_ms, fault.heal_ms or begin_ms)
    changes = [each for each in seen.timeline.changes if begin_ms < each.t_ms <= next_ms]
    detect_ms = next((each.t_ms for each in changes if _shows(each, fault)), None)
    last_ms = _last_of_recovery(fault, seen, next_ms)
    full_ms = None if detect_ms is None else _full_again(seen, fault, detect_ms, last_ms)
    end_ms = full_ms or fault.recovered_ms or next_ms
    gaps = {
        partition: longest_gap(entry.acknowledged_ms, begin_ms, end_ms)
        for partition, entry in series.partitions.items()
    }
    first_acks = [
        first_after_gap(entry.acknowledged_ms, begin_ms, end_ms, interruption_ms)
        for partition, entry in series.partitions.items()
        if partition in fault.led
    ]
    return FaultFigures(
        number=fault.number,
        kind=fault.kind,
        role=fault.role,
        detail=fault.detail,
        brokers=fault.brokers,
        text=fault.text,
        at_ms=round(begin_ms - seen.steady_ms, 1),
        skipped=fault.skipped,
        detect_ms=_since(begin_ms, detect_ms),
        elect_ms=_since(begin_ms, _elected(changes, fault)),
        first_ack_ms=_since(begin_ms, max(first_acks, default=None)),
        full_isr_ms=_since(begin_ms, full_ms),
        healed_ms=_since(begin_ms, fault.heal_ms),
        write_gap_ms=_longest(gaps.values()),
        read_gap_ms=_longest(
            longest_gap(entry.read_ms, begin_ms, end_ms) for entry in series.partitions.values()
        ),
        workload_stall_ms=series.stall_ms(begin_ms, end_ms),
        latency_before=_latency(series, max(seen.steady_ms, begin_ms - AROUND_MS), begin_ms),
        latency_during=_latency(series, begin_ms, end_ms),
        latency_after=_latency(series, end_ms, min(end_ms + AROUND_MS, max(end_ms, next_ms))),
    )


def _shows(change: Change, fault: FaultRecord) -> bool:
    """Return whether a change shows that the controller noticed the fault."""
    if fault.role == Role.CONTROLLER:
        return change.what == "controller"
    match change.what:
        case "broker":
            return change.broker in fault.brokers and change.state != "Active"
        case "leader":
            return change.partition in fault.led
        case "isr":
            return any(broker_id not in change.in_sync for broker_id in fault.brokers)
        case _:
            return False


def _elected(changes: Sequence[Change], fault: FaultRecord) -> float | None:
    """Return when the last of the partitions that it led had a new leader."""
    first: dict[int, float] = {}
    for change in changes:
        if change.what == "leader" and change.leader >= 0 and change.partition in fault.led:
            first.setdefault(change.partition, change.t_ms)
    return max(first.values(), default=None)


def _last_of_recovery(fault: FaultRecord, seen: Observations, next_ms: float) -> float:
    """Return until when a recovery is this fault's: without a known one, until the run ends."""
    if fault.recovered_ms is not None:
        return fault.recovered_ms + SAMPLE_SLACK_MS
    return next_ms if fault.role == Role.CONTROLLER else _end_of_faults(seen)


def _full_again(
    seen: Observations, fault: FaultRecord, detect_ms: float, last_ms: float
) -> float | None:
    """Return when every in-sync set was full and every struck broker active, after the healing.

    Where another fault begins before that, it is the recovery from both.
    """
    sizes: dict[int, int] = {}
    wanted: dict[int, int] = {}
    states: dict[int, str] = {}
    was_less = False
    full_since_ms: float | None = None
    healed_ms = fault.heal_ms or fault.begin_ms
    for change in seen.timeline.changes:
        if change.t_ms > last_ms:
            break
        if change.what == "isr":
            sizes[change.partition] = len(change.in_sync)
            wanted[change.partition] = max(wanted.get(change.partition, 0), len(change.in_sync))
        elif change.what == "broker":
            states[change.broker] = change.state
        if change.t_ms < detect_ms:
            continue
        if sizes == wanted and all(states.get(each) == "Active" for each in fault.brokers):
            if was_less and full_since_ms is None:
                full_since_ms = change.t_ms
        elif full_since_ms is not None and change.t_ms > healed_ms:
            break  # it was full at the healing, and the next fault ended that
        else:
            was_less, full_since_ms = True, None
    return None if full_since_ms is None else max(full_since_ms, healed_ms)


def _end_of_faults(seen: Observations) -> float:
    return seen.stopped_ms or seen.ended_ms


def _partition_row(
    partition: int, series: WorkloadSeries, begin_ms: float, end_ms: float
) -> PartitionRow:
    entry = series.partitions[partition]
    return PartitionRow(
        partition=partition,
        acknowledged=len(entry.acknowledged_ms),
        write_gap_ms=round(longest_gap(entry.acknowledged_ms, begin_ms, end_ms).length_ms, 1),
        read_gap_ms=round(longest_gap(entry.read_ms, begin_ms, end_ms).length_ms, 1),
        per_bin=_bins(entry.acknowledged_ms, begin_ms, end_ms),
    )


def _bins(times_ms: "array[float]", begin_ms: float, end_ms: float) -> tuple[int, ...]:
    count = max(0, int((end_ms - begin_ms) / BIN_MS) + 1)
    bins = [0] * count
    for place in range(bisect_left(times_ms, begin_ms), bisect_left(times_ms, end_ms)):
        bins[int((times_ms[place] - begin_ms) / BIN_MS)] += 1
    return tuple(bins)


def _latency(series: WorkloadSeries, begin_ms: float, end_ms: float) -> Latency:
    return latency_of(series.latencies(begin_ms, end_ms))


def _longest(gaps: Iterable[Gap]) -> float:
    return round(max((gap.length_ms for gap in gaps), default=0.0), 1)


def _since(begin_ms: float, t_ms: float | None) -> float | None:
    return None if t_ms is None else round(t_ms - begin_ms, 1)
