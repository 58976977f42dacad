"""Rounds of signals against real, if idle, processes: who is frozen, killed, and woken again."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tidemark_chaos.faults.fault import TOPIC, FaultKind
from tidemark_chaos.faults.process_signals import ProcessFaults
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import PartitionView, TopicView
from tidemark_client.waiting import until

from tests.support.waiting import HANG_SECONDS, eventually

IN_SYNC = PartitionView(0, 0, 1, (0, 1, 2), (0, 1, 2))


class IdleCluster:
    """Three processes that do nothing; the controller's view is what the test says."""

    looks = 0  # at the status

    def __init__(self) -> None:
        self.processes = [self._start() for _ in range(3)]
        self.view = IN_SYNC
        self.epochs = [0, 1, 2]

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

    def state(self, broker_id: int) -> str:
        """As the kernel says: S(leeping), T (stopped), Z (dead)."""
        text = Path(f"/proc/{self.processes[broker_id].pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0]

    async def until_state(self, broker_id: int, states: str) -> None:
        async def is_so() -> bool:
            return self.state(broker_id) in states

        await self.until(is_so, f"process {broker_id} to be {states}")

    async def pid_of(self, broker_id: int) -> int | None:
        return self.processes[broker_id].pid

    async def status(self) -> ClusterStatus | None:
        self.looks += 1
        rows = tuple(BrokerRow(number, "Active", epoch) for number, epoch in enumerate(self.epochs))
        return ClusterStatus(rows, (TopicView(TOPIC, (self.view,)),))

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        await until(is_so, what, within_seconds=HANG_SECONDS, every_seconds=0.001, to_do="look")


@pytest.fixture
def cluster() -> Iterator[IdleCluster]:
    idle = IdleCluster()
    yield idle
    for process in idle.processes:
        process.kill()
        process.wait()


def led_by(leader: int, leader_epoch: int, in_sync: tuple[int, ...] = (0, 1, 2)) -> PartitionView:
    return PartitionView(0, leader, leader_epoch, (0, 1, 2), in_sync)


def test_a_frozen_leader_wakes_once_others_lead(cluster: IdleCluster) -> None:
    async def experiment() -> None:
        faults = ProcessFaults(cluster)
        await faults.strike(FaultKind.FREEZE, IN_SYNC)
        await cluster.until_state(0, "T")
        rest = asyncio.create_task(faults.follow_up(FaultKind.FREEZE, IN_SYNC))
        looks = cluster.looks
        await eventually(lambda: cluster.looks > looks + 2)
        assert not rest.done()
        assert cluster.state(0) == "T"
        cluster.view = led_by(1, 2)
        assert await rest is not None
        await cluster.until_state(0, "SR")

    asyncio.run(experiment())


def test_the_last_one_in_sync_is_killed_and_must_lead_again_before_the_others_wake(
    cluster: IdleCluster,
) -> None:
    async def experiment() -> None:
        faults = ProcessFaults(cluster)
        striking = asyncio.create_task(faults.strike(FaultKind.SET_OF_ONE, IN_SYNC))
        await cluster.until_state(1, "T")
        assert cluster.state(2) != "T"  # not both at once
        cluster.view = led_by(0, 1, (0, 2))
        await striking
        await cluster.until_state(2, "T")
        rest = asyncio.create_task(faults.follow_up(FaultKind.SET_OF_ONE, IN_SYNC))
        cluster.view = led_by(0, 1, (0,))
        await cluster.until_state(0, "Z")
        assert [cluster.state(1), cluster.state(2)] == ["T", "T"]
        cluster.view = led_by(0, 2, (0,))
        assert await rest is not None
        await cluster.until_state(1, "SR")
        await cluster.until_state(2, "SR")

    asyncio.run(experiment())


def test_what_is_frozen_can_always_be_woken(cluster: IdleCluster) -> None:
    async def experiment() -> None:
        faults = ProcessFaults(cluster)
        await faults.strike(FaultKind.SHORT_FREEZE, IN_SYNC)
        await cluster.until_state(0, "T")
        assert faults.thaw() is not None
        await cluster.until_state(0, "SR")
        assert faults.thaw() is None

    asyncio.run(experiment())


def test_a_broker_without_a_process_is_told() -> None:
    class Gone(IdleCluster):
        def __init__(self) -> None:
            self.epochs = []
            self.view = IN_SYNC

        async def pid_of(self, broker_id: int) -> int | None:
            return None

    with pytest.raises(CommandFailed):
        asyncio.run(ProcessFaults(Gone()).strike(FaultKind.KILL, IN_SYNC))
