"""Callers of a controller that steps down: who is to end ends, others hear NotController."""

import asyncio

import pytest
from tidemark_operator.controller.service import NotController

from tests.support.controller_harness import Harness, evaluate
from tests.support.waiting import eventually, run


async def waiting_caller(harness: Harness) -> "asyncio.Task[None]":
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def decision() -> None:
        await never

    caller = asyncio.create_task(harness.service._tasks.decide(decision()))
    await evaluate()
    return caller


@pytest.mark.parametrize("turns", range(5))
def test_who_is_cancelled_while_the_controller_steps_down_ends(turns: int) -> None:
    """Found by the simulator (seed 13): told NotController instead, the caller went on for ever."""

    async def scenario() -> None:
        harness = await Harness().start(0)
        caller = await waiting_caller(harness)
        stepping_down = asyncio.create_task(harness.service.step_down())
        for _ in range(turns):  # of the loop between the two
            await asyncio.sleep(0)
        was_reported_before = not caller.cancel()
        await asyncio.wait([caller, stepping_down])
        assert caller.cancelled() or was_reported_before

    run(scenario)


def test_who_waits_for_a_decision_hears_that_the_controller_stepped_down() -> None:
    async def scenario() -> None:
        harness = await Harness().start(0)
        caller = await waiting_caller(harness)
        await harness.service.step_down()
        with pytest.raises(NotController):
            await caller

    run(scenario)


def test_an_overloaded_tick_is_followed_by_the_next_until_the_lease_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without ticks no poll is answered and nobody is ever fenced."""

    async def scenario() -> None:
        harness = await Harness(tick_interval_ms=1).start(1)
        ticks = 0

        async def overloaded() -> None:
            nonlocal ticks
            ticks += 1
            raise NotController("too many decisions are under way")

        monkeypatch.setattr(harness.service, "tick", overloaded)
        ticking = asyncio.create_task(harness.service._run_ticks())
        await eventually(lambda: ticks > 2)
        harness.service.depose()
        await ticking

    run(scenario)
