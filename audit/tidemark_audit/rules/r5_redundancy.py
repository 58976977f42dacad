"""R5: how often one more failure would have cost records, or writes.

Planned absences are left out of the second: a rolling restart passes through it on purpose.
"""

from tidemark_audit.results import IntervalKind, Outcome, RuleResult, Severity
from tidemark_audit.rules.evaluation import (
    AuditAnalysis,
    RuleEvaluation,
    duration,
    finding,
    not_evaluated,
    percent,
    plural,
)
from tidemark_audit.rules.incidents import incidents

RULE = "R5"
TITLE = "redundancy margin"
NEEDS = (
    "partition_replicas", "partition_in_sync_replicas", "partition_min_in_sync_replicas",
)  # fmt: skip
FROM_LOSS = (IntervalKind.ONE_FAILURE_FROM_LOSS,)
FROM_STALL = IntervalKind.ONE_FAILURE_FROM_STALL


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    goal = analysis.slo.objectives
    objective = (
        f"<= {goal.one_failure_from_loss_seconds:g} s with one replica in sync,"
        f" <= {percent(goal.one_failure_from_stall)} of observed time at min.insync.replicas"
    )
    if missing := analysis.missing(NEEDS):
        return not_evaluated(RULE, TITLE, objective, missing)
    alone_ms, stall_worst = 0, 0.0
    violated: dict[str, tuple[int, float]] = {}
    for topic, partitions in analysis.by_topic().items():
        limits = analysis.slo.of(topic)
        observed = sum(partition.sli.observed_ms for partition in partitions)
        alone = sum(partition.sli.one_failure_from_loss_ms for partition in partitions)
        stall = sum(
            interval.duration_ms
            for partition in partitions
            for interval in partition.intervals
            if interval.kind is FROM_STALL and not interval.planned
        )
        share = stall / observed if observed else 0.0
        is_alone = alone > 1000 * limits.one_failure_from_loss_seconds
        if is_alone or share > limits.one_failure_from_stall:
            violated[topic] = (alone if is_alone else 0, share)
        alone_ms += alone
        stall_worst = max(stall_worst, share)
    reported = [
        finding(
            RULE,
            Severity.MAJOR,
            incident.about(),
            f"{plural(len(incident.partitions), 'partition')} with one replica in sync for"
            f" {duration(incident.lost_ms(FROM_LOSS))} of partition-time in all",
            cause=incident.intervals[0].cause,
            remedy="raise the replication factor, or restart fewer brokers at the same time",
        )
        for incident in incidents(analysis, FROM_LOSS)
    ]
    return RuleEvaluation(
        RuleResult(
            RULE,
            TITLE,
            Outcome.VIOLATED if violated else Outcome.KEPT,
            objective,
            f"{duration(alone_ms)} with one replica in sync; at min.insync.replicas"
            f" {percent(stall_worst)} of the worst topic's time",
            stall_worst,
            goal.one_failure_from_stall,
            max(violated, key=lambda topic: violated[topic], default=""),
        ),
        tuple(reported),
    )
