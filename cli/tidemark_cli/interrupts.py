"""End a command in order at Ctrl-C and at SIGTERM: what it holds is released first."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidemark_client.errors import CommandFailed

Result = TypeVar("Result")


async def until_interrupted(work: Coroutine[Any, Any, Result], after_sigterm: str) -> Result:
    """Run it in a task that both signals cancel, and return its result.

    Raises KeyboardInterrupt after SIGINT, which counts also in a script's background job, where the
    shell has it ignored; CommandFailed with that sentence after SIGTERM.
    """
    task = asyncio.create_task(work, name="command")
    received: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if signal.SIGTERM in received:
            raise CommandFailed(after_sigterm) from None
        if received:
            raise KeyboardInterrupt from None
        raise
