"""The price of a setting: the same samples under another min.insync.replicas or factor."""

from pathlib import Path

import pytest
from tidemark_audit.analysis.what_if import BadSetting, WhatIf, what_if_of
from tidemark_audit.audit import AuditRequest, audit_what_if
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.outputs import write_outputs
from tidemark_audit.results import AuditResult, Outcome, SliRow, from_json
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition


def priced(path: Path, settings: str) -> tuple[SliRow, SliRow]:
    """Broker 3 is out of sync from 30 s to 60 s, and 2 too from 40 s to 50 s."""
    export = Export()
    partition(
        export,
        in_sync=lambda t: (
            {1, 2, 3}
            - ({3} if 30_000 <= t < 60_000 else set())
            - ({2} if 40_000 <= t < 50_000 else set())
        ),
    )
    brokers(export)
    sources = sources_at([str(export.write(path / "export.jsonl"))])
    results = audit_what_if(LocalEngine(), sources, AuditRequest(), what_if_of(settings))
    was, would = (row_of(result) for result in results if result is not None)
    return was, would


def row_of(result: AuditResult) -> SliRow:
    return result.sli_by_partition[0]


def test_min_insync_replicas_of_one_turns_unwritable_time_into_risk(tmp_path: Path) -> None:
    was, would = priced(tmp_path, "min.insync.replicas=1")
    assert (was.under_min_isr_ms, was.one_failure_from_loss_ms) == (10_000, 10_000)
    assert (would.under_min_isr_ms, would.degraded_unplanned_ms) == (0, 30_000)
    assert would.one_failure_from_loss_ms == 10_000


def test_two_replicas_keep_the_lowest_ids(tmp_path: Path) -> None:
    was, would = priced(tmp_path, "replicationFactor=2")
    assert was.healthy_ms == 119_000 - 30_000
    # Broker 3 is none of theirs; broker 2's absence leaves one of two.
    assert (would.under_min_isr_ms, would.healthy_ms) == (10_000, 109_000)


def test_a_fourth_replica_that_never_fails_keeps_it_writable(tmp_path: Path) -> None:
    _, would = priced(tmp_path, "replicationFactor=4")
    assert (would.under_min_isr_ms, would.degraded_unplanned_ms) == (0, 30_000)


@pytest.mark.parametrize(
    "text",
    [
        "acks=1",
        "min.insync.replicas=0",
        "replicationFactor",
        "",
        "replicationFactor=2,replicationFactor=3",
    ],
)
def test_what_cannot_be_priced_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        what_if_of(text)


def test_settings_are_read_together() -> None:
    found = what_if_of("min.insync.replicas=1, replica.lag.time.max.ms=2500")
    assert found == WhatIf(1, None, 2.5)
    assert found.words() == "min.insync.replicas=1, replica.lag.time.max.ms=2500"


def test_the_report_says_both_and_its_verdict_is_of_what_was(tmp_path: Path) -> None:
    export = Export()
    partition(export, in_sync=lambda t: {1} if 40_000 <= t < 50_000 else {1, 2, 3})
    brokers(export)
    sources = sources_at([str(export.write(tmp_path / "export.jsonl"))])
    settings = what_if_of("min.insync.replicas=1")
    result, would = audit_what_if(LocalEngine(), sources, AuditRequest(), settings)
    assert would is not None
    write_outputs(result, tmp_path / "report")
    kept = from_json((tmp_path / "report" / "report.json").read_bytes())
    assert kept == result
    assert kept.what_if is not None
    assert (kept.rules[1].outcome, kept.what_if.rules[1].outcome) == (
        Outcome.VIOLATED, Outcome.KEPT
    )  # fmt: skip
    assert (kept.what_if.rules, kept.what_if.sli_by_topic) == (would.rules, would.sli_by_topic)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "What if min.insync.replicas=1" in page
    assert would.rules[1].measured in page
    assert "What if min.insync.replicas=1" in (tmp_path / "report" / "summary.md").read_text()
