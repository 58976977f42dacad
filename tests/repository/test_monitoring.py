"""Alert rules and dashboard speak of metrics that exist, and each alert fires when it should."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.metric_docs import documented_families
from tests.support.promtool import prometheus_binaries

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "tidemark"
RULES = CHART / "rules" / "alerts.yaml"
DASHBOARD = CHART / "dashboards" / "tidemark.json"
_METRIC = re.compile(r"\btidemark_[a-z0-9_]+\b")


def documented() -> set[str]:
    """The page's names; other tests hold it against what brokers and operator export."""
    names = {family.name for family in documented_families()}
    return names | {f"{name}_bucket" for name in names if name.endswith("_seconds")}


def alerts() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def expressions(panel: object) -> list[str]:
    """Of a panel, an annotation or a variable, however deep."""
    if isinstance(panel, dict):
        here = [panel[key] for key in ("expr", "query") if isinstance(panel.get(key), str)]
        return here + [text for value in panel.values() for text in expressions(value)]
    if isinstance(panel, list):
        return [text for value in panel for text in expressions(value)]
    return []


def test_every_metric_of_an_alert_is_exported() -> None:
    used = {name for alert in alerts() for name in _METRIC.findall(str(alert["expr"]))}
    assert used
    assert used - documented() == set()


def test_every_metric_of_the_dashboard_is_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    used = {name for text in expressions(dashboard) for name in _METRIC.findall(text)}
    assert len(used) > 15
    assert used - documented() == set()


def test_every_alert_says_how_grave_it_is_and_what_to_do() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert set(alert["annotations"]) == {"summary", "description"}


def test_every_alert_has_a_case_where_it_fires_and_one_where_it_is_silent() -> None:
    cases = yaml.safe_load(Path(__file__).with_name("alerts_test.yaml").read_text())["tests"]
    text = [
        str(sample["labels"])
        for case in cases
        for looked_at in case["promql_expr_test"]
        for sample in looked_at["exp_samples"]
    ]
    quiet = next(case for case in cases if case["name"].endswith("are silent"))
    series = " ".join(each["series"] for each in quiet["input_series"])
    for alert in alerts():
        assert any(f'"{alert["alert"]}"' in labels for labels in text), alert["alert"]
        assert set(_METRIC.findall(str(alert["expr"]))) <= set(_METRIC.findall(series)), alert


@pytest.mark.parametrize(
    "command", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]]
)
def test_promtool_runs_the_rules(tmp_path: Path, command: list[str]) -> None:
    shutil.copy(RULES, tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_test.yaml"), tmp_path)
    found = subprocess.run(
        [prometheus_binaries() / "promtool", *command],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "panel", json.loads(DASHBOARD.read_text())["panels"], ids=lambda p: p["title"]
)
def test_promtool_understands_the_panel(panel: dict[str, object], tmp_path: Path) -> None:
    """As a recording rule, with Grafana's variable replaced."""
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$topic", ".*")}
        for number, text in enumerate(expressions(panel["targets"]))
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panel", "rules": rules}]}))
    found = subprocess.run(
        [prometheus_binaries() / "promtool", "check", "rules", file],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
