"""Leadership moves between brokers that are scraped one after another: nobody is offline meanwhile,
unless they say so twice.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Verdict
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition

STEP_MS = 15_000
LENGTH_MS = 3_600_000
# Broker 1 is asked a second after a moment of the handovers, 2 just before it, 3 in between.
PHASES_MS = {"1": 10_000, "2": 8000, "3": 9000, "": 12_000}
OPERATORS = frozenset({"partition_leader_id", "partition_durable_in_sync_replicas"})


def scraped_in_turn(export: Export) -> Export:
    """Of an export with a sample each second, what a server sees that asks every 15 s."""
    for key, samples in export.series.items():
        labels = dict(key)
        by = "" if "pool" in labels else labels.get("broker", "")
        samples[:] = [each for each in samples if each[0] % STEP_MS == PHASES_MS[by]]
    return export


def handed_over(
    at_ms: int,
    *,
    takes_ms: int = 0,
    without: frozenset[str] = frozenset(),
    named: int | None = None,
) -> Export:
    """From broker 1 to broker 2, both living, for `takes_ms` without a leader."""
    export = Export(length_ms=LENGTH_MS, step_ms=1000)

    def leader(now_ms: int) -> int | None:
        return 1 if now_ms < at_ms else None if now_ms < at_ms + takes_ms else 2

    partition(
        export,
        leader=leader,
        epoch=lambda t: 5 if t < at_ms else 6,
        without=without | ({"partition_leader_id"} if named else set()),
    )
    if named:
        export.add(
            "partition_leader_id",
            lambda t: 1 if t < at_ms else named,
            topic="orders", topic_id="id-orders", partition="0", pool="default/pool",
        )  # fmt: skip
    brokers(export)
    return scraped_in_turn(export)


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


@pytest.mark.parametrize("second", [0, 8, 9, 10, 12])
@pytest.mark.parametrize("without", [frozenset(), OPERATORS], ids=["operator", "alone"])
def test_a_handover_between_living_brokers_is_no_outage(
    second: int, without: frozenset[str], tmp_path: Path
) -> None:
    result = checked_proposal(handed_over(1_800_000 + 1000 * second, without=without), tmp_path)
    assert result.sli_by_partition[0].offline_ms == 0
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize(
    "export",
    [
        lambda: handed_over(1_800_000, takes_ms=60_000, without=OPERATORS),
        lambda: handed_over(1_800_000, takes_ms=60_000, named=2),
    ],
    ids=["nobody names a leader", "who is named does not lead"],
)
def test_brokers_that_twice_say_they_do_not_lead_are_believed(
    export: Callable[[], Export], tmp_path: Path
) -> None:
    row = checked_proposal(export(), tmp_path).sli_by_partition[0]
    assert abs(row.offline_ms - 60_000) <= STEP_MS
