"""Strike brokers and the controller of local mode by signals, and heal what was struck.

Each step that has to be undone is in the heal journal first. `strike` heals also when it is
cancelled; what it leaves (a runner that dies) is healed from the journal.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import CommandFailed
from tidemark_client.waiting import until

from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.links import CONTROLLER, Links, Place
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import Direction, ExperimentSpec, FaultName, Party, Role

SUCCESSOR_LIFE_SECONDS = 0.3  # it is opening its logs then, or registering
BACK_SECONDS = 60.0
POLL_SECONDS = 0.05

POSSIBLE = frozenset(
    {
        FaultName.KILL,
        FaultName.KILL_TWICE,
        FaultName.TERMINATE,
        FaultName.PAUSE,
        FaultName.ROLLING_RESTART,
        FaultName.NETWORK_CUT,
        FaultName.NETWORK_DELAY,
    }
)
NO_PACKETS = "proxies carry streams, not packets; use network-delay or network-cut"
NO_VOLUME = "local brokers share the file system of this machine"
NEEDS = {
    FaultName.POD_DELETE: "there are no pods; use kill or terminate",
    FaultName.NODE_DOWN: "there is one machine; use pause or kill",
    FaultName.NETWORK_LOSS: NO_PACKETS,
    FaultName.BANDWIDTH: "proxies have no limit of bytes; use network-delay",
    FaultName.DISK_FULL: NO_VOLUME,
    FaultName.DISK_SLOW: NO_VOLUME,
    FaultName.DISK_ERROR: NO_VOLUME,
    FaultName.CLOCK_JUMP: "all processes share the clock of this machine",
    FaultName.API_SERVER_OUTAGE: "there is no Kubernetes API; use pause with role controller",
}

Tell = Callable[[float, str], None]  # Unix time in ms, and what was done


class Cluster(Protocol):
    topic_name: str
    brokers: int

    @property
    def links(self) -> Links: ...

    async def pid_of(self, broker_id: int) -> int | None: ...

    async def status(self) -> ClusterStatus | None: ...

    @property
    def operator_pid(self) -> int: ...

    async def restart_operator(self, number: signal.Signals) -> None:
        """Send the operator a signal, wait for its end and start it again."""


def impossible(spec: ExperimentSpec, brokers: int) -> list[str]:
    """Return a sentence for each part of an experiment that local mode cannot do."""
    problems = []
    if spec.pool != "default":
        problems.append(
            f"spec.pool: not possible in local mode: the pool {spec.pool!r} does not exist, local"
            " mode has the pool default"
        )
    for number, fault in enumerate(spec.faults):
        if fault.kind not in POSSIBLE:
            problems.append(
                f"spec.faults[{number}].kind: {fault.kind} is not possible in local mode:"
                f" {NEEDS[fault.kind]}"
            )
        if fault.target.role is Role.RANDOM and fault.target.count > brokers:
            problems.append(
                f"spec.faults[{number}].target.count: not possible in local mode: there are"
                f" {brokers} brokers, not {fault.target.count}"
            )
    if spec.workload.replication_factor > brokers:
        problems.append(
            f"spec.workload.replicationFactor: not possible in local mode: there are {brokers}"
            f" brokers, not {spec.workload.replication_factor}"
        )
    return problems


class LocalFaults:
    def __init__(self, cluster: Cluster, journal: HealJournal) -> None:
        self._cluster = cluster
        self._journal = journal
        self._paused: dict[int, str] = {}  # process id -> whose
        self._cut: dict[int, list[tuple[Place, Place]]] = {}  # by number of the fault
        self._slow: dict[int, dict[tuple[Place, Place], float]] = {}

    async def strike(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        """Do a fault to the end, its healing included. Raises CommandFailed."""
        if fault.role is Role.CONTROLLER:
            await self._strike_operator(fault, on_begin, on_heal)
            return
        match fault.kind:
            case FaultName.KILL:
                await self._signal_all(brokers, signal.SIGKILL, "kill -9 of", on_begin)
            case FaultName.KILL_TWICE:
                await self._kill_twice(brokers, on_begin, on_heal)
            case FaultName.TERMINATE:
                await self._signal_all(brokers, signal.SIGTERM, "SIGTERM to", on_begin)
            case FaultName.PAUSE:
                pids = {f"broker {each}": await self._pid(each) for each in brokers}
                await self._pause(pids, fault.for_seconds, on_begin, on_heal)
            case FaultName.ROLLING_RESTART:
                await self._roll(brokers, on_begin, on_heal)
            case FaultName.NETWORK_CUT | FaultName.NETWORK_DELAY:
                await self._disturb(fault, brokers, on_begin, on_heal)
            case _:
                raise AssertionError(f"{fault.kind} is not possible in local mode")

    def heal(self) -> list[str]:
        """Resume what is paused, heal all links, and return whose processes were paused."""
        if self._cut or self._slow:
            self._cut.clear()
            self._slow.clear()
            self._set_links()
        resumed = []
        for pid, whose in tuple(self._paused.items()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            del self._paused[pid]
            self._journal.remove("resume", pid)
            resumed.append(whose)
        return resumed

    async def _strike_operator(self, fault: PlannedFault, on_begin: Tell, on_heal: Tell) -> None:
        pid = self._cluster.operator_pid
        if fault.kind is FaultName.PAUSE:
            await self._pause({"the operator": pid}, fault.for_seconds, on_begin, on_heal)
            return
        is_kill = fault.kind is FaultName.KILL
        words = "kill -9 of" if is_kill else "SIGTERM to"
        on_begin(_now_ms(), f"{words} the operator (process {pid})")
        await self._cluster.restart_operator(signal.SIGKILL if is_kill else signal.SIGTERM)
        on_heal(_now_ms(), "the operator was started again")

    async def _signal_all(
        self, brokers: tuple[int, ...], number: signal.Signals, words: str, on_begin: Tell
    ) -> dict[int, int]:
        pids = {broker_id: await self._pid(broker_id) for broker_id in brokers}
        t_ms = _now_ms()
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        on_begin(t_ms, f"{words} {_names(brokers)}")
        return pids

    async def _kill_twice(self, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell) -> None:
        before = await self._signal_all(brokers, signal.SIGKILL, "kill -9 of", on_begin)

        async def has_successors() -> bool:
            found = [await self._cluster.pid_of(broker_id) for broker_id in brokers]
            return all(
                pid is not None and pid != before[broker_id]
                for broker_id, pid in zip(brokers, found, strict=True)
            )

        await _until(has_successors, f"new processes of {_names(brokers)}")
        await asyncio.sleep(SUCCESSOR_LIFE_SECONDS)
        await self._signal_all(brokers, signal.SIGKILL, "kill -9 of the successor of", on_heal)

    async def _pause(
        self, pids: dict[str, int], for_seconds: float, on_begin: Tell, on_heal: Tell
    ) -> None:
        whose = " and ".join(pids)
        try:
            t_ms = _now_ms()
            for name, pid in pids.items():
                self._journal.add("resume", pid, name)
                self._paused[pid] = name
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            on_begin(t_ms, f"SIGSTOP of {whose} for {for_seconds:g} s")
            await asyncio.sleep(for_seconds)
        finally:
            t_ms = _now_ms()
            for pid in pids.values():
                if self._paused.pop(pid, None) is not None:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                    self._journal.remove("resume", pid)
            on_heal(t_ms, f"SIGCONT of {whose}")

    async def _disturb(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        """Cut or delay links until `for` is over. They are ours: they end with this process."""
        directions = directions_of(fault, brokers, self._cluster.brokers)
        is_cut = fault.kind is FaultName.NETWORK_CUT
        parties = " and ".join(fault.from_)
        text = f"{_names(brokers)} disconnected from {parties}"
        if not is_cut:
            text = f"{_names(brokers)}: links to {parties} slower by {fault.delay_seconds:g} s"
        if fault.direction is not Direction.BOTH:
            text += f", {fault.direction}bound only"
        try:
            if is_cut:
                self._cut[fault.number] = directions
            else:
                self._slow[fault.number] = dict.fromkeys(directions, fault.delay_seconds)
            t_ms = _now_ms()
            self._set_links()
            on_begin(t_ms, f"{text} for {fault.for_seconds:g} s")
            await asyncio.sleep(fault.for_seconds)
        finally:
            self._cut.pop(fault.number, None)
            self._slow.pop(fault.number, None)
            t_ms = _now_ms()
            self._set_links()
            on_heal(t_ms, f"the links of {_names(brokers)} are healed")

    def _set_links(self) -> None:
        self._cluster.links.cut(pair for pairs in self._cut.values() for pair in pairs)
        slow: dict[tuple[Place, Place], float] = {}
        for delays in self._slow.values():
            slow.update(delays)
        self._cluster.links.delay(slow)

    async def _roll(self, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell) -> None:
        """Stop all brokers in turn; each is back in sync before the next one."""
        tell = on_begin
        for broker_id in brokers:
            before = _epoch(await self._cluster.status(), broker_id)
            await self._signal_all((broker_id,), signal.SIGTERM, "SIGTERM to", tell)
            tell = on_heal

            async def is_back(broker_id: int = broker_id, before: int = before) -> bool:
                status = await self._cluster.status()
                view = None if status is None else status.topic(self._cluster.topic_name)
                has_new_epoch = _epoch(status, broker_id) > before
                return has_new_epoch and view is not None and view.is_fully_in_sync

            await _until(is_back, f"broker {broker_id} back in sync")
        on_heal(_now_ms(), f"{_names(brokers)} restarted in turn")

    async def _pid(self, broker_id: int) -> int:
        pid = await self._cluster.pid_of(broker_id)
        if pid is None:
            raise CommandFailed(
                expected=f"a process of broker {broker_id}",
                found="none",
                to_do="read the logs next to the report",
            )
        return pid


def directions_of(
    fault: PlannedFault, brokers: tuple[int, ...], count: int
) -> list[tuple[Place, Place]]:
    """Return each (from, to) that a network fault of these brokers disturbs."""
    found = []
    for broker_id in brokers:
        places: list[Place] = []
        if Party.PEERS in fault.from_:
            places += [place for place in range(count) if place not in brokers]
        if Party.CONTROLLER in fault.from_:
            places.append(CONTROLLER)
        for place in places:
            if fault.direction is not Direction.IN:
                found.append((broker_id, place))
            if fault.direction is not Direction.OUT:
                found.append((place, broker_id))
    return found


def _names(brokers: tuple[int, ...]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"


def _epoch(status: ClusterStatus | None, broker_id: int) -> int:
    row = None if status is None else status.broker(broker_id)
    return -1 if row is None else row.broker_epoch


def _now_ms() -> float:
    return time.time() * 1000


async def _until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    await until(
        is_so,
        what,
        within_seconds=BACK_SECONDS,
        every_seconds=POLL_SECONDS,
        to_do="read the logs next to the report",
    )
