"""What is on when a window begins or ends counts as what it is, in this window and in the next."""

from argparse import Namespace
from pathlib import Path

import pytest
from tidemark_audit.audit import AuditRequest, audit_what_if
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.report.page import render_html
from tidemark_audit.results import AuditResult, Finding, IntervalKind, Outcome
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.prometheus import Prometheus
from tidemark_audit.sources.source import Window
from tidemark_cli.audit.options import window_of

from tests.support.audit_exports import Export, brokers, partition

LENGTH_MS = 1_800_000
STEP_MS = 5000
BORDER_MS = 900_000


def checked_proposal(
    export: Export, path: Path, window: Window, checkpoint: Path | None
) -> AuditResult:
    sources = sources_at([str(export.write(path / "export.jsonl"))])
    return audit_what_if(LocalEngine(), sources, AuditRequest(window, checkpoint=checkpoint), None)[
        0
    ]


def outcome(result: AuditResult, rule: str) -> Outcome:
    return next(each.outcome for each in result.rules if each.rule == rule)


def reported(result: AuditResult, rule: str) -> list[Finding]:
    return [each for each in result.findings if each.rule == rule]


def stalled(start_ms: int, end_ms: int) -> Export:
    export = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    partition(export, in_sync=lambda t: {1} if start_ms <= t < end_ms else {1, 2, 3})
    brokers(export)
    return export


@pytest.mark.parametrize("is_kept", [False, True], ids=["anew", "with a checkpoint"])
def test_an_outage_on_the_border_of_two_windows_is_too_long_in_the_second(
    tmp_path: Path, is_kept: bool
) -> None:
    """40 s in each, where 60 s are allowed: neither would tell of it by its own part."""
    export = stalled(BORDER_MS - 40_000, BORDER_MS + 40_000)
    kept = tmp_path / "kept" if is_kept else None
    first = checked_proposal(export, tmp_path, Window(300_000, BORDER_MS), kept)
    second = checked_proposal(export, tmp_path, Window(BORDER_MS, 1_500_000), kept)
    assert outcome(first, "R3") is Outcome.KEPT
    assert outcome(second, "R3") is Outcome.VIOLATED
    assert "for 80 s" in reported(second, "R3")[0].sentence
    found = [each for each in second.intervals if each.kind is IntervalKind.UNDER_MIN_ISR]
    assert [(each.start_ms, each.end_ms, each.earlier_ms) for each in found] == [
        (BORDER_MS, BORDER_MS + 40_000, 40_000)
    ]
    # Only what lies in the window is spent of its budget.
    assert second.sli_by_partition[0].under_min_isr_ms == 40_000


def test_an_incident_on_the_border_has_one_id_and_the_first_window_says_that_it_is_open(
    tmp_path: Path,
) -> None:
    export = stalled(BORDER_MS - 40_000, BORDER_MS + 40_000)
    (first,) = reported(checked_proposal(export, tmp_path, Window(300_000, BORDER_MS), None), "R2")
    (second,) = reported(
        checked_proposal(export, tmp_path, Window(BORDER_MS, 1_500_000), None), "R2"
    )
    assert first.id == second.id
    assert "ongoing at the end of the window" in first.sentence
    assert "still so" not in second.sentence


def test_a_crash_before_the_window_is_not_excused_by_a_restart_asked_for_after_it(
    tmp_path: Path,
) -> None:
    export = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    partition(export, in_sync=lambda t: {1, 2} if 800_000 <= t < 960_000 else {1, 2, 3})
    brokers(export, planned=lambda b, t: b == 3 and 880_000 <= t < 960_000)
    row = checked_proposal(export, tmp_path, Window(BORDER_MS, 1_500_000), None).sli_by_partition[0]
    assert (row.degraded_planned_ms, row.degraded_unplanned_ms) == (0, 60_000)


def test_an_election_at_the_end_of_an_outage_that_began_before_the_window_is_told(
    tmp_path: Path,
) -> None:
    export = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    partition(
        export,
        leader=lambda t: 1 if t < 880_000 else None if t < 920_000 else 2,
        in_sync=lambda t: {1, 2, 3} if t < 920_000 else {2, 3},
        epoch=lambda t: 5 if t < 920_000 else 6,
        is_up=lambda b, t: b != 1 or t < 880_000,
    )
    brokers(export)
    result = checked_proposal(export, tmp_path, Window(BORDER_MS, 1_500_000), None)
    assert [(each.from_broker, each.to_broker) for each in result.elections] == [("1", "2")]


def test_what_was_not_settled_is_said(tmp_path: Path) -> None:
    arguments = Namespace(start=None, end=None, window="1h", settle="5m")
    _, unsettled_ms = window_of(arguments, [Prometheus("http://127.0.0.1:1")])
    assert unsettled_ms == 300_000
    arguments.end = "1700000000"
    assert window_of(arguments, [Prometheus("http://127.0.0.1:1")])[1] == 0
    export = stalled(0, 0)
    sources = sources_at([str(export.write(tmp_path / "export.jsonl"))])
    requested = AuditRequest(Window(300_000, BORDER_MS), unsettled_ms=unsettled_ms)
    result, _ = audit_what_if(LocalEngine(), sources, requested, None)
    assert "The last 5\u00a0min are ignored" in render_html(result)
