"""The fewest faults of a failing run with which it still fails the same way.

Delta debugging over the fault plan: halves first, then smaller pieces. "The same way" is the same
invariant or anomaly; its text may differ.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.engine.run import Run, RunPlan
from tests.simulation.engine.shape import faults_of
from tests.simulation.faults.faults import Fault

Fails = Callable[[tuple[Fault, ...]], bool]


def shrunk(faults: tuple[Fault, ...], fails: Fails, most_runs: int = 200) -> tuple[Fault, ...]:
    """`fails(faults)` must hold; it holds for the answer too."""
    pieces = 2
    runs = 0
    while faults and runs < most_runs:
        size = max(1, len(faults) // pieces)
        for start in range(0, len(faults), size):
            candidate = faults[:start] + faults[start + size :]
            runs += 1
            if fails(candidate):
                faults = candidate
                pieces = max(2, pieces - 1)
                break
            if runs >= most_runs:
                break
        else:
            if size == 1:
                break
            pieces = min(len(faults), 2 * pieces)
    return faults


def shrink(plan: RunPlan, name: str, most_runs: int = 200) -> tuple[Fault, ...]:
    """`name`: the violation that must remain."""

    def fails(faults: tuple[Fault, ...]) -> bool:
        violation = Run(replace(plan, faults=faults)).go().violation
        return violation is not None and violation[0] == name

    faults = faults_of(plan.seed, plan.safety_seconds, plan.profile)
    return shrunk(faults, fails, most_runs)
