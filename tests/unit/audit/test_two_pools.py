"""Two pools in one Prometheus: each has a broker 3, and they are not the same."""

from pathlib import Path

from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, partition

LENGTH_MS = 1_800_000
FALL_MS = (600_000, 640_000)
POOLS = ("default/a", "default/b")


def two_pools() -> Export:
    """Broker 3 of the first restarts as planned; that of the second crashes at the same time."""
    whole = Export(length_ms=LENGTH_MS, step_ms=5000)
    for pool in POOLS:
        part = Export(length_ms=LENGTH_MS, step_ms=5000)
        partition(
            part,
            topic_id=f"id-{pool}",
            in_sync=lambda t: {1, 2} if FALL_MS[0] <= t < FALL_MS[1] else {1, 2, 3},
        )
        for key, samples in part.series.items():
            labels = dict(key)
            if "pool" in labels:
                labels["pool"] = pool
            whole.series[tuple(sorted(labels.items()))] = samples
        for broker in ("1", "2", "3"):
            about = {"pool": pool, "broker": broker}
            whole.add("broker_epoch", 7, **about)
            whole.add("broker_clock_skew_seconds", 0.01, **about)
            whole.add(
                "broker_planned_restart",
                lambda t, p=pool, b=broker: (
                    p == POOLS[0] and b == "3" and FALL_MS[0] - 10_000 <= t < FALL_MS[1] + 10_000
                ),
                **about,
            )
    return whole


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def test_a_planned_restart_in_one_pool_excuses_nothing_in_another(tmp_path: Path) -> None:
    result = checked_proposal(two_pools(), tmp_path)
    assert {row.topic_id: row.degraded_planned_ms for row in result.sli_by_partition} == {
        "id-default/a": 40_000,
        "id-default/b": 0,
    }
    found = {(f.subject, f.planned) for f in result.findings if f.rule == "R1"}
    assert found == {("default/a: broker 3", True), ("default/b: broker 3", False)}
