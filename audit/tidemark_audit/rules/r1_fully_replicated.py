"""R1: partitions have all their replicas in sync; planned absences are shown, not counted.

R1' counts the planned ones too, against a lower promise.
"""

from tidemark_audit.results import Finding, IntervalKind, Outcome, RuleResult, Severity
from tidemark_audit.rules.evaluation import (
    AuditAnalysis,
    RuleEvaluation,
    duration,
    not_evaluated,
    percent,
    plural,
    shares,
    topic_slo_evaluation,
)
from tidemark_audit.rules.evaluation import finding as make_finding
from tidemark_audit.rules.incidents import BAD, Incident, incidents, still

RULE = "R1"
TITLE = "fully replicated"
NEEDS = ("partition_replicas", "partition_in_sync_replicas")


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    limits = analysis.slo.objectives
    objective = (
        f">= {percent(limits.fully_replicated)} of observed partition-time,"
        f" with planned absences >= {percent(limits.fully_replicated_with_planned)}"
    )
    if missing := analysis.missing(NEEDS):
        return not_evaluated(RULE, TITLE, objective, missing)
    unplanned = topic_slo_evaluation(
        RULE,
        TITLE,
        objective,
        shares(
            analysis,
            lambda row: row.healthy_ms,
            lambda row: row.observed_ms - row.degraded_planned_ms,
            lambda goal: goal.fully_replicated,
        ),
    )
    with_planned = topic_slo_evaluation(
        RULE,
        TITLE,
        objective,
        shares(
            analysis,
            lambda row: row.healthy_ms,
            lambda row: row.observed_ms,
            lambda goal: goal.fully_replicated_with_planned,
        ),
    )
    # An incident below min.insync.replicas is R2's to tell.
    reported = [_finding(analysis, each) for each in incidents(analysis) if _is_ours(each)]
    return RuleEvaluation(_both(unplanned, with_planned), tuple(reported))


def _both(unplanned: RuleResult, with_planned: RuleResult) -> RuleResult:
    if with_planned.outcome is Outcome.NOT_EVALUATED:
        return with_planned  # nothing was observed
    all_planned = unplanned.outcome is Outcome.NOT_EVALUATED
    measured = "no time without a planned absence" if all_planned else unplanned.measured
    decides = unplanned
    if all_planned or (
        unplanned.outcome is Outcome.KEPT and with_planned.outcome is Outcome.VIOLATED
    ):
        decides = with_planned
    return RuleResult(
        RULE,
        TITLE,
        decides.outcome,
        unplanned.objective,
        f"{measured}, with planned absences {with_planned.measured}",
        unplanned.value,
        unplanned.limit,
        decides.worst,
    )


def _is_ours(incident: Incident) -> bool:
    return all(each.kind is IntervalKind.UNDER_REPLICATED for each in incident.intervals)


def _finding(analysis: AuditAnalysis, incident: Incident) -> Finding:
    lost = duration(incident.lost_ms(BAD))
    where = plural(len(incident.partitions), "partition")
    return make_finding(
        RULE,
        Severity.INFO if incident.planned else Severity.MINOR,
        incident.about(),
        f"{where} under-replicated, {lost} of partition-time in all"
        + still(incident.intervals, analysis),
        cause=incident.intervals[0].cause,
        remedy="no action: it was requested"
        if incident.planned
        else (
            "read the broker's log and Kubernetes events of this time to see whether it"
            " stopped, stalled or lost its session; `tidemark status` shows brokers that are"
            " still missing"
        ),
    )
