"""Work in steps: what it gives, how many steps it took, and what ends it early."""

import pytest
from tidemark_broker.kafka_wire.messages.cooperative_steps import Steps, all_steps


def work(log: list[str], *costs: int) -> Steps[str]:
    for cost in costs:
        log.append("step")
        yield cost
    log.append("end")
    return "outcome"


@pytest.mark.parametrize("costs", [(), (1,), (5, 0, 1)])
def test_all_steps_run_in_order_and_the_outcome_is_given(costs: tuple[int, ...]) -> None:
    log: list[str] = []
    assert all_steps(work(log, *costs)) == "outcome"
    assert log == ["step"] * len(costs) + ["end"]


def test_steps_that_have_begun_are_finished() -> None:
    log: list[str] = []
    steps = work(log, 1, 2)
    assert next(steps) == 1
    assert all_steps(steps) == "outcome"
    assert log == ["step", "step", "end"]


def test_error_of_a_step_ends_the_work() -> None:
    def failing() -> Steps[None]:
        yield 1
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        all_steps(failing())
