"""Strike brokers and the controller of local mode, and heal what was struck.

Each step that has to be undone is in the heal journal first. `strike` heals also when it is
cancelled; what it leaves (a runner that dies) is healed from the journal.
"""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import CommandFailed
from tidemark_client.waiting import until

from tidemark_chaos.environments.chaos_environment import Tell
from tidemark_chaos.environments.volumes import Volume
from tidemark_chaos.faults.disk_faults import DiskFaults
from tidemark_chaos.faults.link_faults import LinkFaults, names
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.links import Links
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import OF_THE_DISK, OF_THE_NETWORK, ExperimentSpec, FaultName, Role

SUCCESSOR_LIFE_SECONDS = 0.3  # it is opening its logs then, or registering
BACK_SECONDS = 60.0
POLL_SECONDS = 0.05
STORE = "tidemark.sqlite"
LOCK_SECONDS = 10.0  # a commit of the controller is waited for
DOWN = "disconnect and kill -9 of"

POSSIBLE = frozenset(FaultName) - {FaultName.POD_DELETE, FaultName.CLOCK_JUMP}
NEEDS = {
    FaultName.POD_DELETE: "there are no pods; use kill or terminate",
    FaultName.CLOCK_JUMP: "all processes share the clock of this machine; the simulator has the"
    " fault clock_jump (hack/sim)",
}


class Cluster(Protocol):
    topic_name: str
    brokers: int

    @property
    def links(self) -> Links: ...

    @property
    def volumes(self) -> Mapping[int, Volume]: ...

    @property
    def data(self) -> Path:
        """Return the data directory of `tidemark dev`."""

    async def pid_of(self, broker_id: int) -> int | None: ...

    async def status(self) -> ClusterStatus | None: ...

    @property
    def operator_pid(self) -> int: ...

    async def restart_operator(self, number: signal.Signals) -> None:
        """Send the operator a signal, wait for its end and start it again."""


def impossible(spec: ExperimentSpec, brokers: int, *, volumes: str = "") -> list[str]:
    """Return a sentence for each part of an experiment that local mode cannot do.

    `volumes`: why brokers can have no volumes on this machine; "" if they can.
    """
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
        elif fault.kind in OF_THE_DISK and volumes:
            problems.append(
                f"spec.faults[{number}].kind: {fault.kind} is not possible on this machine:"
                f" {volumes}"
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
        self._links = LinkFaults(cluster.links, cluster.brokers)
        self._disks = DiskFaults(cluster.volumes, journal, cluster.pid_of)

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
            case FaultName.NODE_DOWN:
                await self._take_down(fault, brokers, on_begin, on_heal)
            case kind if kind in OF_THE_NETWORK:
                await self._links.strike(fault, brokers, on_begin, on_heal)
            case kind if kind in OF_THE_DISK:
                await self._disks.strike(fault, brokers, on_begin, on_heal)
            case _:
                raise AssertionError(f"{fault.kind} is not possible in local mode")

    def heal(self) -> list[str]:
        """Resume what is paused, heal all links and disks, and return what was healed."""
        self._links.heal()
        resumed = self._disks.heal()
        resumed += self._paused.values()
        self._resume(tuple(self._paused))
        return resumed

    def _hold(self, pid: int, whose: str) -> None:
        self._journal.add("resume", pid, whose)
        self._paused[pid] = whose
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

    def _resume(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if self._paused.pop(pid, None) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                self._journal.remove("resume", pid)

    async def _strike_operator(self, fault: PlannedFault, on_begin: Tell, on_heal: Tell) -> None:
        pid = self._cluster.operator_pid
        if fault.kind is FaultName.API_SERVER_OUTAGE:
            await self._lock_store(fault.for_seconds, on_begin, on_heal)
            return
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
        on_begin(t_ms, f"{words} {names(brokers)}")
        return pids

    async def _kill_twice(self, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell) -> None:
        before = await self._signal_all(brokers, signal.SIGKILL, "kill -9 of", on_begin)

        async def has_successors() -> bool:
            found = [await self._cluster.pid_of(broker_id) for broker_id in brokers]
            return all(
                pid is not None and pid != before[broker_id]
                for broker_id, pid in zip(brokers, found, strict=True)
            )

        await _until(has_successors, f"new processes of {names(brokers)}")
        await asyncio.sleep(SUCCESSOR_LIFE_SECONDS)
        await self._signal_all(brokers, signal.SIGKILL, "kill -9 of the successor of", on_heal)

    async def _pause(
        self, pids: dict[str, int], for_seconds: float, on_begin: Tell, on_heal: Tell
    ) -> None:
        whose = " and ".join(pids)
        try:
            t_ms = _now_ms()
            for name, pid in pids.items():
                self._hold(pid, name)
            on_begin(t_ms, f"SIGSTOP of {whose} for {for_seconds:g} s")
            await asyncio.sleep(for_seconds)
        finally:
            t_ms = _now_ms()
            self._resume(pids.values())
            on_heal(t_ms, f"SIGCONT of {whose}")

    async def _take_down(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        """Disconnect brokers, kill them, and hold their successors until `for` is over."""
        loop = asyncio.get_running_loop()
        held: dict[int, str] = {}
        try:
            self._links.cut(fault.number, brokers)  # first: no peer sees connections end
            before = await self._signal_all(brokers, signal.SIGKILL, DOWN, on_begin)
            ends = loop.time() + fault.for_seconds
            while loop.time() < ends:
                for broker_id in brokers:
                    pid = await self._cluster.pid_of(broker_id)
                    if pid is not None and pid not in held and pid != before[broker_id]:
                        held[pid] = f"broker {broker_id}"
                        self._hold(pid, held[pid])
                await asyncio.sleep(POLL_SECONDS)
        finally:
            t_ms = _now_ms()
            self._links.heal_one(fault.number)
            self._resume(held)
            on_heal(t_ms, f"{names(brokers)} may start and are connected")

    async def _lock_store(self, for_seconds: float, on_begin: Tell, on_heal: Tell) -> None:
        """Hold the write lock of the controller's store; the kernel frees it with this process."""
        store = sqlite3.connect(
            self._cluster.data / STORE,
            timeout=LOCK_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            await asyncio.to_thread(store.execute, "BEGIN IMMEDIATE")
            on_begin(_now_ms(), f"the controller's store accepts no write for {for_seconds:g} s")
            await asyncio.sleep(for_seconds)
        finally:
            t_ms = _now_ms()
            store.close()  # which rolls back
            on_heal(t_ms, "the controller's store accepts writes")

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
        on_heal(_now_ms(), f"{names(brokers)} restarted in turn")

    async def _pid(self, broker_id: int) -> int:
        pid = await self._cluster.pid_of(broker_id)
        if pid is None:
            raise CommandFailed(
                expected=f"a process of broker {broker_id}",
                found="none",
                to_do="read the logs next to the report",
            )
        return pid


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
