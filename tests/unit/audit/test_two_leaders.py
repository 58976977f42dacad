"""Two brokers that both lead in one epoch: each pair, for as long as both were seen to."""

from pathlib import Path

from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition

ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
SECONDS = 1000


def checked_proposal(path: Path, export: Export) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def claiming(length_ms: int, claims: dict[str, set[int]]) -> Export:
    """Each broker leads in the given seconds; all are in one epoch."""
    export = Export(length_ms=length_ms)
    partition(export, without=frozenset({"replica_is_leader"}))
    brokers(export)
    for broker, seconds in claims.items():
        export.add(
            "replica_is_leader", lambda t, s=seconds: t // SECONDS in s, **ORDERS, broker=broker
        )
    return export


def reported(result: AuditResult) -> list[tuple[str, int, int]]:
    return [
        (each.sentence, each.start_ms // SECONDS, each.end_ms // SECONDS)
        for each in result.findings
        if "both leader" in each.sentence
    ]


def test_each_pair_is_told_with_the_time_that_they_share(tmp_path: Path) -> None:
    claims = {"1": set(range(20, 50)), "2": set(range(40, 70)), "3": {10, 11, *range(45, 48)}}
    assert reported(checked_proposal(tmp_path, claiming(100_000, claims))) == [
        ("brokers 1 and 2 were both leader in leader epoch 5", 40, 49),
        ("brokers 1 and 3 were both leader in leader epoch 5", 45, 47),
        ("brokers 2 and 3 were both leader in leader epoch 5", 45, 47),
    ]


def test_who_leads_one_after_the_other_is_none(tmp_path: Path) -> None:
    claims = {"1": {*range(20, 40), *range(60, 80)}, "2": set(range(40, 60)), "3": set[int]()}
    assert reported(checked_proposal(tmp_path, claiming(100_000, claims))) == []
