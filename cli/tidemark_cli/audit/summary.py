"""Summarise an audit for the operator."""

from collections import Counter
from typing import TYPE_CHECKING

from tidemark_protocol.audit_summary import AuditSummary, Incident, RuleSummary

if TYPE_CHECKING:
    from tidemark_audit.results import AuditResult, RuleResult

GRAVITY = ("critical", "major", "minor", "info")


def no_source(sentence: str) -> AuditSummary:
    """Return the summary of a run that could not read its source."""
    return AuditSummary(
        verdict="NO-SOURCE",
        sentence=sentence,
        window_start_ms=0,
        window_end_ms=0,
        coverage=0.0,
        lost_records=0,
        findings={},
    )


def summary_of(result: "AuditResult") -> AuditSummary:
    from tidemark_audit.rules.grouping import leads
    from tidemark_audit.rules.r6_durability import lost_records

    gravest_first = leads(result.findings)  # one of each incident
    counted = Counter(found.severity.value for found in gravest_first)
    observed = sum(each.observed_ms for each in result.coverage)
    requested = sum(each.window_ms for each in result.coverage)
    return AuditSummary(
        verdict=result.verdict.value,
        sentence=result.sentence,
        window_start_ms=result.window_start_ms,
        window_end_ms=result.window_end_ms,
        coverage=observed / requested if requested else 0.0,
        lost_records=lost_records(result.loss_evidence),
        findings={name: counted[name] for name in GRAVITY if counted[name]},
        rules=tuple(map(_rule, result.rules)),
        incidents=tuple(
            Incident(
                id=found.id,
                rule=found.rule,
                severity=found.severity.value,
                subject=found.subject,
                start_ms=found.start_ms,
                sentence=found.sentence,
            )
            for found in gravest_first
        ),
    )


def _rule(rule: "RuleResult") -> RuleSummary:
    return RuleSummary(
        rule=rule.rule,
        outcome=rule.outcome.value,
        value=rule.value,
        limit=rule.limit,
        budget_left=_budget_left(rule),
    )


def _budget_left(rule: "RuleResult") -> float | None:
    """Return the error budget that is left, for rules that set a minimum share of time.

    A budget that is overdrawn is negative.
    """
    if rule.value is None or rule.limit is None or not rule.objective.startswith(">="):
        return None
    allowed = 1 - rule.limit
    return None if allowed <= 0 else 1 - (1 - rule.value) / allowed
