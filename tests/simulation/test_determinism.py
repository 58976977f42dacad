"""A run is a function of its seed, whatever the hash seed and what ran in the process before."""

import os
import subprocess
import sys
from pathlib import Path

from tests.simulator.run import run_seed

ROOT = Path(__file__).parents[2]
SEED, SECONDS = 11, 8.0
PROGRAM = (
    "from tests.simulator.run import run_seed; "
    f"print(run_seed({SEED}, safety_seconds={SECONDS}).digest)"
)


def digest_with_hash_seed(hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_same_seed_gives_the_same_trace() -> None:
    run_seed(SEED + 1, safety_seconds=4.0)  # what ran before must not show
    here = run_seed(SEED, safety_seconds=SECONDS).digest
    assert here == run_seed(SEED, safety_seconds=SECONDS).digest
    assert [digest_with_hash_seed("1"), digest_with_hash_seed("77")] == [here, here]
