"""A run ends, and names its seed, whatever goes wrong in it."""

import pytest
from tidemark_chaos.history_checker import Kind, Operation, Outcome

from tests.simulation.checks.coverage_rows import ROWS, ended_early
from tests.simulation.checks.violations import SENT_AGAIN_LATE, BeyondPromises
from tests.simulation.engine import run as simulated_run
from tests.simulation.engine.run import Run, RunPlan


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


def test_what_clients_saw_before_a_run_ended_early_is_judged() -> None:
    """But not whether they had seen all: nobody read on."""
    sent = Operation("p", Kind.SEND, Outcome.OK, "orders/0", (1,), (0,), 0, 1)
    shown = Operation("c", Kind.POLL, Outcome.OK, "orders/0", (2,), (0,), 2, 3)
    for history, broken in (([sent], None), ([sent, shown], "history: ")):
        run = Run(RunPlan(9))

        def end_early(run: Run = run, history: list[Operation] = history) -> None:
            run.history = history
            raise BeyondPromises(SENT_AGAIN_LATE)

        run.on_event = end_early
        result = run.go()
        assert result.coverage[ended_early(SENT_AGAIN_LATE)] == 1
        assert (result.violation is None) is (broken is None)
        assert result.coverage.keys() <= set(ROWS) or broken is not None
        assert broken is None or (result.violation or ("",))[0].startswith(broken)
