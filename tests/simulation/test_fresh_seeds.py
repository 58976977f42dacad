"""Seeds that nobody ran before, at every run of the tests. SIM_SEED=n repeats those of a run.

Shorter runs than `make sim` has, and 200 of them: about a minute on two processors of their own.
"""

import os
from functools import partial

import pytest

from tests.simulation.checks.coverage_rows import ROWS
from tests.simulation.engine.campaign import results_of
from tests.simulation.engine.run import RunResult, run_seed

SEEDS_PER_TEST = 50
SAFETY_SECONDS = 8.0
BASE_SEED = int(os.environ["SIM_SEED"])  # tests/conftest.py, which shows it


def reported(result: RunResult) -> str:
    assert result.violation is not None
    name, text = result.violation
    return (
        f"seed {result.seed}: {name}: {text}\n  {result.options}\n"
        f"  make sim-replay SEED={result.seed} SECONDS={SAFETY_SECONDS}"
        f" (these tests again: SIM_SEED={BASE_SEED})"
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_new_seeds_break_no_promise(part: int) -> None:
    first = BASE_SEED + part * SEEDS_PER_TEST
    seeds = range(first, first + SEEDS_PER_TEST)
    results = tuple(
        results_of(seeds, os.cpu_count() or 1, partial(run_seed, safety_seconds=SAFETY_SECONDS))
    )
    assert [reported(result) for result in results if result.violation is not None] == []
    assert {name for result in results for name in result.coverage} <= set(ROWS)
