"""A run ends, and names its seed, whatever goes wrong in it."""

import pytest

from tests.simulator import run as simulated_run
from tests.simulator.run import Run, RunPlan


def test_an_event_that_never_ends_is_a_failure_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang() -> None:
        while True:
            pass

    monkeypatch.setattr(simulated_run, "MAX_CPU_SECONDS", 0.05)
    run = Run(RunPlan(7))
    run.on_event = hang
    result = run.go()
    assert (result.seed, result.violation) == (7, ("bound", "0.1 s, and an event does not end"))


def test_a_judges_own_error_is_a_failure_of_its_seed() -> None:
    def err() -> None:
        raise KeyError("judge")

    run = Run(RunPlan(8))
    run.on_event = err
    violation = run.go().violation
    assert violation is not None
    assert violation[0] == "simulator"
    assert "KeyError in err, line " in violation[1]
