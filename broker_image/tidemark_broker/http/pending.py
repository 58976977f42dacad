"""Wait for a `done` callback within a limit, and stop when the client disconnects.

A callback never raises and only sets a future, so that a client that disconnected cannot disturb
the loop that completes all other acknowledgements.
"""

import asyncio
from typing import Generic, TypeVar

from tidemark_broker.http.response import ClientGone, Receive, until_gone

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """One `done`; `is_late` if the result came after the call had returned, so after an append."""

    __slots__ = ("_future", "is_late", "result")

    def __init__(self) -> None:
        self.result: Result | None = None
        self.is_late = False
        self._future: asyncio.Future[None] | None = None

    def done(self, result: Result) -> None:
        if self.result is not None:
            return
        self.result = result
        if self._future is not None:
            self.is_late = True
            if not self._future.done():
                self._future.set_result(None)

    def prepare(self) -> None:
        """Mark that the call has returned: a result from now on is late."""
        if self.result is None:
            self._future = asyncio.get_running_loop().create_future()

    async def wait(self, receive: Receive, *, seconds: float, patience_seconds: float) -> None:
        """Wait for the result, at most `seconds`; raise ClientGone.

        The connection is only watched after `patience_seconds`: most waits are over by then, and a
        watch costs a task.
        """
        if self.result is not None or self._future is None:
            return
        future = self._future
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, _end, future)
        watches: list[asyncio.Task[None]] = []

        def start_watch() -> None:
            watches.append(loop.create_task(_watch(receive, future), name="client-watch"))

        watch_timer = loop.call_later(patience_seconds, start_watch)
        try:
            await future
        finally:
            timer.cancel()
            watch_timer.cancel()
            for watch in watches:
                watch.cancel()


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _watch(receive: Receive, future: "asyncio.Future[None]") -> None:
    await until_gone(receive)
    if not future.done():
        future.set_exception(ClientGone())
