"""Each fault is found and each trap is none, on its own; and random clusters on both engines."""

from io import StringIO
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from tidemark_audit.audit import no_progress
from tidemark_audit.engines.engine import Request
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.engines.planning import aggregation_settings
from tidemark_audit.engines.spark import SparkEngine
from tidemark_audit.selftest.expected_verdict import INTERVAL_MS, expected
from tidemark_audit.selftest.samples import BASE_MS, write_samples
from tidemark_audit.selftest.scenario import FAULTS, LENGTH_MS, SLOTS, TRAPS, Scenario, reported
from tidemark_audit.selftest.scoring import Score, SelfTest, by_scenario, mistakes_of, self_test
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window
from tidemark_cli.audit.output import draw_self_test

pytestmark = pytest.mark.timeout(300)


def alone(name: str) -> Scenario:
    """The first cluster with this and nothing else whose truth is clear."""
    random = Random(name)
    names = ["quiet"] * (SLOTS // 2) + [name] + ["quiet"] * (SLOTS // 2 - 1)
    for _ in range(20):
        scenario = reported(0, names, random)
        if expected(scenario).is_clear:
            return scenario
    raise AssertionError(f"no clear scenario of {name}")


@pytest.mark.parametrize("name", [*FAULTS, *TRAPS])
def test_a_fault_alone_is_found_and_a_trap_alone_is_none(name: str, tmp_path: Path) -> None:
    scenario = alone(name)
    write_samples([scenario], tmp_path / "samples.parquet")
    sources = sources_at([str(tmp_path)])
    window = Window(BASE_MS, BASE_MS + LENGTH_MS).looking_back()
    slices = [part for source in sources for part in source.slices(window.to_read)]
    request = Request(
        slices, window, aggregation_settings(sources, window, INTERVAL_MS), INTERVAL_MS
    )
    (result,) = by_scenario(LocalEngine().observe(request, no_progress), [scenario])
    assert mistakes_of(scenario, expected(scenario), result) == []


def test_random_clusters_are_judged_alike_and_rightly_by_both_engines(spark: SparkSession) -> None:
    found = self_test(
        [LocalEngine(), SparkEngine(spark)], scenarios=4, seed=7, tell=lambda sentence: None
    )
    assert (found.mistakes, found.differences) == ((), ())
    assert [score.recall for score in found.scores] == [1.0] * 8
    assert [score.precision for score in found.scores] == [1.0] * 8


def test_a_rule_without_a_case_has_no_recall() -> None:
    output = StringIO()
    scores = (Score("R1", 2, 0, 0), Score("R8", 0, 0, 0))
    draw_self_test(Console(file=output, width=100), SelfTest(1, 1, {}, scores, (), ()))
    lines = output.getvalue().splitlines()
    assert next(line for line in lines if line.startswith("R1")).count("1.000") == 2
    assert next(line for line in lines if line.startswith("R8")).count("no case") == 2
