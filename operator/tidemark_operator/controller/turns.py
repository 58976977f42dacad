"""Order decisions about a pool: one decision alone, or work on single topics together.

Turns are given in the order of the requests. When the first waiting request wants a shared turn,
all requests for a shared turn get it together: their writes share commits, and an election waits
for at most one slice of each, however many topics are being created.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SHARED_AT_ONCE = 64


class Turns:
    """The turns of a pool: `async with turns` alone, `async with turns.shared()` with others."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], bool] = {}  # in order; True: for a shared turn
        self._sharing = 0
        self._is_alone = False

    async def __aenter__(self) -> None:
        await self._take(shared=False)

    async def __aexit__(self, *_: object) -> None:
        self._give_back(shared=False)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        await self._take(shared=True)
        try:
            yield
        finally:
            self._give_back(shared=True)

    def locked(self) -> bool:
        """Return whether a decision runs, alone or with others."""
        return self._is_alone or self._sharing > 0

    def is_wanted_alone(self) -> bool:
        """Return whether a decision runs alone or waits to."""
        return self._is_alone or not all(self._waiting.values())

    async def _take(self, *, shared: bool) -> None:
        if not self._waiting and self._is_free(shared=shared):
            self._give(shared=shared)
            return
        given = asyncio.get_running_loop().create_future()
        self._waiting[given] = shared
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self._waiting.pop(given, None)
                self._pass_on()
            else:  # it was given just now
                self._give_back(shared=shared)
            raise

    def _give_back(self, *, shared: bool) -> None:
        if shared:
            self._sharing -= 1
        else:
            self._is_alone = False
        self._pass_on()

    def _pass_on(self) -> None:
        if not self._waiting:
            return
        shared = next(iter(self._waiting.values()))
        for given, wants_shared in tuple(self._waiting.items()):
            if wants_shared is not shared or given.done():
                continue
            if not self._is_free(shared=shared):
                return
            del self._waiting[given]
            self._give(shared=shared)
            given.set_result(None)

    def _is_free(self, *, shared: bool) -> bool:
        if self._is_alone:
            return False
        return self._sharing < SHARED_AT_ONCE if shared else self._sharing == 0

    def _give(self, *, shared: bool) -> None:
        if shared:
            self._sharing += 1
        else:
            self._is_alone = True
