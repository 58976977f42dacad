"""Turns of a pool: alone, or beside others, in the order in which they were asked for."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from tidemark_operator.controller.turns import SHARED_AT_ONCE, Turns

from tests.support.controller_harness import evaluate
from tests.support.waiting import run


class Visitors:
    """Each notes when it has its turn, and gives it back when it is told to."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.inside: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """Whose name is in capitals wants a turn alone."""
        for name in names:
            self._leave[name] = asyncio.Event()
            stay = self._stay_alone if name.isupper() else self._stay_beside
            self._tasks[name] = asyncio.create_task(stay(name))
            await evaluate()

    async def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
        await evaluate()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await evaluate()

    async def _stay_alone(self, name: str) -> None:
        async with self.turns:
            await self._stay(name)

    async def _stay_beside(self, name: str) -> None:
        async with self.turns.shared():
            await self._stay(name)

    async def _stay(self, name: str) -> None:
        self.inside.append(name)
        try:
            await self._leave[name].wait()
        finally:
            self.inside.remove(name)


def visiting(scenario: Callable[[Visitors], Coroutine[None, None, None]]) -> None:
    async def ran() -> None:
        await scenario(Visitors())

    run(ran)


def test_who_waits_for_a_shared_turn_has_it_with_all_others_who_do() -> None:
    async def scenario(visitors: Visitors) -> None:
        await visitors.come("A", "b", "C", "d", "e")
        assert visitors.inside == ["A"]
        await visitors.leave("A")
        assert visitors.inside == ["b", "d", "e"]
        await visitors.leave("b", "d", "e")
        assert visitors.inside == ["C"]

    visiting(scenario)


def test_who_decides_alone_waits_for_those_inside_and_for_no_later_ones() -> None:
    async def scenario(visitors: Visitors) -> None:
        await visitors.come("a", "B", "c")
        assert visitors.inside == ["a"]
        assert visitors.turns.is_wanted_alone()
        await visitors.leave("a")
        assert visitors.inside == ["B"]
        await visitors.leave("B")
        assert visitors.inside == ["c"]
        assert not visitors.turns.is_wanted_alone()

    visiting(scenario)


@pytest.mark.parametrize("is_late", [False, True])
def test_who_gives_up_holds_up_nobody(is_late: bool) -> None:
    async def scenario(visitors: Visitors) -> None:
        await visitors.come("a", "B", "c")
        if is_late:  # its turn has come, and it has not begun
            visitors._leave["a"].set()
            await asyncio.sleep(0)
        await visitors.give_up("B")
        await visitors.leave("a")
        assert visitors.inside == ["c"]
        await visitors.leave("c")
        assert not visitors.turns.locked()

    visiting(scenario)


def test_so_many_share_a_turn_and_no_more() -> None:
    async def scenario(visitors: Visitors) -> None:
        names = [f"v{number}" for number in range(SHARED_AT_ONCE + 1)]
        await visitors.come(*names)
        assert visitors.inside == names[:-1]
        await visitors.leave(names[0])
        assert visitors.inside == names[1:]

    visiting(scenario)
