"""R3: the longest unplanned stretch of a partition decides, by the limits of its topic."""

from tidemark_audit.results import Interval, IntervalKind, Outcome, TopicPartition
from tidemark_audit.rules.r3_longest_interval import evaluate
from tidemark_audit.slo import Slo

from tests.support.audit_facts import ORDERS, audit_analysis, interval, partition_facts

UNDER_MIN_ISR, OFFLINE = IntervalKind.UNDER_MIN_ISR, IntervalKind.OFFLINE
PAYMENTS = TopicPartition("payments", 0)


def below(seconds: int, *, of: TopicPartition = ORDERS, planned: bool = False) -> Interval:
    return interval(UNDER_MIN_ISR, 0, 1000 * seconds, of=of, planned=planned)


def test_a_stretch_as_long_as_its_limit_is_kept_and_a_longer_one_is_not() -> None:
    found = evaluate(audit_analysis(partition_facts(intervals=[below(60)])))
    assert (found.result.outcome, found.result.worst, found.findings) == (Outcome.KEPT, "", ())
    longer = interval(UNDER_MIN_ISR, 0, 60_001)
    found = evaluate(audit_analysis(partition_facts(intervals=[longer])))
    assert (found.result.outcome, found.result.worst) == (Outcome.VIOLATED, "orders-0")
    assert found.result.measured.startswith("61 s below min.insync.replicas")


def test_neighbouring_stretches_of_one_partition_are_one_outage() -> None:
    parts = [interval(OFFLINE, 0, 40_000), interval(UNDER_MIN_ISR, 40_000, 80_000)]
    (finding,) = evaluate(audit_analysis(partition_facts(intervals=parts))).findings
    assert finding.sentence == (
        "1 partition below min.insync.replicas for too long; the longest, orders-0, for 80 s"
    )


def test_what_lies_before_the_window_counts() -> None:
    late = interval(UNDER_MIN_ISR, 0, 40_000, earlier_ms=40_000)
    (finding,) = evaluate(audit_analysis(partition_facts(intervals=[late]))).findings
    assert (finding.start_ms, finding.end_ms) == (-40_000, 40_000)


def test_planned_stretches_are_left_out() -> None:
    planned = partition_facts(intervals=[below(3000, planned=True)])
    result = evaluate(audit_analysis(planned)).result
    assert (result.outcome, result.measured) == (
        Outcome.KEPT,
        "0 s below min.insync.replicas, 0 s under-replicated",
    )
    short = partition_facts(PAYMENTS, intervals=[below(90, of=PAYMENTS)])
    result = evaluate(audit_analysis(planned, short)).result
    assert (result.outcome, result.worst) == (Outcome.VIOLATED, "payments-0")


def test_the_worst_is_the_longest_of_those_that_exceed_their_limit() -> None:
    lax = {"longest_under_min_isr_seconds": 9e9, "longest_under_replicated_seconds": 9e9}
    found = evaluate(
        audit_analysis(
            partition_facts(intervals=[below(3000)]),
            partition_facts(PAYMENTS, intervals=[below(90, of=PAYMENTS)]),
            slo=Slo(topics=(("orders", lax),)),
        )
    )
    assert found.result.worst == "payments-0"
    assert [each.partitions for each in found.findings] == [(PAYMENTS,)]


def test_topics_of_one_name_in_two_clusters_are_apart() -> None:
    found = evaluate(
        audit_analysis(
            partition_facts(cluster="east", intervals=[below(5)]),
            partition_facts(cluster="west", intervals=[below(90)]),
        )
    )
    assert [each.subject for each in found.findings] == ["west: broker 3"]
