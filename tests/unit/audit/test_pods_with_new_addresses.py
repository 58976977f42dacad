"""A broker's pod comes back under another address: Prometheus has a second series for one thing."""

from pathlib import Path

from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, LossKind, Outcome
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, Value, brokers, partition

LENGTH_MS = 1_800_000
STEP_MS = 15_000
ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
MOVED_MS = 1_200_000


def reported_from_two_addresses(name: str, value: Value, follower: str = "") -> Export:
    """All brokers; the new addresses answer two scrapes before the old ones' series end."""
    whole = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    brokers(whole)
    more = {"follower": follower} if follower else {}
    for address, begin_ms, end_ms in (
        ("old:8080", 0, MOVED_MS), ("new:8080", MOVED_MS - 2 * STEP_MS, LENGTH_MS)
    ):  # fmt: skip
        part = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
        partition(part, scrape={"instance": address}, without=frozenset({name}))
        part.add(name, value, **ORDERS, broker="1", instance=address, **more)
        for key, samples in part.series.items():
            samples[:] = [each for each in samples if begin_ms <= each[0] < end_ms]
            if end_ms == MOVED_MS and samples:
                samples.append((MOVED_MS, float("nan")))
            whole.series.setdefault(key, []).extend(samples)
    return whole


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def test_a_watermark_that_goes_back_under_the_new_address_is_a_loss(tmp_path: Path) -> None:
    """The first samples of the new address lie where the old one still stands."""
    export = reported_from_two_addresses(
        "replica_high_watermark_offset",
        lambda t: 1000 if t < 1_300_000 else 2000 if t < 1_500_000 else 1400,
    )
    result = checked_proposal(export, tmp_path)
    assert [(each.kind, each.records) for each in result.loss_evidence] == [
        (LossKind.HIGH_WATERMARK_REGRESS, 600)
    ]


def test_lag_that_only_the_new_address_shows_is_lag(tmp_path: Path) -> None:
    export = reported_from_two_addresses(
        "follower_caught_up_age_seconds",
        lambda t: 0.1 if t < 1_300_000 else 9.0,
        follower="2",
    )
    result = checked_proposal(export, tmp_path)
    assert {each.rule: each.outcome for each in result.rules}["R4"] is Outcome.VIOLATED
