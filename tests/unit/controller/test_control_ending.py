"""Callers of a controller that steps down: who is to end ends, others hear NotLeading."""

import asyncio

import pytest
from tidemark_operator.controller.service import NotLeading

from tests.unit.controller.control_rig import Rig, settle
from tests.waiting import run


async def waiting_caller(rig: Rig) -> "asyncio.Task[None]":
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def decision() -> None:
        await never

    caller = asyncio.create_task(rig.service.decide(decision()))
    await settle()
    return caller


@pytest.mark.parametrize("turns", range(5))
def test_who_is_cancelled_while_the_controller_steps_down_ends(turns: int) -> None:
    """Found by the simulator (seed 13): told NotLeading instead, the caller went on for ever."""

    async def scenario() -> None:
        rig = await Rig().start(0)
        caller = await waiting_caller(rig)
        stepping_down = asyncio.create_task(rig.service.step_down())
        for _ in range(turns):  # of the loop between the two
            await asyncio.sleep(0)
        was_told_before = not caller.cancel()
        await asyncio.wait([caller, stepping_down])
        assert caller.cancelled() or was_told_before

    run(scenario)


def test_who_waits_for_a_decision_hears_that_the_controller_stepped_down() -> None:
    async def scenario() -> None:
        rig = await Rig().start(0)
        caller = await waiting_caller(rig)
        await rig.service.step_down()
        with pytest.raises(NotLeading):
            await caller

    run(scenario)
