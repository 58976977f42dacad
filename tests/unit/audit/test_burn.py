"""Burn rates: of the topic that burns the most, of what was observed of it."""

from pathlib import Path

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult
from tidemark_audit.slo import Slo
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition

HOUR_MS = 3_600_000
DOWN_MS = (HOUR_MS - 100_000, HOUR_MS - 64_000)  # 36 s


def checked_proposal(export: Export, path: Path, slo: Slo) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]), slo=slo)


def cluster(*, unseen_ms: int = 0) -> Export:
    """Topic `orders` has too few replicas in sync for 36 s; `clicks` never."""
    export = Export(length_ms=HOUR_MS + 1000, step_ms=1000)
    partition(
        export,
        in_sync=lambda t: {1} if DOWN_MS[0] <= t < DOWN_MS[1] else {1, 2, 3},
        is_up=lambda b, t: not 1_000_000 <= t < 1_000_000 + unseen_ms,
    )
    partition(export, topic="clicks", topic_id="id-clicks")
    brokers(export)
    return export


@pytest.mark.parametrize(
    ("slo", "unseen_ms", "rate"),
    [
        (Slo(), 0, 36 / 3600 / 1e-4),
        (Slo(), 1_800_000, 36 / 1800 / 1e-4),
        (Slo(topics=(("orders", {"writable": 0.99}),)), 0, 1.0),
    ],
    ids=["its own hour", "half of it unseen", "its own objective"],
)
def test_a_topics_budget_burns_by_what_was_seen_of_it(
    slo: Slo, unseen_ms: int, rate: float, tmp_path: Path
) -> None:
    (found,) = [b for b in checked_proposal(cluster(unseen_ms=unseen_ms), tmp_path, slo).burn
                if (b.rule, b.window_ms) == ("R2", HOUR_MS)]  # fmt: skip
    assert found.rate == pytest.approx(rate, rel=0.01)
