"""Run the Lease on a thread, so that the operator's loop cannot delay a renewal.

`ControllerLease` knows no threads. Here it gets a loop of its own on a thread, and `LeaderOnLoop`,
by which it reaches a leader that belongs to the operator's loop. The simulator runs the same two on
two simulated loops. A loop that has not run for long is stuck rather than busy: then its Lease is
given away.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from tidemark_protocol.ids import ControllerEpoch
from tidemark_protocol.loop_lag import LoopLag

from tidemark_operator.store.lease import ControllerLease, Leader

logger = logging.getLogger(__name__)

# Far more than the longest work of a loop that goes on, less than a minute without a leader.
STUCK_AFTER_MS = 10_000
# For releasing the Lease at the end: its calls have limits of their own, a few seconds together.
END_LIMIT_SECONDS = 15.0

OpenLease = Callable[[Leader], AbstractAsyncContextManager[ControllerLease]]


class LeaderOnLoop:
    """A `Leader` for callers on another loop, perhaps of another thread.

    Each value read is one attribute. `depose` needs no turn of the leader's loop: a busy loop
    begins no decision after that, and steps down when it runs.
    """

    def __init__(self, leader: Leader, loop: asyncio.AbstractEventLoop, lag: LoopLag) -> None:
        """Create it; `lag` is of that loop."""
        self._leader = leader
        self._loop = loop
        self._lag = lag
        self._taking_over: asyncio.Task[Any] | None = None  # on the leader's loop

    @property
    def is_leading(self) -> bool:
        return self._leader.is_leading

    def depose(self) -> None:
        self._leader.depose()

    async def take_over(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool
    ) -> None:
        async def there() -> None:
            self._taking_over = asyncio.current_task()
            await self._leader.take_over(controller_epoch, is_second_opinion=is_second_opinion)

        await self._on_its_loop(there())

    async def step_down(self) -> None:
        async def there() -> None:
            task, self._taking_over = self._taking_over, None
            if task is not None:
                # Who took over may not go on after this, and ends in its own time.
                if not task.cancelling():
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await self._leader.step_down()

        await self._on_its_loop(there())

    async def _on_its_loop(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # that loop is closed
            work.close()
            raise
        await asyncio.wrap_future(future)

    def set_leader_address(self, address: str) -> None:
        self._leader.set_leader_address(address)

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        return self._leader.highest_broker_controller_epoch()

    def reason_to_give_way(self) -> str:
        still_ms = self._lag.stands_still_ms()
        if still_ms >= STUCK_AFTER_MS:
            return f"the event loop has not turned for {still_ms} ms"
        return self._leader.reason_to_give_way()


class LeaseThread:
    def __init__(self, leader: Leader, open_lease: OpenLease, lag: LoopLag) -> None:
        """Create the thread; its loop enters `open_lease`, and owns the Lease's connections."""
        self._leader = leader
        self._open_lease = open_lease
        self._lag = lag

    async def run(self) -> None:
        """Hold the Lease until cancelled, then release it. Runs on the leader's loop.

        Raises what ended the thread.
        """
        loop = asyncio.get_running_loop()
        leader = LeaderOnLoop(self._leader, loop, self._lag)
        ended: asyncio.Future[None] = loop.create_future()
        lease_loop = asyncio.new_event_loop()
        holding = lease_loop.create_task(self._hold(leader), name="lease")

        def tell(error: BaseException | None) -> None:
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        def work() -> None:
            error = _run_to_its_end(lease_loop, holding)
            with contextlib.suppress(RuntimeError):  # the leader's loop has ended before
                loop.call_soon_threadsafe(tell, error)

        threading.Thread(target=work, name="lease", daemon=True).start()
        try:
            await asyncio.shield(ended)
        finally:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                lease_loop.call_soon_threadsafe(holding.cancel)
            await self._wait_for_release(ended)

    async def _hold(self, leader: LeaderOnLoop) -> None:
        async with self._open_lease(leader) as lease:
            await lease.run()

    async def _wait_for_release(self, ended: asyncio.Future[None]) -> None:
        """Wait while it steps down on this loop."""
        done, _ = await asyncio.wait((ended,), timeout=END_LIMIT_SECONDS)
        if not done:
            logger.warning("lease not released in time")


def _run_to_its_end(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]
) -> BaseException | None:
    """Return what the task ended with, except a cancellation."""
    try:
        loop.run_until_complete(task)
        return None
    except asyncio.CancelledError:
        return None
    except BaseException as error:
        return error
    finally:
        loop.close()
