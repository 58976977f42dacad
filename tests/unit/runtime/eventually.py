"""Waiting for what other callbacks of the same loop do: no fixed sleeps, one limit."""

import asyncio
from collections.abc import Callable


async def eventually(what: Callable[[], object], *, seconds: float = 2.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():  # noqa: ASYNC110  what it looks at has no event
            await asyncio.sleep(0.001)
