"""Machines and the processes on them: started, stopped, killed, frozen, and cut off from power.

A process is one coroutine on one loop, and perhaps threads with loops of their own, which live and
freeze with it: what one loop does holds up no other. It ends by returning, by a kill (nothing of it
runs any more) or with its machine's power. Its kernel then closes its connections and frees its
locks.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Protocol

from tests.simulation.engine.clock import MachineClock
from tests.simulation.engine.costs import Costs
from tests.simulation.engine.disk import SimulatedDisk, Volume
from tests.simulation.engine.loop import Host, ProcessDied, SimulatedLoop
from tests.simulation.engine.network import Network, SimulatedServer, SimulatedTransport
from tests.simulation.engine.timeline import Timeline

KILLED = -9
POWER_LOST = -1

LEAST_JOB_US, MOST_JOB_US = 100, 4_000
SLOW_JOB_US = 1_500_000

Ended = Callable[["SimulatedProcess"], None]
Note = Callable[[str, str], None]


class Machine:
    """A node: one kernel, one volume, clocks, a network card."""

    def __init__(self, name: str, timeline: Timeline, network: Network, chance: Random) -> None:
        self.name = name
        self.is_up = True
        self.boot_id = f"{name}-boot-1"
        self.processes: dict[SimulatedProcess, None] = {}
        self._boots = 1
        self._timeline = timeline
        self._network = network
        self._chance = chance
        self.clock = self._new_clock()
        self.volume = Volume(chance, lambda: timeline.now_us, lambda: self.clock.wall_us())

    def _new_clock(self) -> MachineClock:
        return MachineClock(self._timeline, uptime_us=self._chance.randint(10**7, 10**9))

    def add_host(self, host: str) -> None:
        self._network.hosts[host] = self

    def set_clock_rate(self, rate_ppm: int) -> None:
        self.clock.set_rate(rate_ppm)
        loops = {loop: None for process in self.processes for loop in process.loops}
        self._timeline.rearrange(
            lambda event: (
                event.loop.due_us(event)  # type: ignore[attr-defined]
                if getattr(event, "loop", None) in loops
                else None
            )
        )

    def lose_power(self) -> dict[str, str]:
        """What each file and directory lost."""
        self.is_up = False
        for process in tuple(self.processes):
            process.end(POWER_LOST)
        return self.volume.lose_power()

    def boot(self) -> None:
        previous, self.clock = self.clock, self._new_clock()
        self.clock.rate_ppm, self.clock.wall_offset_us = previous.rate_ppm, previous.wall_offset_us
        self.clock.latest_wall_us = previous.latest_wall_us
        self._boots += 1
        self.boot_id = f"{self.name}-boot-{self._boots}"
        self.is_up = True
        self._network.send_stalled_again()


class SimulatedProcess(Host):
    def __init__(
        self, name: str, machine: Machine, host: str, cluster: "Surroundings", *, ended: Ended
    ) -> None:
        """`ended` is called once, whatever the way it ended."""
        self.name = name
        self.machine = machine
        self.host = host
        self.process_id = cluster.next_process_id()
        self.is_alive = True
        self._is_frozen_for_good = False
        self.exit_code: int | None = None
        self.sockets: dict[SimulatedTransport, None] = {}
        self.listeners: dict[SimulatedServer, None] = {}
        # abstract for typeshed only: loop.py says what the methods it leaves out do
        self.loop = SimulatedLoop(name, cluster.timeline, machine.clock, self)  # type: ignore[abstract]
        self.loop.costs = cluster.costs
        self.disk = SimulatedDisk(machine.volume, self)
        self._worker_us = 0
        self.threads: list[SimulatedLoop] = []
        self._cluster = cluster
        self._ended = ended
        self._is_in_worker = False
        self._main: asyncio.Task[Any] | None = None
        machine.processes[self] = None
        machine.add_host(host)
        cluster.add_process(self)

    def start(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """`make` is called inside the process."""

        async def main() -> Any:
            return await make()

        self._main = self.loop.create_task(main(), name=self.name)
        assert self._main is not None
        self._main.add_done_callback(self._on_main_done)

    @property
    def loops(self) -> tuple[SimulatedLoop, ...]:
        return (self.loop, *self.threads)

    # guard: lease-renewed-beside-busy-loop (S21)
    async def run_thread(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """On a loop of its own; cancelled, it cancels that and waits for its end."""
        thread = SimulatedLoop(
            f"{self.name} {name}", self._cluster.timeline, self.machine.clock, self
        )  # type: ignore[abstract]
        thread.costs = self._cluster.costs
        self.threads.append(thread)
        ended = self.loop.create_future()
        task = thread.create_task(work, name=name)

        def tell(error: BaseException | None) -> None:
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        def on_done(task: "asyncio.Task[None]") -> None:
            error = None if task.cancelled() else task.exception()
            self.loop.call_soon_threadsafe(tell, error)

        task.add_done_callback(on_done)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            thread.call_soon_threadsafe(task.cancel)
            await ended
            raise

    def _on_main_done(self, main: "asyncio.Task[Any]") -> None:
        error = None if main.cancelled() else main.exception()
        if error is not None and not isinstance(error, ProcessDied):
            self._cluster.on_crash(self.name, error)
            self.end(70)
        else:
            result = 0 if main.cancelled() or error is not None else main.result()
            self.end(result if isinstance(result, int) else 0)

    # ---- what is done to it

    def signal(self, number: int) -> None:
        handler = self.loop.signal_handlers.get(int(number))
        if not self.is_alive:
            return
        if handler is None:
            self.end(-int(number))
        else:
            self.loop.call_soon(handler[0], *handler[1])

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        self.end(KILLED)

    def freeze(self, *, for_good: bool = False) -> None:
        """`for_good`: whatever thaw is still to come of a fault before."""
        self._is_frozen_for_good |= for_good
        for loop in self.loops:
            loop.freeze()

    def thaw(self) -> None:
        if self.is_alive and not self._is_frozen_for_good:
            for loop in self.loops:
                loop.thaw()

    def end(self, exit_code: int) -> None:
        if not self.is_alive:
            return
        if exit_code == POWER_LOST:
            self._cluster.network.power_lost(self)
        self.is_alive = False
        self.exit_code = exit_code
        for loop in self.loops:
            loop.kill()
        self._cluster.network.process_ended(self)
        self.machine.volume.release_locks(self)
        self.machine.processes.pop(self, None)
        self._cluster.note(self.name, f"ended with {exit_code}")
        self._ended(self)

    # ---- Host: what its loop asks for

    def job_delay_us(self) -> int:
        volume = self.machine.volume
        most_us = SLOW_JOB_US if volume.is_slow else MOST_JOB_US
        delay_us = self._cluster.random.randint(LEAST_JOB_US, most_us)
        return max(delay_us, volume.hangs_until_us - self._cluster.timeline.now_us)

    def in_worker(self, job: Callable[[], object]) -> object:
        self._is_in_worker = True
        try:
            return job()
        finally:
            self._is_in_worker = False

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        return await self._cluster.network.connect(self, factory, host, port)

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        return self._cluster.network.listen(self, factory, port)

    def on_error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, ProcessDied):
            self._cluster.on_crash(self.name, error)

    def take_worker_us(self) -> int:
        spent_us, self._worker_us = self._worker_us, 0
        return spent_us

    def charge_call(self, kind: str) -> None:
        """A system call takes its time, where work does: on the loop, or in a worker."""
        costs = self._cluster.costs
        if costs is None:
            return
        if self._is_in_worker:
            self._worker_us += costs.of_call(kind)
        else:
            self.loop.owed_us += costs.of_call(kind)

    def spend(self, microseconds: int) -> None:
        if not self._is_in_worker:  # a worker's job has its time already
            self.loop.block_until(self._cluster.timeline.now_us + microseconds)


class Surroundings(Protocol):
    """What processes need of the world; `Cluster` is one."""

    timeline: Timeline
    network: Network
    random: Random
    costs: Costs | None

    def next_process_id(self) -> int: ...

    def add_process(self, process: SimulatedProcess) -> None: ...

    def note(self, who: str, what: str) -> None: ...

    def on_crash(self, who: str, error: BaseException) -> None:
        """An exception that a process did not catch: a defect."""
        ...
