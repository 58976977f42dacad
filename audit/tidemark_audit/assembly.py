"""Facts, objectives and outcomes into one AuditResult with one verdict. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.engines.engine import Observed
from tidemark_audit.results import (
    AuditResult,
    BurnRate,
    IntervalKind,
    Outcome,
    RuleResult,
    SliRow,
    SourceInfo,
    Verdict,
)
from tidemark_audit.rules import evaluate
from tidemark_audit.rules.evaluation import AuditAnalysis, RuleEvaluation, plural
from tidemark_audit.rules.grouping import grouped
from tidemark_audit.slo import Objectives, Slo

HOUR_MS = 3_600_000
BURN_LIMITS = ((HOUR_MS, 14.4), (6 * HOUR_MS, 6.0))  # Google's SRE workbook, chapter 5
BEYOND_ALL_LIMITS = 1e6  # a promise of all the time has no budget to burn
DURABILITY = "R6"
EVIDENCE = "R8"


def analysis_for_rules(observed: Observed, slo: Slo) -> AuditAnalysis:
    return AuditAnalysis(
        window_start_ms=observed.window_start_ms,
        window_end_ms=observed.window_end_ms,
        slack_ms=2 * max(observed.intervals.broker_ms, observed.intervals.operator_ms),
        partitions=observed.partitions,
        families=observed.families,
        clock_skew=observed.clock_skew,
        bad_samples=observed.bad_samples,
        crc_failures=observed.crc_failures,
        slo=slo,
        broker_lives=observed.broker_lives,
    )


def assemble(
    observed: Observed,
    slo: Slo,
    *,
    engine: str,
    sources: Sequence[SourceInfo],
    wall_seconds: float,
    unsettled_ms: int,
) -> AuditResult:
    analysis = analysis_for_rules(observed, slo)
    judgements = evaluate(analysis)
    verdict, sentence = verdict_of(analysis, judgements)
    rows = tuple(partition.sli for partition in observed.partitions)
    missing = tuple(
        dict.fromkeys(name for each in judgements for name in each.result.missing_families)
    )
    return AuditResult(
        verdict=verdict,
        sentence=sentence,
        clusters=observed.clusters,
        window_start_ms=observed.window_start_ms,
        window_end_ms=observed.window_end_ms,
        unsettled_ms=unsettled_ms,
        scrape_interval_ms=observed.intervals.broker_ms,
        engine=engine,
        wall_seconds=wall_seconds,
        sources=tuple(sources),
        rules=tuple(each.result for each in judgements),
        sli_by_topic=by_topic(rows),
        sli_by_partition=rows,
        intervals=tuple(each for p in observed.partitions for each in p.intervals),
        follower_lag=tuple(each for p in observed.partitions for each in p.follower_lag),
        lag_bands=observed.lag_bands,
        elections=tuple(each for p in observed.partitions for each in p.elections),
        isr_changes=tuple(each for p in observed.partitions for each in p.isr_changes),
        loss_evidence=tuple(each for p in observed.partitions for each in p.loss_evidence),
        coverage=tuple(
            replace(each.coverage, missing_families=missing) for each in observed.partitions
        ),
        burn=burns(analysis),
        findings=grouped([found for each in judgements for found in each.findings], analysis),
        notes=(*notes(observed), *_skipped(sources)),
    )


def verdict_of(
    analysis: AuditAnalysis, judgements: Sequence[RuleEvaluation]
) -> tuple[Verdict, str]:
    results = {each.result.rule: each.result for each in judgements}
    if any(partition.loss_evidence for partition in analysis.partitions):
        return Verdict.LOSS, results[DURABILITY].measured
    evidence = results[EVIDENCE]
    violated = [r for r in results.values() if r.outcome is Outcome.VIOLATED and r.rule != EVIDENCE]
    if violated:
        is_judged = results[DURABILITY].outcome is not Outcome.NOT_EVALUATED
        about_loss = "no evidence of loss" if is_judged else "loss not evaluated"
        sentence = f"{about_loss}, but {_named(violated)} violated"
        if evidence.outcome is Outcome.VIOLATED:
            sentence += f"; and the evidence is insufficient ({EVIDENCE}: {evidence.measured})"
        return Verdict.VIOLATED, sentence
    if evidence.outcome is Outcome.VIOLATED:
        return Verdict.INCONCLUSIVE, f"insufficient evidence: {evidence.measured}"
    unknown = [r for r in results.values() if r.outcome is Outcome.NOT_EVALUATED]
    if unknown:
        return Verdict.INCONCLUSIVE, f"{_named(unknown)} not evaluated"
    return (
        Verdict.PASS,
        f"{plural(len(analysis.partitions), 'partition')} met every objective; {evidence.measured}",
    )


def _named(results: Sequence[RuleResult]) -> str:
    return ", ".join(f"{result.rule} ({result.title})" for result in results)


def by_topic(rows: Sequence[SliRow]) -> tuple[SliRow, ...]:
    sums: dict[tuple[str, str], SliRow] = {}
    for row in rows:
        place = (row.topic, row.topic_id)
        known = sums.get(place)
        sums[place] = replace(row, partition=None) if known is None else _added(known, row)
    return tuple(sums[place] for place in sorted(sums))


def _added(one: SliRow, other: SliRow) -> SliRow:
    numbers = {
        name: getattr(one, name) + getattr(other, name)
        for name in SliRow.__slots__
        if name == "partitions" or name.endswith("_ms")
    }
    return replace(one, **numbers)


def burns(analysis: AuditAnalysis) -> tuple[BurnRate, ...]:
    """Return how fast R1's and R2's budgets burnt over the last hours, where the window has them.

    The figure is that of the topic that burnt the most, over what was observed of it.
    """
    kinds = {
        "R1": (IntervalKind.UNDER_REPLICATED, IntervalKind.UNDER_MIN_ISR, IntervalKind.OFFLINE),
        "R2": (IntervalKind.UNDER_MIN_ISR, IntervalKind.OFFLINE),
    }
    end = analysis.window_end_ms
    found = []
    for length, limit in BURN_LIMITS:
        start = end - length
        if start < analysis.window_start_ms or not analysis.partitions:
            continue
        for rule, wanted in kinds.items():
            rates = [
                _burnt(
                    partitions, rule, wanted, (start, end), _budget(analysis.slo.of(topic), rule)
                )
                for topic, partitions in analysis.by_topic().items()
            ]
            found.append(BurnRate(rule, length, max(rates), limit))
    return tuple(found)


def _budget(goal: Objectives, rule: str) -> float:
    return 1 - (goal.fully_replicated if rule == "R1" else goal.writable)


def _burnt(
    partitions: Sequence[PartitionAnalysis],
    rule: str,
    wanted: Sequence[IntervalKind],
    hours: tuple[int, int],
    budget: float,
) -> float:
    """Return one topic's burn rate: a multiple of its budget for the observed time."""
    bad = observed = 0
    for partition in partitions:
        observed += _common(partition.life_ms, hours)
        for each in partition.intervals:
            spent = _common((each.start_ms, each.end_ms), hours)
            is_excused = rule == "R1" and each.planned and each.kind in wanted
            observed -= spent if each.kind is IntervalKind.UNOBSERVED or is_excused else 0
            bad += spent if each.kind in wanted and not is_excused else 0
    if not bad:
        return 0.0
    return bad / observed / budget if budget else BEYOND_ALL_LIMITS


def _common(one: tuple[int, int], other: tuple[int, int]) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def _skipped(sources: Sequence[SourceInfo]) -> tuple[str, ...]:
    count = sum(source.skipped_histogram_series for source in sources)
    if not count:
        return ()
    return (f"{count} series of native histograms in the files were ignored.",)


def notes(observed: Observed) -> tuple[str, ...]:
    interval = observed.intervals.broker_ms / 1000
    return (
        (
            f"A sample is valid until the next scrape, at most {interval * 2.5:g} s; gaps"
            " count as unobserved."
        ),
        (
            f"Losses smaller than about (records per second) x {interval:g} s are visible in"
            " counters only."
        ),
    )
