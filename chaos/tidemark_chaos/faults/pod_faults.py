"""Strike broker pods and the operator of the kind cluster, and heal what was struck.

What lasts ends by itself, so it needs no runner that lives: a paused broker is resumed by the shell
that stopped it, inside the pod, a cut or a paused operator by a shell in its node.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.waiting import until

from tidemark_chaos.environments.chaos_environment import Tell
from tidemark_chaos.faults.fault import Fault
from tidemark_chaos.faults.local_faults import POSSIBLE as POSSIBLE_IN_LOCAL_MODE
from tidemark_chaos.faults.node_scripts import Cut
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import ExperimentSpec, FaultName, Party, Role

BACK_SECONDS = 120.0
POLL_SECONDS = 0.1

POSSIBLE = frozenset(
    {
        FaultName.KILL,
        FaultName.TERMINATE,
        FaultName.PAUSE,
        FaultName.POD_DELETE,
        FaultName.ROLLING_RESTART,
        FaultName.NETWORK_CUT,
    }
)
OF_THE_OPERATOR = frozenset({FaultName.KILL, FaultName.PAUSE})
NEEDS_THE_NODE = frozenset({FaultName.NETWORK_CUT})
NO_NETEM = "its nodes need not have tc netem; local mode can do it"
NO_PRIVILEGES = "pods of the restricted profile may not do that"
NEEDS = {
    FaultName.KILL_TWICE: "the kubelet restarts a container late the second time; use kill",
    FaultName.NODE_DOWN: "stop a node's container by hand, or use kill",
    FaultName.NETWORK_DELAY: NO_NETEM,
    FaultName.NETWORK_LOSS: NO_NETEM,
    FaultName.BANDWIDTH: NO_NETEM,
    FaultName.DISK_FULL: "volumes share the disk of their node",
    FaultName.DISK_SLOW: "volumes share the disk of their node",
    FaultName.DISK_ERROR: "volumes share the disk of their node",
    FaultName.CLOCK_JUMP: "pods share the clock of their node",
    FaultName.API_SERVER_OUTAGE: "the runner itself needs the API server",
}


class Pods(Protocol):
    topic_name: str

    async def status(self) -> ClusterStatus | None: ...

    async def signal(self, broker_id: int, number: int, words: str) -> Fault: ...

    async def pause(self, broker_id: int, seconds: float) -> Fault: ...

    async def delete_pod(self, broker_id: int, *, is_forced: bool) -> Fault: ...

    async def kill_operator(self) -> Fault: ...


class Nodes(Protocol):
    """The machines under the pods, where they are within reach."""

    async def pause_operator(self, seconds: float) -> Fault: ...

    async def cut(
        self, broker_id: int, others: Sequence[int], *, from_: Sequence[Party], cut: Cut
    ) -> tuple[Fault, Callable[[], Awaitable[None]]]: ...


def impossible(spec: ExperimentSpec) -> list[str]:
    """Return a sentence for each part of an experiment that a kind cluster cannot do."""
    problems = []
    if spec.pool != "default":
        problems.append(
            f"spec.pool: not possible on kind: the run makes a pool default, not {spec.pool!r}"
        )
    return [
        *problems,
        *(problem for problem, _ in _impossible_faults(spec, "on kind", has_nodes=True)),
    ]


def impossible_in_cluster(spec: ExperimentSpec) -> list[str]:
    """Return a sentence for each fault that pods of a cluster cannot do."""
    return [
        f"{problem}; local mode offers it (tidemark chaos run)" if is_local else problem
        for problem, is_local in _impossible_faults(spec, "in a cluster", has_nodes=False)
    ]


def _impossible_faults(
    spec: ExperimentSpec, where: str, *, has_nodes: bool
) -> Iterator[tuple[str, bool]]:
    """Yield a sentence for each impossible fault, and whether local mode can do it.

    `has_nodes`: whether scripts can run in the nodes, as on kind.
    """
    of_the_operator = OF_THE_OPERATOR if has_nodes else frozenset({FaultName.KILL})
    for number, fault in enumerate(spec.faults):
        place, is_local = f"spec.faults[{number}].kind", fault.kind in POSSIBLE_IN_LOCAL_MODE
        if fault.kind not in POSSIBLE:
            reason = NEEDS[fault.kind]
            yield f"{place}: {fault.kind} is not possible {where}: {reason}", is_local
        elif not has_nodes and fault.kind in NEEDS_THE_NODE:
            yield f"{place}: {fault.kind} is not possible {where}: {NO_PRIVILEGES}", is_local
        elif fault.target.role is Role.CONTROLLER and fault.kind not in of_the_operator:
            yield f"{place}: {fault.kind} of the controller is not possible {where}", is_local


class PodFaults:
    def __init__(self, pods: Pods, nodes: Nodes | None = None) -> None:
        """Create it; without `nodes` an experiment has no faults that need them."""
        self._pods = pods
        self._reachable_nodes = nodes

    async def strike(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        """Do a fault to the end, its healing included. Raises CommandFailed."""
        if fault.role is Role.CONTROLLER:
            await self._strike_operator(fault, on_begin, on_heal)
            return
        match fault.kind:
            case FaultName.KILL:
                await self._each(brokers, on_begin, 9, "kill -9 of")
            case FaultName.TERMINATE:
                await self._each(brokers, on_begin, 15, "SIGTERM to")
            case FaultName.POD_DELETE:
                for broker_id in brokers:
                    _tell(on_begin, await self._pods.delete_pod(broker_id, is_forced=True))
            case FaultName.ROLLING_RESTART:
                await self._roll(brokers, on_begin, on_heal)
            case FaultName.NETWORK_CUT:
                await self._cut(fault, brokers, on_begin, on_heal)
            case FaultName.PAUSE:
                await self._pause(brokers, fault.for_seconds, on_begin, on_heal)
            case _:
                raise AssertionError(f"{fault.kind} is not possible on kind")

    @property
    def _nodes(self) -> Nodes:
        assert self._reachable_nodes is not None, "rejected by impossible_in_cluster"
        return self._reachable_nodes

    def heal(self) -> list[str]:
        """Do nothing: what lasts ends by itself, and all else is over at once."""
        return []

    async def _strike_operator(self, fault: PlannedFault, on_begin: Tell, on_heal: Tell) -> None:
        if fault.kind is FaultName.KILL:
            _tell(on_begin, await self._pods.kill_operator())
            return
        _tell(on_begin, await self._nodes.pause_operator(fault.for_seconds))
        await asyncio.sleep(fault.for_seconds)
        on_heal(time.time() * 1000, "the operator continues")

    async def _cut(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        status = await self._pods.status()
        known = () if status is None else status.brokers
        others = [row.broker_id for row in known if row.broker_id not in brokers]
        cut = Cut(fault.direction, fault.for_seconds)
        heals = []
        try:
            for broker_id in brokers:
                found, heal = await self._nodes.cut(broker_id, others, from_=fault.from_, cut=cut)
                heals.append(heal)
                _tell(on_begin, found)
            await asyncio.sleep(fault.for_seconds)
        finally:
            await asyncio.shield(asyncio.gather(*(heal() for heal in heals)))
            on_heal(time.time() * 1000, f"brokers {', '.join(map(str, brokers))} are connected")

    async def _each(
        self, brokers: tuple[int, ...], on_begin: Tell, number: int, words: str
    ) -> None:
        for found in await asyncio.gather(
            *(self._pods.signal(broker_id, number, words) for broker_id in brokers)
        ):
            _tell(on_begin, found)

    async def _pause(
        self, brokers: tuple[int, ...], seconds: float, on_begin: Tell, on_heal: Tell
    ) -> None:
        for found in await asyncio.gather(
            *(self._pods.pause(broker_id, seconds) for broker_id in brokers)
        ):
            _tell(on_begin, found)
        await asyncio.sleep(seconds)
        on_heal(time.time() * 1000, f"brokers {', '.join(map(str, brokers))} continue")

    async def _roll(self, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell) -> None:
        """Delete the pods in turn; each broker is back in sync before the next one."""
        tell = on_begin
        for broker_id in brokers:
            before = _epoch(await self._pods.status(), broker_id)
            _tell(tell, await self._pods.delete_pod(broker_id, is_forced=False))
            tell = on_heal

            async def is_back(broker_id: int = broker_id, before: int = before) -> bool:
                status = await self._pods.status()
                view = None if status is None else status.topic(self._pods.topic_name)
                has_new_epoch = _epoch(status, broker_id) > before
                return has_new_epoch and view is not None and view.is_fully_in_sync

            await until(
                is_back,
                f"broker {broker_id} back in sync",
                within_seconds=BACK_SECONDS,
                every_seconds=POLL_SECONDS,
                to_do="see the pool's pods with kubectl",
            )
        on_heal(time.time() * 1000, f"brokers {', '.join(map(str, brokers))} restarted in turn")


def _epoch(status: ClusterStatus | None, broker_id: int) -> int:
    row = None if status is None else status.broker(broker_id)
    return -1 if row is None else row.broker_epoch


def _tell(tell: Tell, fault: Fault) -> None:
    tell(fault.t_ms, fault.words)
