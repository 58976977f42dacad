"""Brokers of local mode when the machine cannot start a process: it is tried again."""

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.broker_runtime import processes
from tidemark_operator.broker_runtime.broker_runtime import BrokerProcess, StartBroker
from tidemark_operator.broker_runtime.processes import ProcessesRuntime, ProcessSettings
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool
from tests.support.waiting import eventually

POOL = broker_pool(replicas=1, image="image", imagePullPolicy="Never", storage={"size": "1Gi"})


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
        self.requested = 0
        self.started: list[FakeProcess] = []
        self.taken: set[int] = set()  # ports
        self.reported: list[str] = []
        self.options: dict[str, Any] = {}

    async def spawn(self, *_arguments: str, **options: Any) -> FakeProcess:
        self.requested += 1
        self.options = options
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
    monkeypatch.setattr(processes, "is_free", lambda host, port: port not in machine.taken)

    async def ran() -> None:
        runtime = ProcessesRuntime(
            ProcessSettings(
                tmp_path, 18080, 19092, "127.0.0.1:17070", lambda *_: tmp_path / "token"
            ),
            on_exit=lambda pool, broker_id: None,
            on_due=lambda pool: None,
            tell=machine.reported.append,
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
        assert (machine.requested, await process_of(runtime)) == (5, BrokerProcess.RUNNING)

    run(tmp_path, monkeypatch, scenario)


def test_a_port_that_is_taken_is_told_in_one_sentence_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(machine: Machine, runtime: ProcessesRuntime) -> None:
        machine.taken.add(19192)  # the second pool begins there
        for _ in range(2):
            with pytest.raises(OSError, match="port 19192"):
                await runtime.apply(POOL, StartBroker(BrokerId(0)))
        (sentence,) = machine.reported
        assert "broker 0 of default cannot be started" in sentence
        assert "port 19192 of 127.0.0.1 is in use" in sentence
        machine.taken.clear()
        await runtime.apply(POOL, StartBroker(BrokerId(0)))
        assert await process_of(runtime) is BrokerProcess.RUNNING

    run(tmp_path, monkeypatch, scenario)


def test_a_broker_whose_parent_died_before_its_death_signal_was_set_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(Exception):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    async def scenario(machine: Machine, runtime: ProcessesRuntime) -> None:
        await runtime.apply(POOL, StartBroker(BrokerId(0)))
        in_child = machine.options["preexec_fn"]
        calls: list[tuple[int, int]] = []
        monkeypatch.setattr(processes._libc, "prctl", lambda *words: calls.append(words))
        monkeypatch.setattr(os, "_exit", end)
        monkeypatch.setattr(os, "getppid", os.getpid)  # as in a child of this process
        in_child()
        monkeypatch.setattr(os, "getppid", lambda: 1)  # the parent is gone
        with pytest.raises(Ended):
            in_child()
        assert calls == [(processes.PR_SET_PDEATHSIG, signal.SIGTERM)] * 2

    run(tmp_path, monkeypatch, scenario)


def test_pool_that_asks_for_tls_is_not_started_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = broker_pool(
        replicas=1,
        image="image",
        imagePullPolicy="Never",
        storage={"size": "1Gi"},
        security={"tls": {"mode": "Required"}},
    )

    async def scenario(machine: Machine, runtime: ProcessesRuntime) -> None:
        with pytest.raises(OSError, match="start `tidemark dev --tls`"):
            await runtime.apply(secured, StartBroker(BrokerId(0)))
        assert machine.started == []

    run(tmp_path, monkeypatch, scenario)
