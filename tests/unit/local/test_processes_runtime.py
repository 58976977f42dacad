"""Brokers of local mode when the machine cannot start a process: it is tried again."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.manifests.specs import PoolSpec
from tidemark_operator.runtimes import processes
from tidemark_operator.runtimes.broker_runtime import BrokerProcess, StartBroker
from tidemark_operator.runtimes.processes import ProcessesRuntime, ProcessSettings
from tidemark_protocol.ids import BrokerId

from tests.waiting import eventually

POOL = PoolSpec("shop", "default", "uid", 1, 1, "image", "Never", "1Gi", None, "Retain")


@dataclass
class FakeProcess:
    pid: int
    returncode: int | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> int:
        await self.ended.wait()
        self.returncode = 1
        return self.returncode

    def send_signal(self, _signal: int) -> None:
        self.ended.set()


class Machine:
    """Starts processes, or has none to spare."""

    def __init__(self) -> None:
        self.failures = 0  # of the next starts
        self.asked = 0
        self.started: list[FakeProcess] = []

    async def spawn(self, *_arguments: str, **_options: Any) -> FakeProcess:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        self.started.append(FakeProcess(100 + len(self.started)))
        return self.started[-1]


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[Machine, ProcessesRuntime], Awaitable[None]],
) -> None:
    machine = Machine()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", machine.spawn)
    monkeypatch.setattr(processes, "FIRST_RESTART_DELAY_S", 0)

    async def ran() -> None:
        runtime = ProcessesRuntime(
            ProcessSettings(tmp_path, 18080, 19092, "127.0.0.1:17070"),
            on_exit=lambda pool, broker_id: None,
            on_due=lambda pool: None,
        )
        await scenario(machine, runtime)
        await runtime.stop_all()

    asyncio.run(asyncio.wait_for(ran(), 20))


async def process_of(runtime: ProcessesRuntime) -> BrokerProcess:
    (broker,) = (await runtime.observe(POOL)).brokers
    return broker.process


def test_a_broker_that_could_not_be_started_is_absent_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(machine: Machine, runtime: ProcessesRuntime) -> None:
        machine.failures = 1
        with pytest.raises(OSError, match="temporarily unavailable"):
            await runtime.apply(POOL, StartBroker(BrokerId(0)))
        assert await process_of(runtime) is BrokerProcess.ABSENT
        await runtime.apply(POOL, StartBroker(BrokerId(0)))
        assert await process_of(runtime) is BrokerProcess.RUNNING

    run(tmp_path, monkeypatch, scenario)


def test_a_broker_that_ended_is_started_as_soon_as_the_machine_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(machine: Machine, runtime: ProcessesRuntime) -> None:
        await runtime.apply(POOL, StartBroker(BrokerId(0)))
        machine.failures = 3
        machine.started[0].ended.set()
        await eventually(lambda: len(machine.started) == 2)
        assert (machine.asked, await process_of(runtime)) == (5, BrokerProcess.RUNNING)

    run(tmp_path, monkeypatch, scenario)
