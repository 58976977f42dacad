"""A run is a function of its seed, whatever the hash seed and what ran in the process before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.engine.run import run_seed
from tests.simulation.engine.shape import Shape, faults_of
from tests.simulation.faults.fault_plan import OPERATOR_ERRORS
from tests.simulation.faults.fault_profiles import profile_of

ROOT = Path(__file__).parents[2]
SECONDS = 8.0
# (seed, profile): one like most; a group, a profile, brokers to spare and power losses; mistakes.
RUNS = ((11, ""), (12, ""), (32, ""), (1, "volumes change"))
PROGRAM = """
from tests.simulation.engine.run import run_seed
for seed, profile in {runs}:
    print(run_seed(seed, {seconds}, profile).digest)
"""


def digests(hash_seed: str, runs: tuple[tuple[int, str], ...]) -> list[str]:
    """In a process of their own, in that order."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(runs=runs, seconds=SECONDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


@pytest.mark.timeout(300)
def test_the_same_seed_gives_the_same_trace() -> None:
    run_seed(RUNS[0][0] + 1, safety_seconds=4.0)  # what ran before must not show
    here = [run_seed(RUNS[0][0], SECONDS).digest for _ in range(2)]
    there = digests("1", RUNS)
    assert digests("77", RUNS[::-1]) == there[::-1]  # nor in any other run
    assert here == [there[0]] * 2


def test_the_runs_have_what_they_were_chosen_for() -> None:
    shapes = [Shape.of(seed, profile) for seed, profile in RUNS]
    kinds = {fault.kind for run in RUNS for fault in faults_of(run[0], SECONDS, run[1])}
    assert any(shape.has_group for shape in shapes)
    assert any(shape.additions for shape in shapes)
    assert any(profile_of(seed) for seed, profile in RUNS if not profile)
    assert {"lose_power", "short_power_loss"} <= kinds
    assert kinds & OPERATOR_ERRORS.keys()
