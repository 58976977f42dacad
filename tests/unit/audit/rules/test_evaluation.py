"""What rules share: ids of findings, shares by topic, and figures in words."""

from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_audit.analysis.reporting_coverage import OPERATOR, Reporter
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Outcome, Severity, TopicPartition
from tidemark_audit.rules.evaluation import (
    Subject,
    TopicSlo,
    at_most,
    duration,
    finding,
    percent,
    plural,
    shares,
    topic_slo_evaluation,
    two_digits,
)
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.support.audit_exports import Export, brokers, partition
from tests.support.audit_facts import (
    ALL_FAMILIES,
    HOUR_MS,
    audit_analysis,
    partition_facts,
    sli_row,
)


def checked_proposal(path: Path, window: Window) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(path)]), window=window)


def test_what_lasts_has_one_id_in_two_windows(tmp_path: Path) -> None:
    """A counter up since long ago (R6), a follower always behind (R4), a clock that is off (R8)."""
    export = Export(length_ms=1_800_000, step_ms=5000)
    families = {"replica_committed_truncated_records_total", "follower_caught_up_age_seconds"}
    partition(export, without=frozenset(families))
    brokers(export, skew=lambda b, t: 5.0 if b == 2 else 0.0)
    about = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
    for broker in ("1", "2", "3"):
        export.add("replica_committed_truncated_records_total", 9, **about, broker=broker)
    for follower in ("2", "3"):
        export.add("follower_caught_up_age_seconds", 8.0, **about, broker="1", follower=follower)
    path = export.write(tmp_path / "export.jsonl")
    first = checked_proposal(path, Window(600_000, 1_200_000))
    second = checked_proposal(path, Window(900_000, 1_500_000))
    assert {each.rule for each in first.findings} == {"R4", "R6", "R8"}
    assert [each.id for each in first.findings] == [each.id for each in second.findings]


def test_a_topic_made_again_and_another_cluster_have_ids_of_their_own() -> None:
    def reported(topic_id: str, cluster: str) -> str:
        where = TopicPartition("orders", 0, topic_id)
        about = Subject("orders-0", 5, 6, (where,), cluster=cluster)
        return finding("R6", Severity.CRITICAL, about, "lost", cause="", remedy="").id

    ids = [reported("one", "a"), reported("two", "a"), reported("one", "b")]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (0.0, "0 %"),
        (0.5, "50 %"),
        (0.999, "99.9 %"),
        (0.998_999, "99.89 %"),  # rounded down: it misses 99.9 %
        (0.001_001, "0.11 %"),  # rounded up: it exceeds 0.1 %
        (0.999_999_4, "99.99994 %"),
    ],
)
def test_a_share_is_never_rounded_to_an_objective_that_it_misses(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("ms", "text", "rounded_up"),
    [
        (0, "0 s", "0 s"),
        (60_001, "60 s", "61 s"),
        (1040, "1 s", "1.1 s"),
        (119_999, "120 s", "120 s"),
        (120_000, "2 min", "2 min"),
        (7_199_000, "120 min", "120 min"),
        (7_200_000, "2 h", "2 h"),
    ],
)
def test_a_duration_has_two_digits_in_its_unit(ms: float, text: str, rounded_up: str) -> None:
    assert (duration(ms), at_most(ms)) == (text, rounded_up)


def test_small_numbers_keep_two_digits_and_large_ones_all_whole_ones() -> None:
    assert [two_digits(value) for value in (0.0123, 9.96, 12.4, 1234.0)] == [
        "0.012",
        "10",
        "12",
        "1234",
    ]
    assert (plural(1, "flap"), plural(0, "flap")) == ("1 flap", "0 flaps")


def test_topics_without_observed_time_have_no_share() -> None:
    unseen = TopicPartition("unseen", 0)
    found = shares(
        audit_analysis(
            partition_facts(sli=sli_row(unobserved_ms=HOUR_MS // 2)),
            partition_facts(unseen, sli=sli_row(unobserved_ms=HOUR_MS)),
        ),
        lambda row: row.healthy_ms,
        lambda row: row.observed_ms,
        lambda goal: goal.writable,
    )
    assert found == [TopicSlo("orders", HOUR_MS // 2, HOUR_MS // 2, 0.9999)]


def test_the_worst_topic_is_the_farthest_from_its_own_objective() -> None:
    found = [TopicSlo("lax", 80, 100, 0.5), TopicSlo("strict", 98, 100, 0.99)]
    result = topic_slo_evaluation("R2", "writable", "", found)
    assert (result.outcome, result.worst, result.limit) == (Outcome.VIOLATED, "strict", 0.99)
    assert (result.value, result.measured) == (0.89, "89 % (strict 98 %)")
    assert topic_slo_evaluation("R2", "writable", "", found[:1]).outcome is Outcome.KEPT
    assert topic_slo_evaluation("R2", "writable", "", []).outcome is Outcome.NOT_EVALUATED


def test_a_pool_is_named_only_where_its_cluster_has_several() -> None:
    places = audit_analysis(
        partition_facts(cluster="east", pool="a"),
        partition_facts(cluster="east", pool="b"),
        partition_facts(cluster="west", pool="a"),
        partition_facts(),
    ).places()
    assert sorted(places.values()) == ["", "east: a", "east: b", "west"]


def test_families_that_stand_for_another_are_inputs_too() -> None:
    """Kafka's two gauges tell on which side of min.insync.replicas a partition is."""
    needed = ("partition_min_in_sync_replicas",)
    without = ALL_FAMILIES - set(needed)
    assert audit_analysis(families=without).missing(needed) == ()
    without -= {"partition_at_min_isr"}
    assert audit_analysis(families=without).missing(needed) == (
        "tidemark_partition_min_in_sync_replicas",
    )


def test_an_exporter_is_unwitnessed_if_one_replica_of_it_was_never_seen() -> None:
    seen = Reporter("broker 1", HOUR_MS, HOUR_MS)
    silent = Reporter("broker 1", HOUR_MS, 0)
    operator = Reporter(OPERATOR, HOUR_MS, HOUR_MS)
    partitions = [replace(partition_facts(), witnesses=(seen, operator))] * 199
    assert audit_analysis(*partitions).unwitnessed() == []
    one_more = replace(partition_facts(), witnesses=(silent, operator))
    assert audit_analysis(*partitions, one_more).unwitnessed() == [
        ("broker 1", "its metrics cover 99.5 % of the time, none of 1 partition")
    ]
