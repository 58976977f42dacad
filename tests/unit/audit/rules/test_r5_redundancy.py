"""R5: time with one replica in sync, and time at min.insync.replicas."""

from dataclasses import replace

from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.results import IntervalKind, Outcome, TopicPartition
from tidemark_audit.rules.r5_redundancy import evaluate
from tidemark_audit.slo import Slo

from tests.support.audit_facts import (
    HOUR_MS,
    ORDERS,
    audit_analysis,
    interval,
    partition_facts,
    sli_row,
)

PAYMENTS = TopicPartition("payments", 0)


def alone(ms: int, of: TopicPartition = ORDERS) -> PartitionAnalysis:
    return partition_facts(
        of,
        sli=replace(sli_row(), one_failure_from_loss_ms=ms),
        intervals=[interval(IntervalKind.ONE_FAILURE_FROM_LOSS, 0, ms, of=of)],
    )


def at_minimum(ms: int, of: TopicPartition = ORDERS, *, planned: bool = False) -> PartitionAnalysis:
    kind = IntervalKind.ONE_FAILURE_FROM_STALL
    return partition_facts(of, intervals=[interval(kind, 0, ms, of=of, planned=planned)])


def test_any_time_with_one_replica_in_sync_violates_the_default() -> None:
    found = evaluate(audit_analysis(alone(1)))
    assert (found.result.outcome, found.result.worst) == (Outcome.VIOLATED, "orders")


def test_an_incident_within_the_objective_is_reported_and_kept() -> None:
    """As those of R1 and R2: `--fail-on` goes by findings, whatever budget is left."""
    slo = Slo(replace(Slo().objectives, one_failure_from_loss_seconds=10.0))
    found = evaluate(audit_analysis(alone(10_000), slo=slo))
    assert found.result.outcome is Outcome.KEPT
    assert [each.sentence for each in found.findings] == [
        "1 partition with one replica in sync for 10 s of partition-time in all"
    ]
    assert evaluate(audit_analysis(alone(10_001), slo=slo)).result.outcome is Outcome.VIOLATED


def test_time_at_the_minimum_is_a_share_and_planned_time_is_left_out() -> None:
    limit_ms = HOUR_MS // 1000
    assert evaluate(audit_analysis(at_minimum(limit_ms))).result.outcome is Outcome.KEPT
    assert evaluate(audit_analysis(at_minimum(limit_ms + 1))).result.outcome is Outcome.VIOLATED
    planned = evaluate(audit_analysis(at_minimum(HOUR_MS, planned=True))).result
    assert (planned.outcome, planned.value) == (Outcome.KEPT, 0.0)


def test_the_worst_topic_is_the_one_with_the_largest_share() -> None:
    shares = (at_minimum(HOUR_MS // 100), at_minimum(HOUR_MS // 2, PAYMENTS))
    result = evaluate(audit_analysis(*shares)).result
    assert (result.worst, result.value) == ("payments", 0.5)


def test_a_topic_close_to_loss_is_worse_than_one_close_to_a_stall() -> None:
    result = evaluate(audit_analysis(at_minimum(HOUR_MS // 2), alone(10, PAYMENTS))).result
    assert result.worst == "payments"
