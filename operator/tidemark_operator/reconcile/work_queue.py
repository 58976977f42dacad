"""Keys of objects that somebody should look at again: each at most once in the queue, one worker.

A key added while it is being worked on is worked on once more afterwards. A key whose work failed
comes back after a delay that doubles up to a limit; success resets it. The queue holds keys only,
never events: what happened is read from the store when the key's turn comes. Nothing is ever
dropped, and the queue cannot grow beyond the number of objects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidemark_operator.stores.object_store import Conflict, StoreError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkKey:
    """`kind` is the Kubernetes kind: BrokerPool or Topic."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class BackOff:
    first_delay_ms: int = 100
    max_delay_ms: int = 30_000

    def delay_ms(self, failures: int) -> int:
        return min(self.first_delay_ms << min(failures - 1, 20), self.max_delay_ms)


class WorkQueue:
    """Owned by the loop that runs `work`; `add_threadsafe` is for all others."""

    def __init__(self, back_off: BackOff | None = None) -> None:
        self._back_off = back_off or BackOff()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: dict[WorkKey, None] = {}  # in order of arrival
        self._timers: dict[WorkKey, asyncio.TimerHandle] = {}
        self._failures: dict[WorkKey, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Before other threads may add."""
        self._loop = loop

    def add(self, key: WorkKey) -> None:
        """Now; a delayed turn of the same key is not waited for."""
        self._cancel_timer(key)
        self._pending[key] = None
        self._wake.set()

    def add_threadsafe(self, key: WorkKey) -> None:
        """From any thread. Before `bind`, and after the loop closed, there is nobody to tell:
        the first full list after taking the lead finds every object anyway."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        loop.call_soon_threadsafe(self.add, key)

    def add_after(self, key: WorkKey, delay_ms: int) -> None:
        """Later, unless it is due sooner already."""
        if key in self._pending:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= due:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_at(due, self._come_due, key)

    def clear(self) -> None:
        self._pending.clear()
        self._failures.clear()
        for key in list(self._timers):
            self._cancel_timer(key)

    async def work(self, reconcile: Callable[[WorkKey], Awaitable[int | None]]) -> None:
        """Runs until cancelled. `reconcile` may return a delay in ms after which it wants the
        key again; a key whose turn failed comes back."""
        while True:
            while not self._pending:
                self._wake.clear()
                await self._wake.wait()
            key = next(iter(self._pending))
            del self._pending[key]
            await self._turn(key, reconcile)

    async def _turn(
        self, key: WorkKey, reconcile: Callable[[WorkKey], Awaitable[int | None]]
    ) -> None:
        try:
            again_ms = await reconcile(key)
        except Exception as error:  # the driver: one object's fault must not stop all others
            failures = self._failures.get(key, 0) + 1
            self._failures[key] = failures
            delay_ms = self._back_off.delay_ms(failures)
            is_expected = isinstance(error, StoreError | OSError | TimeoutError)
            log.log(
                logging.DEBUG if isinstance(error, Conflict) else logging.WARNING,
                "reconcile failed; will try again",
                exc_info=None if is_expected else error,
                extra={
                    "kind": key.kind,
                    "namespace": key.namespace,
                    "object": key.name,
                    "failures": failures,
                    "delay_ms": delay_ms,
                    "error": f"{type(error).__name__}: {error}",
                },
            )
            self.add_after(key, delay_ms)
            return
        self._failures.pop(key, None)
        if again_ms is not None:
            self.add_after(key, again_ms)

    def _come_due(self, key: WorkKey) -> None:
        self._timers.pop(key, None)
        self._pending[key] = None
        self._wake.set()

    def _cancel_timer(self, key: WorkKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
