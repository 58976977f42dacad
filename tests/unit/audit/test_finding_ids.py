"""A finding has one id in every run that finds it, and no other finding has it."""

from pathlib import Path

from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Severity, TopicPartition
from tidemark_audit.rules.evaluation import Subject, finding
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.support.audit_exports import Export, brokers, partition


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
