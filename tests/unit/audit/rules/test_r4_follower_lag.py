"""R4: a follower is too far behind by its age, or by its records."""

import math

import pytest
from tidemark_audit.results import FollowerLag, Outcome, TopicPartition
from tidemark_audit.rules.r4_follower_lag import evaluate

from tests.support.audit_facts import ORDERS, audit_analysis, partition_facts

PAYMENTS = TopicPartition("payments", 0)


def lag(
    follower: str, *, age: float | None = 0.1, records: float = 0.0, of: TopicPartition = ORDERS
) -> FollowerLag:
    return FollowerLag(of, follower, 10, 0, age, age, age, age, *[records] * 4)


@pytest.mark.parametrize(
    ("age", "outcome", "measured"),
    [
        (10.0, Outcome.KEPT, "worst follower: p99 10 s"),
        (10.1, Outcome.VIOLATED, "worst follower: p99 of caught-up age 10.1 s, limit 10 s"),
        (
            math.inf,
            Outcome.VIOLATED,
            "worst follower: p99 of caught-up age never caught up, limit 10 s",
        ),
        (None, Outcome.KEPT, "worst follower: p99 unknown"),
    ],
)
def test_an_age_may_reach_a_third_of_the_topics_limit(
    age: float | None, outcome: Outcome, measured: str
) -> None:
    result = evaluate(audit_analysis(partition_facts(follower_lag=[lag("2", age=age)]))).result
    assert (result.outcome, result.measured) == (outcome, measured)


@pytest.mark.parametrize(("largest_append", "limit"), [(1.0, 100), (80.0, 160)])
def test_records_may_reach_two_appends_or_the_floor(largest_append: float, limit: int) -> None:
    for records, outcome in ((limit, Outcome.KEPT), (limit + 1, Outcome.VIOLATED)):
        facts = partition_facts(
            follower_lag=[lag("2", records=records)], largest_append_records=largest_append
        )
        assert evaluate(audit_analysis(facts)).result.outcome is outcome


def test_the_worst_follower_is_one_that_exceeds_a_limit() -> None:
    """Another one is older, within its limit."""
    found = evaluate(
        audit_analysis(
            partition_facts(follower_lag=[lag("1", age=1.0)]),
            partition_facts(PAYMENTS, follower_lag=[lag("2", records=5000.0, of=PAYMENTS)]),
        )
    )
    assert found.result.worst == "payments-0 follower 2"
    assert found.result.measured == "worst follower: p99 of lag 5000 records, limit 100"
    assert [each.subject for each in found.findings] == ["follower 2"]


def test_a_follower_of_many_partitions_is_one_finding_that_names_the_worst() -> None:
    (finding,) = evaluate(
        audit_analysis(
            partition_facts(follower_lag=[lag("2", age=20.0)]),
            partition_facts(PAYMENTS, follower_lag=[lag("2", age=25.0, of=PAYMENTS)]),
        )
    ).findings
    assert finding.partitions == (ORDERS, PAYMENTS)
    assert finding.sentence.startswith("behind in 2 partitions; the worst, payments-0: p99")


def test_no_follower_at_all_is_not_evaluated() -> None:
    assert evaluate(audit_analysis(partition_facts())).result.outcome is Outcome.NOT_EVALUATED


def test_an_unknown_limit_of_the_topic_judges_no_age() -> None:
    facts = partition_facts(follower_lag=[lag("2", age=1000.0)], lag_max_seconds=None)
    result = evaluate(audit_analysis(facts)).result
    assert (result.outcome, result.limit) == (Outcome.KEPT, None)
