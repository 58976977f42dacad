"""Inject faults into local broker processes: kill, stop, pause and resume them.

A kind of round may have several steps; each waits for the state that it needs.
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
from tidemark_client.metadata import PartitionView

from tidemark_chaos.faults.fault import TOPIC, Fault, FaultKind

SUCCESSOR_LIFE_SECONDS = 0.3  # it is opening its logs then, or registering
SHORT_FREEZE_SECONDS = 1.0  # a third of a session
AFTER_ELECTION_SECONDS = 0.3  # the new leader acknowledges before the old one wakes


class Cluster(Protocol):
    """Define what faults need to see of the cluster they are injected into."""

    async def pid_of(self, broker_id: int) -> int | None: ...

    async def status(self) -> ClusterStatus | None: ...

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until a condition holds.

        Raises CommandFailed if it does not in time.
        """


class ProcessFaults:
    kinds = frozenset(
        {
            FaultKind.KILL,
            FaultKind.KILL_TWICE,
            FaultKind.STOP,
            FaultKind.FREEZE,
            FaultKind.SHORT_FREEZE,
            FaultKind.SET_OF_ONE,
            FaultKind.ROLLING,
        }
    )

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._frozen: set[int] = set()  # process ids
        self._struck_pid = -1
        self._epochs: dict[int, int] = {}  # of the brokers, before the blow

    async def strike(self, kind: FaultKind, target: PartitionView) -> Fault:
        leader = target.leader
        self._epochs = _epochs(await self._cluster.status())
        match kind:
            case FaultKind.KILL | FaultKind.KILL_TWICE:
                return await self._signal(leader, signal.SIGKILL, "kill -9 of")
            case FaultKind.STOP | FaultKind.ROLLING:
                return await self._signal(leader, signal.SIGTERM, "SIGTERM to")
            case FaultKind.FREEZE | FaultKind.SHORT_FREEZE:
                return await self._freeze(leader)
            case FaultKind.SET_OF_ONE:
                followers = _followers(target)
                fault = await self._freeze(followers[0])
                # One by one: a controller that loses most of its brokers at once suspects itself.
                for index, follower in enumerate(followers[1:], start=1):
                    await self._until_in_sync_are(target, {leader, *followers[index:]})
                    await self._freeze(follower)
                return fault
            case _:
                raise AssertionError(f"{kind} is not possible with signals")

    async def follow_up(self, kind: FaultKind, target: PartitionView) -> Fault | None:
        match kind:
            case FaultKind.KILL_TWICE:
                return await self._kill_successor(target.leader)
            case FaultKind.FREEZE:
                await self._until_leads_nothing(target.leader)
                await asyncio.sleep(AFTER_ELECTION_SECONDS)
                return self.thaw("resumed after others were elected")
            case FaultKind.SHORT_FREEZE:
                await asyncio.sleep(SHORT_FREEZE_SECONDS)
                return self.thaw("resumed before its session ended")
            case FaultKind.SET_OF_ONE:
                return await self._end_the_last_one(target)
            case FaultKind.ROLLING:
                await self._until_back_in_sync(target.leader)
                for follower in _followers(target):
                    await self._signal(follower, signal.SIGTERM, "SIGTERM to")
                    await self._until_back_in_sync(follower)
                return Fault(time.time() * 1000, "all brokers stopped and started in turn")
            case _:
                return None

    def thaw(self, words: str = "wakes") -> Fault | None:
        """Resume the paused brokers; return None if there are none."""
        if not self._frozen:
            return None
        t_ms = time.time() * 1000
        pids, self._frozen = sorted(self._frozen), set()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return Fault(t_ms, f"process {', '.join(map(str, pids))} {words}")

    async def _signal(self, broker_id: int, number: signal.Signals, words: str) -> Fault:
        pid = await self._cluster.pid_of(broker_id)
        if pid is None:
            raise CommandFailed(
                expected=f"a process of broker {broker_id}",
                found="none",
                to_do="see the logs next to the report",
            )
        self._struck_pid = pid
        t_ms = time.time() * 1000
        os.kill(pid, number)
        return Fault(t_ms, f"{words} broker {broker_id} (process {pid})")

    async def _freeze(self, broker_id: int) -> Fault:
        fault = await self._signal(broker_id, signal.SIGSTOP, "freeze (SIGSTOP) of")
        self._frozen.add(self._struck_pid)
        return fault

    async def _kill_successor(self, broker_id: int) -> Fault | None:
        async def has_successor() -> bool:
            return await self._cluster.pid_of(broker_id) not in (None, self._struck_pid)

        await self._cluster.until(has_successor, f"a new process of broker {broker_id}")
        await asyncio.sleep(SUCCESSOR_LIFE_SECONDS)
        pid = await self._cluster.pid_of(broker_id)
        if pid is None:
            return None
        t_ms = time.time() * 1000
        os.kill(pid, signal.SIGKILL)
        return Fault(t_ms, f"kill -9 of its successor too (process {pid}), as it starts")

    async def _end_the_last_one(self, target: PartitionView) -> Fault:
        """Kill the only in-sync replica and pause the others that may lead, so it leads again."""
        leader = target.leader
        await self._until_in_sync_are(target, {leader})
        before = await self._partition(target.partition) or target
        fault = await self._signal(leader, signal.SIGKILL, "alone in sync: kill -9 of")

        async def leads_again() -> bool:
            view = await self._partition(target.partition)
            has_new_epoch = view is not None and view.leader_epoch > before.leader_epoch
            return view is not None and view.leader == leader and has_new_epoch

        await self._cluster.until(leads_again, f"broker {leader} to lead again alone")
        self.thaw()
        return fault

    async def _until_back_in_sync(self, broker_id: int) -> None:
        """Wait until a broker is in sync in a process that began after the round did."""

        async def is_back() -> bool:
            status = await self._cluster.status()
            view = None if status is None else status.topic(TOPIC)
            has_new_epoch = _epochs(status).get(broker_id, -1) > self._epochs.get(broker_id, -1)
            return has_new_epoch and view is not None and view.is_fully_in_sync

        await self._cluster.until(is_back, f"broker {broker_id} to be back in sync")

    async def _until_leads_nothing(self, broker_id: int) -> None:
        async def leads_nothing() -> bool:
            status = await self._cluster.status()
            view = None if status is None else status.topic(TOPIC)
            return view is not None and all(
                entry.leader not in (broker_id, -1) for entry in view.partitions
            )

        await self._cluster.until(leads_nothing, f"leaders other than broker {broker_id}")

    async def _until_in_sync_are(self, target: PartitionView, members: set[int]) -> None:
        async def is_so() -> bool:
            view = await self._partition(target.partition)
            return view is not None and set(view.in_sync_replicas) == members

        names = ", ".join(map(str, sorted(members)))
        await self._cluster.until(is_so, f"{TOPIC}-{target.partition} to have {names} in sync")

    async def _partition(self, partition: int) -> PartitionView | None:
        status = await self._cluster.status()
        topic = None if status is None else status.topic(TOPIC)
        entries = () if topic is None else topic.partitions
        return next((entry for entry in entries if entry.partition == partition), None)


def _epochs(status: ClusterStatus | None) -> dict[int, int]:
    return {} if status is None else {row.broker_id: row.broker_epoch for row in status.brokers}


def _followers(target: PartitionView) -> list[int]:
    return [broker_id for broker_id in target.replicas if broker_id != target.leader]
