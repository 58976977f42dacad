"""When the demo's Prometheus has seen every target, by its own query language."""

import subprocess
from pathlib import Path

import pytest
from tidemark_chaos.environments.prometheus import LAST_SCRAPES

from tests.support.promtool import prometheus_binaries

TEST = """\
rule_files: [rules.yml]
evaluation_interval: 500ms
tests:
  - interval: 500ms
    input_series: [{series}]
    promql_expr_test:
      - expr: all_scraped
        eval_time: 2s
        exp_samples: [{expected}]
"""
UP = '{{series: \'up{{instance="{instance}"}}\', values: "{values}"}}'


@pytest.mark.parametrize(
    ("scrapes", "expected"),
    [
        ({"a": "1 1 1 1 1", "b": "1 1 1 1 1"}, "{labels: all_scraped, value: 2}"),
        ({"a": "1 1 1 1 1"}, ""),
        ({"a": "1 1 1 1 1", "b": "0 0 0 0 0"}, "{labels: all_scraped, value: 0}"),
    ],
    ids=["all", "one has no scrape yet", "one does not answer"],
)
def test_targets_count_as_scraped_once_each_of_them_was(
    scrapes: dict[str, str], expected: str, tmp_path: Path
) -> None:
    query = LAST_SCRAPES.format(targets=2)
    (tmp_path / "rules.yml").write_text(
        f"groups: [{{name: demo, rules: [{{record: all_scraped, expr: '{query}'}}]}}]"
    )
    series = ", ".join(UP.format(instance=name, values=values) for name, values in scrapes.items())
    file = tmp_path / "test.yml"
    file.write_text(TEST.format(series=series, expected=expected))
    found = subprocess.run(
        [prometheus_binaries() / "promtool", "test", "rules", file],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
