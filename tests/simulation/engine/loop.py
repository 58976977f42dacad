"""The event loop of one simulated process: asyncio's interface, virtual time, no system calls.

The world runs it one callback at a time. A frozen loop is not run, and its timers grow late; a
killed one is never run again, not even for `finally`. What production code does not use raises
NotImplementedError, as in asyncio.AbstractEventLoop.
"""

import asyncio
import contextlib
import contextvars
import warnings
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, TypeVarTuple

from tests.simulation.engine.clock import MachineClock
from tests.simulation.engine.costs import Costs
from tests.simulation.engine.timeline import Event, Timeline

PAID_FROM_US = 1_000  # what callbacks owe is paid together

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Callback = Callable[..., object]


class ProcessDied(BaseException):
    """Raised out of a simulated system call: the process ended in the middle of it."""


class SimulatedTask(asyncio.Task[Any]):
    """Hashed by the order of creation: sets of tasks (asyncio keeps some) have one order."""

    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedHandle:
    """A callback that is due, or cancelled."""

    __slots__ = ("arguments", "callback", "context")

    def __init__(
        self,
        callback: Callback,
        arguments: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.callback: Callback | None = callback
        self.arguments = arguments
        self.context = context

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None


class SimulatedTimer(Event):
    """A timer of a loop, and the handle of its callback. In the timeline at the moment when its
    machine's clock will show its own."""

    __slots__ = ("context", "loop", "when_us")

    def __init__(
        self,
        loop: "SimulatedLoop",
        when_us: int,
        callback: Callback,
        arguments: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = context
        self.loop = loop
        self.when_us = when_us

    def fire(self) -> None:
        self.loop.on_timer(self)

    def when(self) -> float:
        return self.when_us / 1e6


class Host(Protocol):
    """What a loop asks of the world; `processes.SimulatedProcess` is the living one."""

    def job_delay_us(self) -> int:
        """How long a worker thread takes for a job."""
        ...

    def in_worker(self, job: Callable[[], object]) -> object: ...

    def take_worker_us(self) -> int:
        """What the job did that just ended took so long."""
        ...

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, Any]: ...

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Any: ...

    def on_error(self, context: dict[str, Any]) -> None:
        """An exception that nobody caught."""
        ...


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, name: str, timeline: Timeline, clock: MachineClock, host: Host) -> None:
        self.name = name
        self.is_queued = False
        self.is_dead = False
        self.is_frozen = False
        self.signal_handlers: dict[int, tuple[Callback, tuple[object, ...]]] = {}
        self._timeline = timeline
        self._clock = clock
        self._host = host
        self._ready: deque[SimulatedHandle | SimulatedTimer] = deque()
        self._blocked_until_us = 0
        self.costs: Costs | None = None  # None: work takes no time
        self.owed_us = 0
        self._tasks_made = 0
        self._jobs = 0
        self._late_jobs: list[tuple[Callable[[], object], asyncio.Future[Any]]] = []
        self._jobs_done: asyncio.Future[None] | None = None
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None

    # ---- the world's side

    def run_one(self) -> bool:
        timeline = self._timeline
        if self.is_dead or self.is_frozen or self._blocked_until_us > timeline.now_us:
            return False
        ready = self._ready
        while ready:
            handle = ready.popleft()
            callback = handle.callback
            if callback is None:
                continue
            _set_running_loop(self)
            try:
                if handle.context is None:
                    callback(*handle.arguments)
                else:
                    handle.context.run(callback, *handle.arguments)
            except ProcessDied:
                pass
            except Exception as error:
                self.call_exception_handler(
                    {"message": f"Exception in callback {callback!r}", "exception": error}
                )
            finally:
                _set_running_loop(None)
            if self.costs is not None:
                self._pay(self.costs)
            if ready and not self.is_queued and self._may_run():
                timeline.queue(self)
            return True
        return False

    def _pay(self, costs: Costs) -> None:
        """What the callback did took its time, which is up after it."""
        self.owed_us += costs.callback_us
        if self.owed_us >= PAID_FROM_US:
            self.block_until(self._timeline.now_us + self.owed_us)
            self.owed_us = 0

    def _may_run(self) -> bool:
        is_blocked = self._blocked_until_us > self._timeline.now_us
        return not (self.is_dead or self.is_frozen or is_blocked)

    def on_timer(self, timer: SimulatedTimer) -> None:
        if not self.is_dead:
            self._ready.append(timer)
            self._timeline.queue(self)

    def due_us(self, timer: SimulatedTimer) -> int:
        return self._clock.world_us_at(timer.when_us)

    def block_until(self, world_us: int) -> None:
        """The thread of this loop is stuck in a system call (a slow disk)."""
        if world_us > self._blocked_until_us:
            self._blocked_until_us = world_us
            self._timeline.at(world_us, self.wake)

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        jobs, self._late_jobs = self._late_jobs, []
        for job, future in jobs:
            self._timeline.after(0, self._run_job, job, future)
        self.wake()

    def wake(self) -> None:
        if self._ready:
            self._timeline.queue(self)

    def kill(self) -> None:
        """Nothing of it runs any more. Tasks that wait are cycles, so while the world keeps garbage
        collection off they are not collected, which would run their `finally` blocks."""
        self.is_dead = True

    def dispose(self) -> None:
        """After the run: ends what is left without a sound."""
        self.is_dead = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that never began
            self._ready.clear()
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):  # what the dead say in their `finally`
                    task.get_coro().close()

    # ---- asyncio's side: time and callbacks

    def time(self) -> float:
        return self._clock.monotonic_us() / 1e6

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def call_soon(
        self, callback: Callback, *args: object, context: contextvars.Context | None = None
    ) -> Any:
        handle = SimulatedHandle(callback, args, context)
        self._ready.append(handle)
        if not self.is_queued and not self.is_dead:
            self._timeline.queue(self)
        return handle

    def call_soon_threadsafe(
        self, callback: Callback, *args: object, context: contextvars.Context | None = None
    ) -> Any:
        if self.is_dead:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callback,
        *args: object,
        context: contextvars.Context | None = None,
    ) -> Any:
        # However short: time passes, or who waits for a rest of it sets its timer anew for ever.
        delay_us = max(1, round(delay * 1e6)) if delay > 0 else 0
        return self._call_at_us(self._clock.monotonic_us() + delay_us, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callback,
        *args: object,
        context: contextvars.Context | None = None,
    ) -> Any:
        when_us = round(when * 1e6)
        if when > self.time():
            when_us = max(when_us, self._clock.monotonic_us() + 1)
        return self._call_at_us(when_us, callback, args, context)

    def _call_at_us(
        self,
        when_us: int,
        callback: Callback,
        arguments: tuple[object, ...],
        context: contextvars.Context | None,
    ) -> SimulatedTimer:
        timer = SimulatedTimer(self, when_us, callback, arguments, context)
        if not self.is_dead:
            timeline = self._timeline
            timeline.put(max(timeline.now_us, self._clock.world_us_at(when_us)), timer)
        return timer

    # ---- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        self._tasks_made += 1
        return SimulatedTask(coro, self._tasks_made, loop=self, **options)

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_dead:
            return
        self._host.on_error(context)
        if self._exception_handler is not None:
            self._exception_handler(self, context)

    # ---- worker threads: a job is one atomic call, some time later

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        assert executor is None, "only the default executor"
        future: asyncio.Future[T] = self.create_future()
        self._jobs += 1
        self._timeline.after(self._host.job_delay_us(), self._run_job, lambda: func(*args), future)
        return future

    def _run_job(self, job: Callable[[], object], future: asyncio.Future[Any]) -> None:
        if self.is_dead:
            return
        if self.is_frozen:  # all threads of a process freeze
            self._late_jobs.append((job, future))
            return
        try:
            result, error = self._host.in_worker(job), None
        except ProcessDied:
            return
        except Exception as raised:
            result, error = None, raised
        spent_us = self._host.take_worker_us()
        if spent_us:
            done = (self._job_done, future, result, error)
            self._timeline.after(spent_us, self.call_soon, *done)
        else:
            self.call_soon(self._job_done, future, result, error)

    def _job_done(
        self, future: asyncio.Future[Any], result: object, error: Exception | None
    ) -> None:
        self._jobs -= 1
        if self._jobs == 0 and self._jobs_done is not None and not self._jobs_done.done():
            self._jobs_done.set_result(None)
        if future.done():  # cancelled: the thread ran to its end all the same
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        if self._jobs:
            self._jobs_done = self.create_future()
            await self._jobs_done

    # ---- the process's surroundings

    def add_signal_handler(self, sig: int, callback: Callback, *args: object) -> None:
        self.signal_handlers[int(sig)] = (callback, args)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, Any]:
        return await self._host.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, *, backlog: int = 100
    ) -> Any:
        return self._host.listen(protocol_factory, host, port)
