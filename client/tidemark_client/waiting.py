"""Waiting for something outside, within a limit that ends in a sentence."""

import asyncio
from collections.abc import Awaitable, Callable

from tidemark_client.errors import CommandFailed


async def until(
    is_so: Callable[[], Awaitable[bool]],
    what: str,
    *,
    within_seconds: float,
    every_seconds: float,
    to_do: str,
) -> None:
    """Raises CommandFailed when it is not so in time."""
    try:
        async with asyncio.timeout(within_seconds):
            while True:
                if await is_so():
                    return
                await asyncio.sleep(every_seconds)
    except TimeoutError as late:
        raise CommandFailed(
            expected=f"{what} within {within_seconds:g} s", found="it did not happen", to_do=to_do
        ) from late
