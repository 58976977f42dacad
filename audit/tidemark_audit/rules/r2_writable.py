"""R2: partitions have a leader and min.insync.replicas in sync, so acks=all is answered."""

from tidemark_audit.results import Finding, IntervalKind, Severity
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
from tidemark_audit.rules.incidents import Incident, incidents, still

RULE = "R2"
TITLE = "writable"
NEEDS = (
    "partition_replicas", "partition_in_sync_replicas", "partition_min_in_sync_replicas",
)  # fmt: skip
NOT_WRITABLE = (IntervalKind.UNDER_MIN_ISR, IntervalKind.OFFLINE)


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    objective = f">= {percent(analysis.slo.objectives.writable)} of observed partition-time"
    if missing := analysis.missing(NEEDS):
        return not_evaluated(RULE, TITLE, objective, missing)
    result = topic_slo_evaluation(
        RULE,
        TITLE,
        objective,
        shares(
            analysis,
            lambda row: row.observed_ms - row.under_min_isr_ms - row.offline_ms,
            lambda row: row.observed_ms,
            lambda goal: goal.writable,
        ),
    )
    reported = [
        _finding(analysis, incident)
        for incident in incidents(analysis)
        if any(interval.kind in NOT_WRITABLE for interval in incident.intervals)
    ]
    return RuleEvaluation(result, tuple(reported))


def _finding(analysis: AuditAnalysis, incident: Incident) -> Finding:
    bad = [interval for interval in incident.intervals if interval.kind in NOT_WRITABLE]
    offline = any(interval.kind is IntervalKind.OFFLINE for interval in bad)
    where = plural(len({interval.partition for interval in bad}), "partition")
    state = f"{'without a leader or ' if offline else ''}below min.insync.replicas"
    return make_finding(
        RULE,
        Severity.MINOR if incident.planned else Severity.MAJOR,
        incident.about(),
        f"{where} {state}, {duration(incident.lost_ms(NOT_WRITABLE))} of partition-time in all"
        + still(bad, analysis),
        cause=bad[0].cause,
        remedy="start the missing brokers again (`tidemark status` and their logs); if one missing"
        " broker causes this, raise the replication factor or lower min.insync.replicas",
    )
