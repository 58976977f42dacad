"""A lock for each key."""

import asyncio

from tidemark_operator.controller.keyed_locks import KeyedLocks

from tests.support.waiting import run


def test_locks_are_there_while_somebody_has_them() -> None:
    async def scenario() -> None:
        locks, order = KeyedLocks[str](), list[str]()

        async def hold(key: str, name: str) -> None:
            async with locks.hold(key):
                order.append(f"{name} in")
                await asyncio.sleep(0)
                order.append(f"{name} out")

        await asyncio.gather(hold("x", "1"), hold("x", "2"), hold("y", "3"))
        assert order == ["1 in", "3 in", "1 out", "3 out", "2 in", "2 out"]
        assert len(locks) == 0

    run(scenario)
