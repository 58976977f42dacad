"""R2: time without a leader or below min.insync.replicas counts, planned or not."""

from tidemark_audit.results import IntervalKind, Outcome, Severity, TopicPartition
from tidemark_audit.rules.r2_writable import evaluate
from tidemark_audit.slo import Slo

from tests.support.audit_facts import (
    HOUR_MS,
    audit_analysis,
    interval,
    partition_facts,
    sli_row,
)


def test_an_under_replicated_partition_is_still_writable() -> None:
    facts = partition_facts(
        sli=sli_row(degraded_unplanned_ms=HOUR_MS // 2),
        intervals=[interval(IntervalKind.UNDER_REPLICATED, 0, HOUR_MS // 2)],
    )
    found = evaluate(audit_analysis(facts))
    assert (found.result.outcome, found.result.value, found.findings) == (Outcome.KEPT, 1.0, ())


def test_offline_time_and_time_below_the_minimum_add_up() -> None:
    facts = partition_facts(
        sli=sli_row(under_min_isr_ms=20_000, offline_ms=16_000),
        intervals=[
            interval(IntervalKind.UNDER_MIN_ISR, 0, 20_000),
            interval(IntervalKind.OFFLINE, 20_000, 36_000),
        ],
    )
    found = evaluate(audit_analysis(facts))
    assert (found.result.outcome, found.result.value) == (Outcome.VIOLATED, 0.99)
    (finding,) = found.findings
    assert finding.severity is Severity.MAJOR
    assert finding.sentence == (
        "1 partition without a leader or below min.insync.replicas, 36 s of partition-time in all"
    )


def test_each_topic_has_its_own_objective() -> None:
    lax = TopicPartition("logs", 0)
    slo = Slo(topics=(("logs", {"writable": 0.9}),))
    strict, loose = sli_row(), sli_row("logs", under_min_isr_ms=HOUR_MS // 20)
    partitions = (partition_facts(sli=strict), partition_facts(lax, sli=loose))
    assert evaluate(audit_analysis(*partitions, slo=slo)).result.outcome is Outcome.KEPT
    result = evaluate(audit_analysis(*partitions)).result
    assert (result.outcome, result.worst) == (Outcome.VIOLATED, "logs")
    assert result.measured == "97.5 % (logs 95 %)"


def test_a_planned_stop_of_writes_is_a_minor_finding() -> None:
    facts = partition_facts(
        sli=sli_row(under_min_isr_ms=1000),
        intervals=[interval(IntervalKind.UNDER_MIN_ISR, HOUR_MS - 1000, HOUR_MS, planned=True)],
    )
    (finding,) = evaluate(audit_analysis(facts)).findings
    assert finding.severity is Severity.MINOR
    assert finding.sentence.endswith("; ongoing at the end of the window")
