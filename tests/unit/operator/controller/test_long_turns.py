"""No turn of the operator's loop grows with the pool, whatever is done in bulk.

Heartbeats and all else wait for one turn at most. A partition more in the pool may cost another
turn, not a longer one.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tidemark_protocol.ids import ControllerEpoch

from tests.support import controller_harness as control_harness
from tests.support.controller_harness import ORDERS, POOL, FakeStore, Harness
from tests.support.waiting import run
from tests.unit.operator.controller.long_turns import counted_turns

# What decides a few slices at a time: without it every turn here is as long as the pool is large.

SLICE = 16  # partitions; so few, that a test is short
SMALL, LARGE = 2 * SLICE, 10 * SLICE
# Calls for each partition more: to look at a number, or at who holds it. To decide about one takes
# five times as many.
A_GLANCE = 8


class TurningStore(FakeStore):
    """As a real one: the loop turns while it is asked."""

    async def get(self, *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return await super().get(*arguments)

    async def list(self, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0)
        return await super().list(*arguments, **named)

    async def create(self, *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return await super().create(*arguments)

    async def replace(self, *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return await super().replace(*arguments)

    async def delete(self, *arguments: Any, **named: Any) -> None:
        await asyncio.sleep(0)
        await super().delete(*arguments, **named)


async def make(harness: Harness, partitions: int) -> None:
    await harness.create(partitions)


async def nothing(harness: Harness, partitions: int) -> None:
    return None


async def grow(harness: Harness, partitions: int) -> None:
    ids = [broker.broker_id for broker in harness.brokers]
    added = control_harness.place(partitions, 3, ids)
    await harness.service.add_partitions(POOL, ORDERS, added, first=partitions)


async def configure(harness: Harness, partitions: int) -> None:
    topic = harness.topic_state(partitions, **{"min.insync.replicas": "1"})
    await harness.service.update_topic(POOL, topic)


async def delete(harness: Harness, partitions: int) -> None:
    await harness.service.delete_topic(POOL, ORDERS, retain=False)


async def fence(harness: Harness, partitions: int) -> None:
    first = harness.brokers[0]
    await harness.service._pools[POOL].decisions.fence([(first.broker_id, first.epoch)], "test")


async def drain(harness: Harness, partitions: int) -> None:
    first = harness.brokers[0]
    await harness.service._pools[POOL].decisions.drain(first.broker_id, first.epoch)


async def balance(harness: Harness, partitions: int) -> None:
    await harness.service._pools[POOL].decisions.balance()


async def take_over(harness: Harness, partitions: int) -> None:
    await harness.service.step_down()
    harness.service = harness.another_controller()
    await harness.service.load(ControllerEpoch(2))
    await harness.tick()


async def register_again(harness: Harness, partitions: int) -> None:
    await harness.brokers[0].register()


async def hear_all(harness: Harness, partitions: int) -> None:
    """As a broker that has just started, or a controller that has just taken over."""
    first = harness.brokers[0]
    first.controller_epoch, first.version = ControllerEpoch(-1), -1
    await first.catch_up()


async def counted(step: Awaitable[None]) -> None:
    await step


Step = Callable[[Harness, int], Awaitable[None]]


async def longest_turn(before: Step, step: Step, partitions: int) -> tuple[int, str]:
    harness = await Harness(store=TurningStore()).start(3)
    await before(harness, partitions)
    with counted_turns() as turns:
        await asyncio.create_task(counted(step(harness, partitions)))
    return turns.longest, turns.where


@pytest.mark.parametrize(
    ("before", "step"),
    [
        (nothing, make),
        (make, grow),
        (make, configure),
        (make, delete),
        (make, fence),
        (make, drain),
        (make, balance),
        (make, take_over),
        (make, register_again),
        (make, hear_all),
    ],
    ids=lambda step: step.__name__,
)
def test_a_turn_does_not_grow_with_the_pool(
    before: Step, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in tuple(sys.modules.items()):
        if name.startswith(("tidemark_operator.controller.", "tidemark_operator.api.")):
            for limit in ("PARTITIONS_PER_SLICE", "PARTITIONS_AT_A_TIME"):
                if hasattr(module, limit):
                    monkeypatch.setattr(module, limit, SLICE)
    monkeypatch.setattr(control_harness.copy, "deepcopy", copied)

    async def scenario() -> None:
        small, _ = await longest_turn(before, step, SMALL)
        large, where = await longest_turn(before, step, LARGE)
        assert large - small <= A_GLANCE * (LARGE - SMALL), where

    run(scenario)


def copied(item: Any) -> Any:
    """Of JSON, which takes no calls of ours."""
    return json.loads(json.dumps(item))
