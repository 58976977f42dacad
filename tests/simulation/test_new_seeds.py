"""Seeds that nobody ran before, at every run of the tests. SIM_SEED=n repeats those of a run.

Shorter runs than `make sim` has, and 200 of them: about a minute on two processors of their own.
"""

import os
import time
from functools import partial

import pytest

from tests.simulator.campaign import results_of
from tests.simulator.run import RunResult, run_seed

SEEDS_PER_TEST = 50
SAFETY_SECONDS = 8.0
BASE_SEED = int(os.environ.get("SIM_SEED") or time.time())


def told(result: RunResult) -> str:
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
    print(f"SIM_SEED={BASE_SEED}")  # noqa: T201  shown when it fails
    first = BASE_SEED + part * SEEDS_PER_TEST
    seeds = range(first, first + SEEDS_PER_TEST)
    results = results_of(
        seeds, os.cpu_count() or 1, partial(run_seed, safety_seconds=SAFETY_SECONDS)
    )
    assert [told(result) for result in results if result.violation is not None] == []
