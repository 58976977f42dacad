"""`tidemark demo`, as `make demo` runs it: its verdict, and what the audit saw of it."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_the_audit_finds_both_kills_and_the_stop_that_was_planned(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = (".venv/bin/tidemark", "demo", "--on", "local", "--report", str(report))
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=560)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    faults = json.loads(report.read_bytes())["faults"]
    assert [each["kind"] for each in faults] == ["kill", "kill-twice", "terminate"]
    done = {(each["kind"], str(broker)) for each in faults for broker in each["brokers"]}
    assert len({broker for _, broker in done}) > 1
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "demo-audit" / "report.json").is_file(), ended.stdout + ended.stderr
    audited = json.loads((tmp_path / "demo-audit" / "report.json").read_bytes())
    assert audited["loss_evidence"] == []
    seen = {
        (broker, each["planned"])
        for each in audited["intervals"]
        if each["kind"] in ("under-replicated", "under-min-isr")
        for broker in each["brokers"]
    }
    assert {(broker, kind == "terminate") for kind, broker in done} <= seen
    # On a crowded machine others may fall behind too; but nobody planned that.
    assert {broker for broker, is_planned in seen if is_planned} == {
        broker for kind, broker in done if kind == "terminate"
    }
