"""Watermarks that go back, whatever lies between the samples that show it."""

from collections.abc import Callable
from pathlib import Path

from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, LossKind, Verdict
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition

STEP_MS = 15_000
STALE_AT_MS = 600_000
ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def one_failed_scrape(value: Callable[[int], float]) -> Export:
    """Of the leader's watermark, with the stale marker (NaN) that Prometheus then writes."""
    export = Export(length_ms=1_200_000, step_ms=STEP_MS)
    partition(export, without=frozenset({"replica_high_watermark_offset"}))
    brokers(export)
    export.add(
        "replica_high_watermark_offset",
        lambda t: float("nan") if t == STALE_AT_MS else value(t),
        **ORDERS, broker="1",
    )  # fmt: skip
    return export


def test_a_watermark_that_goes_back_over_a_failed_scrape_is_a_loss(tmp_path: Path) -> None:
    result = checked_proposal(
        one_failed_scrape(lambda t: 1000 if t < STALE_AT_MS else 600), tmp_path
    )
    assert result.verdict is Verdict.LOSS
    assert [(each.kind, each.records) for each in result.loss_evidence] == [
        (LossKind.HIGH_WATERMARK_REGRESS, 400)
    ]


def test_a_failed_scrape_alone_is_none(tmp_path: Path) -> None:
    assert checked_proposal(one_failed_scrape(lambda t: t // 10), tmp_path).loss_evidence == ()


def handed_over(new_end: Callable[[int], int]) -> Export:
    """From broker 1 to 2 in a new epoch, whose first offset nobody says; 1000 were committed."""
    export = Export(length_ms=1_200_000, step_ms=STEP_MS)
    partition(
        export,
        leader=lambda t: 1 if t < STALE_AT_MS else 2,
        epoch=lambda t: 5 if t < STALE_AT_MS else 6,
        end_offset=lambda t: 1000 if t < STALE_AT_MS else new_end(t),
    )
    brokers(export)
    return export


def test_a_leader_whose_log_ends_below_what_was_committed_lacks_it(tmp_path: Path) -> None:
    result = checked_proposal(handed_over(lambda t: 700), tmp_path)
    assert [(each.kind, each.records) for each in result.loss_evidence] == [
        (LossKind.LEADER_BELOW_HIGH_WATERMARK, 300)
    ]


def test_a_leader_whose_log_goes_on_lacks_nothing(tmp_path: Path) -> None:
    result = checked_proposal(handed_over(lambda t: 1000 + (t - STALE_AT_MS) // 100), tmp_path)
    assert result.loss_evidence == ()
