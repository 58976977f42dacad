"""Wait for an external condition, up to a limit that ends in a clear error."""

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
    """Wait until `is_so` returns True.

    Raises CommandFailed at the limit.
    """
    try:
        async with asyncio.timeout(within_seconds):
            while True:
                if await is_so():
                    return
                await asyncio.sleep(every_seconds)
    except TimeoutError as late:
        raise CommandFailed(
            expected=f"{what} within {within_seconds:g} s", found="a timeout", to_do=to_do
        ) from late
