"""R1 to R8: facts and objectives in, an outcome and findings out (docs/user/audit-rules.md)."""

from tidemark_audit.rules import (
    r1_fully_replicated,
    r2_writable,
    r3_longest_interval,
    r4_follower_lag,
    r5_redundancy,
    r6_durability,
    r7_churn,
    r8_evidence,
)
from tidemark_audit.rules.evaluation import AuditAnalysis, RuleEvaluation

RULES = (
    r1_fully_replicated,
    r2_writable,
    r3_longest_interval,
    r4_follower_lag,
    r5_redundancy,
    r6_durability,
    r7_churn,
    r8_evidence,
)


def evaluate(analysis: AuditAnalysis) -> tuple[RuleEvaluation, ...]:
    """Evaluate every rule, in order."""
    return tuple(rule.evaluate(analysis) for rule in RULES)
