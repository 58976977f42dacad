"""R3: no single stretch is too long: below min.insync.replicas, and under-replicated.

One that began before the window counts whole, as far back as was read: what lies on two windows'
border would else be short in both.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemark_audit.results import (
    Finding,
    Interval,
    IntervalKind,
    Outcome,
    RuleResult,
    Severity,
)
from tidemark_audit.rules.evaluation import (
    AuditAnalysis,
    RuleEvaluation,
    Subject,
    at_most,
    finding,
    not_evaluated,
    plural,
)
from tidemark_audit.rules.incidents import Incident, incidents, still
from tidemark_audit.slo import Objectives

RULE = "R3"
TITLE = "no long outage"
NEEDS = (
    "partition_replicas", "partition_in_sync_replicas", "partition_min_in_sync_replicas",
)  # fmt: skip
UNDER_MIN_ISR = (IntervalKind.UNDER_MIN_ISR, IntervalKind.OFFLINE)
UNDER_REPLICATED = (IntervalKind.UNDER_REPLICATED, *UNDER_MIN_ISR)
_Limit = Callable[[Objectives], float]
_CHECKS: tuple[tuple[str, tuple[IntervalKind, ...], _Limit], ...] = (
    ("below min.insync.replicas", UNDER_MIN_ISR, lambda goal: goal.longest_under_min_isr_seconds),
    ("under-replicated", UNDER_REPLICATED, lambda goal: goal.longest_under_replicated_seconds),
)


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    goal = analysis.slo.objectives
    objective = (
        f"<= {goal.longest_under_min_isr_seconds:g} s below min.insync.replicas,"
        f" <= {goal.longest_under_replicated_seconds:g} s under-replicated"
    )
    if missing := analysis.missing(NEEDS):
        return not_evaluated(RULE, TITLE, objective, missing)
    reported, measured, worst = [], [], ""
    for words, kinds, limit in _CHECKS:
        unplanned = _unplanned(analysis, kinds)
        longest_ms = max((interval.lasted_ms for _, interval in unplanned), default=0)
        measured.append(f"{at_most(longest_ms)} {words}")
        over = {
            (where, interval.partition, interval.start_ms): interval
            for where, interval in unplanned
            if interval.lasted_ms > 1000 * limit(analysis.slo.of(interval.partition.topic))
        }
        if over and not worst:
            worst = str(max(over.values(), key=lambda interval: interval.lasted_ms).partition)
        for incident in incidents(analysis, kinds):
            # A stretch may go on when other brokers are missing: it is told where it began.
            begun = ((incident.where, each.partition, each.start_ms) for each in incident.intervals)
            if bad := [over[place] for place in begun if place in over]:
                reported.append(_finding(analysis, incident, words, bad))
    outcome = Outcome.VIOLATED if reported else Outcome.KEPT
    return RuleEvaluation(
        RuleResult(RULE, TITLE, outcome, objective, ", ".join(measured), worst=worst),
        tuple(reported),
    )


def _unplanned(
    analysis: AuditAnalysis, kinds: tuple[IntervalKind, ...]
) -> list[tuple[str, Interval]]:
    """Return the intervals with their cluster and pool: two clusters may have one topic's name."""
    places = analysis.places()
    return [
        (places[partition.cluster, partition.pool], interval)
        for partition in analysis.partitions
        for interval in _joined(tuple(each for each in partition.intervals if each.kind in kinds))
        if not interval.planned
    ]


def _joined(intervals: tuple[Interval, ...]) -> list[Interval]:
    """Neighbours of one partition as one: offline, then too few in sync, is one long outage."""
    joined: list[Interval] = []
    for each in sorted(
        intervals, key=lambda i: (i.partition.topic, i.partition.partition, i.start_ms)
    ):
        last = joined[-1] if joined else None
        if last and (last.partition, last.end_ms, last.planned) == (
            each.partition, each.start_ms, each.planned
        ):  # fmt: skip
            brokers = tuple(sorted({*last.brokers, *each.brokers}))
            joined[-1] = replace(last, end_ms=each.end_ms, brokers=brokers)
        else:
            joined.append(each)
    return joined


def _finding(
    analysis: AuditAnalysis, incident: Incident, words: str, bad: Sequence[Interval]
) -> Finding:
    longest = max(bad, key=lambda each: each.lasted_ms)
    return finding(
        RULE,
        Severity.MAJOR,
        Subject(
            incident.subject,
            longest.began_ms,
            longest.end_ms,
            tuple(each.partition for each in bad),
        ),
        (
            f"{plural(len(bad), 'partition')} {words} for too long; the longest,"
            f" {longest.partition}, for {at_most(longest.lasted_ms)}"
        )
        + still((longest,), analysis),
        cause=longest.cause,
        remedy="check restarts, disk and network of the missing broker; if it is lost permanently,"
        " replace it with `tidemark drain`",
    )
