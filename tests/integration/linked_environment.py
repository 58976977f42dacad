"""The demo's rounds on a cluster whose links can be cut: who is cut from whom, and until when."""

import asyncio
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import aiohttp
from tidemark_chaos.environments.processes import ProcessesEnvironment
from tidemark_chaos.faults.fault import TOPIC, Fault, FaultKind
from tidemark_chaos.faults.process_signals import AFTER_ELECTION_SECONDS, ProcessFaults
from tidemark_chaos.links import CONTROLLER, Place
from tidemark_client.metadata import PartitionView

from tests.integration.linked_cluster import CONTROL, PORTS

CUTS = frozenset(
    {
        FaultKind.CUT_FOLLOWER,
        FaultKind.CUT_LEADER,
        FaultKind.CUT_FROM_CONTROLLER,
        FaultKind.CUT_FROM_PEERS,
    }
)
# A leader that its followers do not reach gives them the lag window before it goes on without.
MANIFEST = f"""\
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {{name: {TOPIC}}}
spec:
  partitions: 3
  replicationFactor: 3
  config: {{min.insync.replicas: "2", replica.lag.time.max.ms: "2000"}}
"""


class LinkedFaults(ProcessFaults):
    def __init__(self, cluster: "LinkedEnvironment") -> None:
        super().__init__(cluster)
        self._linked = cluster

    async def strike(self, kind: FaultKind, target: PartitionView) -> Fault:
        if kind not in CUTS:
            return await super().strike(kind, target)
        leader = target.leader
        others = [broker_id for broker_id in target.replicas if broker_id != leader]
        victim, from_whom = {
            FaultKind.CUT_FOLLOWER: (others[0], [CONTROLLER, leader, *others[1:]]),
            FaultKind.CUT_LEADER: (leader, [CONTROLLER, *others]),
            FaultKind.CUT_FROM_CONTROLLER: (leader, [CONTROLLER]),
            FaultKind.CUT_FROM_PEERS: (leader, others),
        }[kind]
        t_ms = time.time() * 1000
        await self._linked.cut(both_ways(victim, from_whom))
        names = ", ".join("the controller" if place < 0 else f"{place}" for place in from_whom)
        return Fault(t_ms, f"broker {victim} is cut from {names}")

    async def follow_up(self, kind: FaultKind, target: PartitionView) -> Fault | None:
        match kind:
            case FaultKind.CUT_FOLLOWER:
                others = [broker_id for broker_id in target.replicas if broker_id != target.leader]
                await self._until_in_sync_are(target, {target.leader, *others[1:]})
            case FaultKind.CUT_LEADER | FaultKind.CUT_FROM_CONTROLLER:
                await self._until_leads_nothing(target.leader)
            case FaultKind.CUT_FROM_PEERS:
                await self._until_in_sync_are(target, {target.leader})
            case _:
                return await super().follow_up(kind, target)
        await asyncio.sleep(AFTER_ELECTION_SECONDS)
        t_ms = time.time() * 1000
        await self._linked.cut(())
        return Fault(t_ms, "the cut heals, and what was on its way arrives")


class LinkedEnvironment(ProcessesEnvironment):
    opening = "A controller and 3 brokers, as processes of this machine, over links that we cut."
    default_kinds = tuple(sorted(CUTS))
    possible_kinds = ProcessFaults.kinds | CUTS
    ports = PORTS
    is_audited = False  # what is cut is not what an audit is about; the demo's own tests have one

    def __init__(self, *, events: Path, interval_ms: float = 10.0) -> None:
        super().__init__(manifest=MANIFEST, events=events, interval_ms=interval_ms)
        self.faults = LinkedFaults(self)
        self._control_url = ""

    def cluster_command(self, first_port: int, data: Path) -> list[str]:
        self._control_url = f"http://127.0.0.1:{first_port + CONTROL}"
        return [
            sys.executable,
            "-m",
            "tests.integration.linked_cluster",
            str(first_port),
            str(data),
        ]

    async def cut(self, directions: Iterable[tuple[Place, Place]]) -> None:
        async with (
            aiohttp.ClientSession(trust_env=False) as http,
            http.put(f"{self._control_url}/cuts", json=[list(pair) for pair in directions]) as put,
        ):
            put.raise_for_status()


def both_ways(victim: Place, from_whom: Iterable[Place]) -> list[tuple[Place, Place]]:
    outward = [(victim, place) for place in from_whom]
    return outward + [(place, victim) for _, place in outward]
