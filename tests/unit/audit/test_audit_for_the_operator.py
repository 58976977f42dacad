"""`tidemark audit` as a ReplicationAudit's Job runs it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tidemark_cli.main import main
from tidemark_protocol.audit_summary import decode_summary

from tests.support.audit_exports import Export, brokers, partition


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Two minutes from 1970 on, with one follower out of sync for 30 s."""
    export = Export()
    partition(export, in_sync=lambda t: {1, 2} if 30_000 <= t < 60_000 else {1, 2, 3})
    brokers(export)
    return export.write(tmp_path / "export.jsonl")


def run(*arguments: str, places: Sequence[Path]) -> int:
    return main(["audit", "--engine", "local", *arguments, *map(str, places)])


def test_any_verdict_ends_well_and_leaves_its_summary(export: Path, tmp_path: Path) -> None:
    summary_file = tmp_path / "termination-log"
    code = run("--summary", str(summary_file), "--fail-on", "no-verdict", places=[export])
    summary = decode_summary(summary_file.read_bytes())
    assert code == 0
    assert summary.verdict == "VIOLATED"
    assert summary.coverage == 1
    assert [incident.rule for incident in summary.incidents] == ["R1"]
    assert {rule.rule: rule.outcome for rule in summary.rules}["R2"] == "kept"


def test_no_verdict_is_a_failure_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text("")
    assert run("--fail-on", "no-verdict", places=[nothing]) == 4
    assert "nothing.jsonl" in capsys.readouterr().err


def test_objectives_come_as_a_document(export: Path) -> None:
    shares = {"fullyReplicated": 0.5, "fullyReplicatedWithPlanned": 0.5, "oneFailureFromStall": 0.5}
    assert run("--slo", json.dumps({"objectives": shares}), places=[export]) == 0
    assert run("--slo", json.dumps({"objectives": {"speed": 1}}), places=[export]) == 4


def test_a_window_ends_where_it_is_told(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--window", "20s", "--end", "25", places=[export]) == 0
    assert "1970-01-01 00:00:05 to 1970-01-01 00:00:25" in capsys.readouterr().out
    assert run("--window", "20s", "--start", "5", places=[export]) == 4


def test_a_pipeline_names_the_severity_that_it_minds(export: Path, tmp_path: Path) -> None:
    """A follower out of sync is a minor finding, of a budget overdrawn or not."""
    kept = json.dumps(
        {
            "objectives": {
                "fullyReplicated": 0.5,
                "fullyReplicatedWithPlanned": 0.5,
                "oneFailureFromStall": 0.5,
            }
        }
    )
    for slo in ([], ["--slo", kept]):
        codes = [
            run("--fail-on", severity, *slo, places=[export])
            for severity in ("critical", "major", "minor")
        ]
        assert codes == [0, 0, 1]
    half = Export()
    partition(half, is_up=lambda broker, at_ms: at_ms < 60_000)
    brokers(half)
    unseen = half.write(tmp_path / "half.jsonl")
    assert run("--fail-on", "critical", places=[unseen]) == 3
