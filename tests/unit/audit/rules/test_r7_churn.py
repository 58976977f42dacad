"""R7: flaps and leader moves, seen or counted, of one partition."""

import pytest
from tidemark_audit.analysis.changes import Change, CounterChange
from tidemark_audit.results import Election, IntervalKind, IsrChange, Outcome, TopicPartition
from tidemark_audit.rules.r7_churn import FLAP_MS, evaluate

from tests.support.audit_facts import (
    HOUR_MS,
    ORDERS,
    audit_analysis,
    interval,
    partition_facts,
)


def elections(by: int, at_ms: int = 20, *, planned: bool = False) -> CounterChange:
    return CounterChange(Change.ELECTION, 10, at_ms, by, planned)


def isr(at_ms: int, before: int, after: int, reason: str = "lag") -> IsrChange:
    return IsrChange(ORDERS, at_ms - 1, at_ms, before, after, reason)


@pytest.mark.parametrize(
    ("days", "moves", "outcome"),
    [
        (0.25, 2, Outcome.KEPT),  # a part of a day has the budget of one
        (0.25, 3, Outcome.VIOLATED),
        (2, 4, Outcome.KEPT),
        (2, 5, Outcome.VIOLATED),
    ],
)
def test_the_budget_is_that_of_a_day_at_least(days: float, moves: int, outcome: Outcome) -> None:
    facts = partition_facts(counted=[elections(moves)])
    window = round(days * 24 * HOUR_MS)
    assert evaluate(audit_analysis(facts, window_end_ms=window)).result.outcome is outcome


def test_the_greater_of_seen_and_counted_moves_counts() -> None:
    seen = [Election(ORDERS, 0, at, "clean", "1", "2", at) for at in (1, 2, 3)]
    seen.append(Election(ORDERS, 0, 4, "planned", "2", "1", 4))
    facts = partition_facts(elections=seen, counted=[elections(1), elections(9, planned=True)])
    result = evaluate(audit_analysis(facts)).result
    assert result.measured == "at most 0 flaps and 3 leader moves of a partition"


def test_moves_of_a_planned_absence_are_free_give_or_take_two_scrapes() -> None:
    absence = interval(IntervalKind.UNDER_REPLICATED, 10_000, 20_000, planned=True)
    free = partition_facts(intervals=[absence], counted=[elections(9, 22_500)])
    assert evaluate(audit_analysis(free)).result.value == 0
    late = partition_facts(intervals=[absence], counted=[elections(9, 22_501)])
    assert evaluate(audit_analysis(late)).result.value == 9


def test_a_flap_is_a_shrink_and_an_expand_within_five_minutes() -> None:
    quick = [isr(1000, 3, 2), isr(1000 + FLAP_MS, 2, 3)]
    slow = [isr(1000, 3, 2), isr(1001 + FLAP_MS, 2, 3)]
    on_purpose = [isr(1000, 3, 2, "planned"), isr(2000, 2, 3)]
    measured = [
        evaluate(audit_analysis(partition_facts(isr_changes=changes))).result.value
        for changes in (quick, slow, on_purpose)
    ]
    assert measured == [1, 0, 0]


def test_a_counted_expand_belongs_to_the_replica_that_is_out_for_longest() -> None:
    before = interval(IntervalKind.UNDER_REPLICATED, 0, 5000)  # one replica is out already
    changes = [
        CounterChange(Change.SHRINK, 1000, 2000, 1),
        CounterChange(Change.EXPAND, 2000, 3000, 1),
    ]
    alone = evaluate(audit_analysis(partition_facts(counted=changes))).result
    behind = evaluate(audit_analysis(partition_facts(intervals=[before], counted=changes))).result
    assert (alone.value, behind.value) == (1, 0)


def test_the_worst_partition_is_named_in_the_result_as_in_the_finding() -> None:
    few = partition_facts(TopicPartition("orders", 0), counted=[elections(3)])
    many = partition_facts(TopicPartition("orders", 1), counted=[elections(50)])
    found = evaluate(audit_analysis(few, many))
    assert found.result.worst == "orders-1"
    (finding,) = found.findings
    assert finding.sentence == (
        "2 partitions, the worst orders-1: up to 50 unplanned leader moves in 60 min"
    )


def test_each_cluster_has_its_own_finding_and_the_worst_is_of_all() -> None:
    west = partition_facts(TopicPartition("a", 0), cluster="west", counted=[elections(50)])
    east = partition_facts(TopicPartition("b", 0), cluster="east", counted=[elections(3)])
    found = evaluate(audit_analysis(west, east))
    assert [each.subject for each in found.findings] == ["east: churn", "west: churn"]
    assert found.result.worst == "a-0"
