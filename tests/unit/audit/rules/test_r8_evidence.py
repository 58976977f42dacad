"""R8: gaps, clocks and samples that contradict are told, and only grave ones violate."""

from dataclasses import replace

import pytest
from tidemark_audit.results import Outcome, Severity, TopicPartition
from tidemark_audit.rules.evaluation import BadSamples, ClockSkew
from tidemark_audit.rules.r8_evidence import evaluate

from tests.support.audit_facts import (
    ALL_FAMILIES,
    HOUR_MS,
    audit_analysis,
    partition_facts,
    sli_row,
)


def test_a_topic_may_miss_one_hundredth_of_its_time() -> None:
    missed_ms = HOUR_MS // 100
    for unobserved_ms, outcome in ((missed_ms, Outcome.KEPT), (missed_ms + 1, Outcome.VIOLATED)):
        facts = partition_facts(sli=sli_row(unobserved_ms=unobserved_ms))
        assert evaluate(audit_analysis(facts)).result.outcome is outcome


def test_a_partition_that_was_never_seen_is_told_though_its_topic_is_covered() -> None:
    seen = [partition_facts(TopicPartition("orders", number)) for number in range(199)]
    unseen = TopicPartition("orders", 199)
    found = evaluate(
        audit_analysis(*seen, partition_facts(unseen, sli=sli_row(unobserved_ms=HOUR_MS)))
    )
    assert found.result.outcome is Outcome.VIOLATED
    assert [each.subject for each in found.findings] == ["orders-199 unobserved"]


@pytest.mark.parametrize(
    ("bad", "severity", "outcome"),
    [
        (BadSamples("broker_epoch", 1, 0, 0), Severity.MAJOR, Outcome.VIOLATED),
        (BadSamples("broker_epoch", 0, 1, 0), Severity.MAJOR, Outcome.VIOLATED),
        (BadSamples("broker_epoch", 0, 0, 1), Severity.MINOR, Outcome.KEPT),
    ],
)
def test_samples_out_of_order_alone_are_minor(
    bad: BadSamples, severity: Severity, outcome: Outcome
) -> None:
    found = evaluate(replace(audit_analysis(partition_facts()), bad_samples=(bad,)))
    assert ([each.severity for each in found.findings], found.result.outcome) == (
        [severity],
        outcome,
    )


def test_a_clock_may_be_off_by_its_objective() -> None:
    skews = (ClockSkew("", "1", 1.0), ClockSkew("", "2", 1.01))
    found = evaluate(replace(audit_analysis(partition_facts()), clock_skew=skews))
    assert [(each.subject, each.sentence) for each in found.findings] == [
        ("broker 2", "its clock is 1.01 s off")
    ]


def test_a_missing_input_is_not_evaluated_and_a_grave_finding_outranks_it() -> None:
    families = ALL_FAMILIES - {"broker_clock_skew_seconds"}
    result = evaluate(audit_analysis(partition_facts(), families=families)).result
    assert result.outcome is Outcome.NOT_EVALUATED
    assert result.measured == "coverage 100 %; no samples of tidemark_broker_clock_skew_seconds"
    half = partition_facts(sli=sli_row(unobserved_ms=HOUR_MS // 2))
    result = evaluate(audit_analysis(half, families=families)).result
    assert result.outcome is Outcome.VIOLATED
    assert evaluate(audit_analysis()).result.outcome is Outcome.NOT_EVALUATED


@pytest.mark.parametrize(
    ("ended", "living", "is_reported"),
    [
        (("a", "b"), ("c",), True),
        (("a", "b"), ("c", "d"), False),  # no more than half
        (("a", "a"), ("c",), False),  # one topic that was deleted
        (("a", "b"), (), True),  # everything
    ],
)
def test_most_partitions_of_several_topics_that_end_together_are_half_an_export(
    ended: tuple[str, ...], living: tuple[str, ...], is_reported: bool
) -> None:
    lives = [(topic, HOUR_MS // 2) for topic in ended] + [(topic, HOUR_MS) for topic in living]
    facts = [
        partition_facts(TopicPartition(topic, number, f"id-{topic}"), life_ms=(0, end_ms))
        for number, (topic, end_ms) in enumerate(lives)
    ]
    found = evaluate(audit_analysis(*facts)).findings
    assert [each.subject for each in found] == ["series end"] * is_reported
