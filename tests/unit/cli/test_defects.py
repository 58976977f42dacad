"""What goes wrong inside a command is told apart from what it was asked to judge."""

from pathlib import Path

import pytest
from tidemark_cli.arguments import parse_and_run
from tidemark_cli.commands import audit

from tests.support.audit_exports import Export, partition


def test_a_defect_has_an_exit_code_that_no_verdict_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: object) -> int:
        raise AssertionError("the parts of a window are not the window")

    monkeypatch.setattr(audit, "run", fail)
    assert parse_and_run(["audit", str(tmp_path)]) == 70
    said = capsys.readouterr().err
    assert "the parts of a window are not the window" in said
    assert "a defect, not a verdict" in said


def test_a_verdict_is_left_where_its_report_has_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = Export()
    partition(whole)
    export = whole.write(tmp_path / "export.jsonl")
    full = tmp_path / "report"
    full.write_text("a file, and no directory")
    summary = tmp_path / "termination-log"
    requested = ["--engine", "local", "--report", str(full), "--summary", str(summary)]
    assert parse_and_run(["audit", *requested, str(export)]) == 4
    assert b'"verdict":"INCONCLUSIVE"' in summary.read_bytes()
