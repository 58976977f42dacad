"""Waiting for what others do: until it is so, with one limit, and saying what was waited for.

The limit ends a test that hangs. It says nothing of how long things take: on a busy machine that is
ten times as long.
"""

import asyncio
import time
import urllib.error
from collections.abc import Awaitable, Callable
from typing import TypeVar

HANG_SECONDS = 60.0

Found = TypeVar("Found")


def wait_for(
    what: str,
    look: Callable[[], Found | None],
    *,
    seconds: float = HANG_SECONDS,
    pause_seconds: float = 0.02,
) -> Found:
    """Asks again and again until `look` finds something; nobody to ask is nothing found."""
    deadline = time.monotonic() + seconds
    last_error: Exception | None = None
    while time.monotonic() < deadline:
        try:
            found = look()
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            last_error = error
        else:
            last_error = None
            if found is not None and found is not False:
                return found
        time.sleep(pause_seconds)
    raise AssertionError(f"waited {seconds:g} s for {what}") from last_error


async def eventually(is_so: Callable[[], object]) -> None:
    """For what other tasks of the same loop do."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.001)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """A test on a loop of its own."""
    asyncio.run(asyncio.wait_for(scenario(), HANG_SECONDS))
