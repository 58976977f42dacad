"""Alert rules and dashboards speak of metrics that exist, and each alert fires when it should."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.metric_docs import documented_families
from tests.support.promtool import prometheus_binaries

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "tidemark"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES = CHART / "rules" / "alerts.yaml"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
_METRIC = re.compile(r"\btidemark_[a-z0-9_]+\b")


def documented() -> set[str]:
    """The page's names; other tests hold it against what brokers and operator export."""
    names = {family.name for family in documented_families()}
    return names | {f"{name}_bucket" for name in names if name.endswith("_seconds")}


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def expressions(panel: object) -> list[str]:
    """Of a panel, an annotation or a variable, however deep."""
    if isinstance(panel, dict):
        here = [panel[key] for key in ("expr", "query") if isinstance(panel.get(key), str)]
        return here + [text for value in panel.values() for text in expressions(value)]
    if isinstance(panel, list):
        return [text for value in panel for text in expressions(value)]
    return []


def test_every_metric_of_an_alert_is_exported() -> None:
    used = {name for rule in rules() for name in _METRIC.findall(str(rule["expr"]))}
    assert used
    assert used - documented() == set()


def test_every_metric_of_the_dashboards_is_exported() -> None:
    used = {
        name
        for file in DASHBOARDS
        for text in expressions(json.loads(file.read_text()))
        for name in _METRIC.findall(text)
    }
    assert len(used) > 50
    assert used - documented() == set()


def test_the_dashboards_are_as_they_are_generated() -> None:
    check = subprocess.run(
        [sys.executable, "hack/dashboards.py", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert check.returncode == 0, check.stderr


def test_the_overview_begins_with_the_row_that_kafkas_dashboards_begin_with() -> None:
    overview = json.loads((CHART / "dashboards" / "tidemark-overview.json").read_text())
    first = [panel["title"] for panel in overview["panels"] if panel["gridPos"]["y"] == 0]
    assert first == [
        "Brokers online", "Active controllers", "Unclean election rate", "Online replicas",
        "Under replicated", "At min ISR", "Under min ISR", "Offline",
    ]  # fmt: skip


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_fill_a_dashboard_without_overlap(file: Path) -> None:
    dashboard = json.loads(file.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel["targets"]:
            named = set(re.findall(r"\$(\w+)", target["expr"]))
            assert named <= {each["name"] for each in dashboard["templating"]["list"]}
    assert len(taken) == 24 * (1 + max(y for _, y in taken))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_every_alert_says_how_grave_it_is_and_what_to_do() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    named = {alert["alert"]: alert["annotations"]["runbook_url"] for alert in alerts()}
    assert named == {name: f"docs/runbooks/{name}.md" for name in named}
    assert set(named) == {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    for name in named:
        headings = re.findall(r"^#+ .*", (RUNBOOKS / f"{name}.md").read_text(), re.MULTILINE)
        assert headings == [f"# {name}", "## Impact", "## Diagnosis", "## Mitigation"]


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
    for rule in rules():
        assert set(_METRIC.findall(str(rule["expr"]))) <= set(_METRIC.findall(series)), rule


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


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda file: file.stem)
def test_promtool_understands_the_panels(dashboard: Path, tmp_path: Path) -> None:
    """As recording rules, with Grafana's variables replaced."""
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$\w+", ".*", text)}
        for number, text in enumerate(expressions(json.loads(dashboard.read_text())["panels"]))
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panel", "rules": rules}]}))
    found = subprocess.run(
        [prometheus_binaries() / "promtool", "check", "rules", file],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
