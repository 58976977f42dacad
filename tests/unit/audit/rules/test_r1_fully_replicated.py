"""R1: time that is not fully replicated counts, planned absences by a limit of their own."""

from tidemark_audit.results import IntervalKind, Outcome, Severity, TopicPartition
from tidemark_audit.rules.r1_fully_replicated import evaluate

from tests.support.audit_facts import (
    ALL_FAMILIES,
    HOUR_MS,
    audit_analysis,
    interval,
    partition_facts,
    sli_row,
)


def test_a_planned_absence_is_left_out_of_the_first_share_only() -> None:
    row = sli_row(degraded_planned_ms=10_000)
    result = evaluate(audit_analysis(partition_facts(sli=row))).result
    assert (result.outcome, result.value) == (Outcome.KEPT, 1.0)
    assert result.measured == "100 %, with planned absences 99.72 %"


def test_too_much_planned_absence_violates_the_second_share() -> None:
    row = sli_row(degraded_planned_ms=HOUR_MS // 100)
    result = evaluate(audit_analysis(partition_facts(sli=row))).result
    assert (result.outcome, result.value, result.worst) == (Outcome.VIOLATED, 1.0, "orders")


def test_a_window_that_is_one_planned_absence_is_judged_by_the_second_share() -> None:
    row = sli_row(degraded_planned_ms=HOUR_MS)
    result = evaluate(audit_analysis(partition_facts(sli=row))).result
    assert (result.outcome, result.worst) == (Outcome.VIOLATED, "orders")
    assert result.measured == "no time without a planned absence, with planned absences 0 %"


def test_a_window_without_observed_time_is_not_evaluated() -> None:
    row = sli_row(unobserved_ms=HOUR_MS)
    result = evaluate(audit_analysis(partition_facts(sli=row))).result
    assert (result.outcome, result.measured) == (Outcome.NOT_EVALUATED, "no samples")


def test_a_missing_family_is_named() -> None:
    families = ALL_FAMILIES - {"partition_replicas"}
    result = evaluate(audit_analysis(partition_facts(), families=families)).result
    assert result.outcome is Outcome.NOT_EVALUATED
    assert result.missing_families == ("tidemark_partition_replicas",)


def test_incidents_below_the_minimum_are_left_to_r2() -> None:
    payments = TopicPartition("payments", 0)
    found = evaluate(
        audit_analysis(
            partition_facts(
                intervals=[interval(IntervalKind.UNDER_REPLICATED, 0, 20_000, planned=True)]
            ),
            partition_facts(
                payments,
                intervals=[
                    interval(
                        IntervalKind.UNDER_MIN_ISR, 900_000, 905_000, of=payments, brokers=("2",)
                    )
                ],
            ),
        )
    ).findings
    assert [(each.subject, each.severity, each.planned) for each in found] == [
        ("broker 3", Severity.INFO, True)
    ]
    assert found[0].sentence == "1 partition under-replicated, 20 s of partition-time in all"
