"""What local mode cannot do is said before anything is hurt; what it does is healed."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_chaos.environments.volumes import Volume
from tidemark_chaos.faults.link_faults import directions_of
from tidemark_chaos.faults.local_faults import (
    NEEDS,
    POSSIBLE,
    STORE,
    LocalFaults,
    impossible,
)
from tidemark_chaos.heal_journal import JOURNAL, HealJournal
from tidemark_chaos.links import CONTROLLER, Links
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import Direction, FaultName, Party, Role, parse_experiment
from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import CommandFailed

TEXT = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {{name: one}}
spec:
  pool: {pool}
  rounds: 1
  guards: {{maxBrokersAtOnce: 9}}
  workload: {{replicationFactor: {factor}}}
  faults: [{fault}]
"""


def problems(fault: str, pool: str = "default", factor: int = 3) -> list[str]:
    text = TEXT.format(pool=pool, factor=factor, fault=fault)
    return impossible(parse_experiment(text).spec, 3)


def test_each_fault_is_possible_or_has_a_reason() -> None:
    assert set(FaultName) == POSSIBLE | NEEDS.keys()
    assert POSSIBLE.isdisjoint(NEEDS)
    assert problems("{kind: kill}") == []


def test_what_local_mode_cannot_do_is_named_with_its_reason() -> None:
    assert problems("{kind: clock-jump, for: 5s}") == [
        "spec.faults[0].kind: clock-jump is not possible in local mode: all processes share the"
        " clock of this machine; the simulator has the fault clock_jump (hack/sim)"
    ]
    disk = parse_experiment(
        TEXT.format(pool="default", factor=3, fault="{kind: disk-full, for: 5s}")
    )
    assert impossible(disk.spec, 3) == []
    assert impossible(disk.spec, 3, volumes="root is needed") == [
        "spec.faults[0].kind: disk-full is not possible on this machine: root is needed"
    ]
    assert "there are 3 brokers, not 5" in problems("{kind: kill}", factor=5)[0]
    assert "the pool 'other' does not exist" in problems("{kind: kill}", pool="other")[0]
    (problem,) = problems("{kind: kill, target: {role: random, count: 4}}")
    assert "spec.faults[0].target.count" in problem


class OneProcess:
    """A cluster whose only broker is a process that sleeps."""

    topic_name = "chaos"
    brokers = 3

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        self.links = Links(lambda _: None, (CONTROLLER, 0, 1, 2))
        self.volumes: dict[int, Volume] = {}
        self.data = Path()

    async def pid_of(self, broker_id: int) -> int | None:
        return self.process.pid if broker_id == 0 else None

    async def status(self) -> ClusterStatus | None:
        return None

    @property
    def operator_pid(self) -> int:
        return self.process.pid

    async def restart_operator(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @property
    def is_paused(self) -> bool:
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def cluster() -> Iterator[OneProcess]:
    found = OneProcess()
    yield found
    found.process.kill()
    found.process.wait()


def pause(for_seconds: float) -> PlannedFault:
    return PlannedFault(1, FaultName.PAUSE, Role.LEADER, 0, 1, for_seconds, for_seconds, 0.0)


def test_a_pause_ends_and_both_moments_are_reported(cluster: OneProcess, tmp_path: Path) -> None:
    told: list[str] = []

    def tell(_: float, text: str) -> None:
        told.append(text)

    faults = LocalFaults(cluster, HealJournal(tmp_path))
    asyncio.run(faults.strike(pause(0.05), (0,), tell, tell))
    assert told == ["SIGSTOP of broker 0 for 0.05 s", "SIGCONT of broker 0"]
    assert not cluster.is_paused


def test_a_broker_without_a_process_is_told(cluster: OneProcess, tmp_path: Path) -> None:
    faults = LocalFaults(cluster, HealJournal(tmp_path))
    with pytest.raises(CommandFailed, match="a process of broker 1"):
        asyncio.run(faults.strike(pause(1), (1,), lambda *_: None, lambda *_: None))


def test_a_pause_that_is_cancelled_is_healed(cluster: OneProcess, tmp_path: Path) -> None:
    async def cancelled() -> None:
        faults = LocalFaults(cluster, HealJournal(tmp_path))
        began = asyncio.Event()
        striking = asyncio.create_task(
            faults.strike(pause(60), (0,), lambda *_: began.set(), lambda *_: None)
        )
        await began.wait()
        await asyncio.to_thread(wait_until_paused, cluster)
        striking.cancel()
        await asyncio.gather(striking, return_exceptions=True)

    asyncio.run(cancelled())
    assert not cluster.is_paused


def wait_until_paused(cluster: OneProcess) -> None:
    _, status = os.waitpid(cluster.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


class Restarted(OneProcess):
    """Its broker 0 has a successor as soon as it was killed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    async def pid_of(self, broker_id: int) -> int | None:
        return self.first.pid if self.first.poll() is None else self.process.pid


def test_a_node_is_down_while_its_successor_is_held(tmp_path: Path) -> None:
    async def down() -> None:
        faults = LocalFaults(cluster, HealJournal(tmp_path))
        fault = replace(pause(60), kind=FaultName.NODE_DOWN)
        striking = asyncio.create_task(
            faults.strike(fault, (0,), lambda _, text: told.append(text), lambda *_: None)
        )
        await asyncio.to_thread(wait_until_paused, cluster)
        assert '"resume"' in (tmp_path / JOURNAL).read_text()
        striking.cancel()
        await asyncio.gather(striking, return_exceptions=True)

    told: list[str] = []
    cluster = Restarted()
    try:
        asyncio.run(down())
        assert told == ["disconnect and kill -9 of broker 0"]
        assert cluster.first.wait() == -signal.SIGKILL
        assert not cluster.is_paused
    finally:
        cluster.process.kill()
        cluster.process.wait()


def test_a_store_accepts_no_write_until_the_outage_is_over(
    cluster: OneProcess, tmp_path: Path
) -> None:
    def write() -> bool:
        store = sqlite3.connect(tmp_path / STORE, timeout=0)
        try:
            store.execute("INSERT INTO objects VALUES (1)")
            store.commit()
        except sqlite3.OperationalError as error:
            assert "locked" in str(error)
            return False
        finally:
            store.close()
        return True

    async def outage() -> None:
        fault = replace(pause(0.05), kind=FaultName.API_SERVER_OUTAGE, role=Role.CONTROLLER)
        faults = LocalFaults(cluster, HealJournal(tmp_path))
        await faults.strike(
            fault, (), lambda *_: seen.append(write()), lambda *_: seen.append(write())
        )

    store = sqlite3.connect(tmp_path / STORE)
    store.execute("PRAGMA journal_mode=WAL")
    store.execute("CREATE TABLE objects (id INTEGER)")
    store.commit()
    cluster.data = tmp_path
    seen: list[bool] = []
    asyncio.run(outage())
    assert seen == [False, True]
    store.close()


@pytest.mark.parametrize(
    ("from_", "direction", "cut"),
    [
        (tuple(Party), Direction.OUT, [(1, 0), (1, 2), (1, CONTROLLER)]),
        ((Party.PEERS,), Direction.IN, [(0, 1), (2, 1)]),
        ((Party.CONTROLLER,), Direction.BOTH, [(1, CONTROLLER), (CONTROLLER, 1)]),
    ],
)
def test_a_network_fault_disturbs_the_links_that_it_names(
    from_: tuple[Party, ...], direction: Direction, cut: list[tuple[int, int]]
) -> None:
    fault = replace(pause(1), kind=FaultName.NETWORK_CUT, from_=from_, direction=direction)
    assert directions_of(fault, (1,), 3) == cut
