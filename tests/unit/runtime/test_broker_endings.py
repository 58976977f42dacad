"""How a whole broker process ends, and what the next start may claim: the real broker on a real
volume and the real controller, over a link in memory."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from tidemark_broker.runtime.broker import (
    EXIT_CLEAN,
    EXIT_STORAGE_FAILED,
    Broker,
)
from tidemark_broker.runtime.environment import BrokerEnvironment
from tidemark_broker.storage.start_proofs import BOOT_STAMP
from tidemark_operator.stores.object_store import BROKER
from tidemark_protocol.ids import BrokerId

from tests.scenarios.broker_on_disk import Link, Machine
from tests.unit.controller.control_rig import Rig
from tests.unit.storage.faulty_disk import FaultyDisk
from tests.waiting import HANG_SECONDS, eventually, run

CLEAN_STOP = ".kafka_cleanshutdown"


async def serve_http(
    broker: Broker, stop: asyncio.Event, on_listening: Callable[[int], None]
) -> None:
    on_listening(8080)
    await stop.wait()


class Running:
    """One process of broker 0."""

    def __init__(self, rig: Rig, machine: Machine) -> None:
        self.rig = rig
        self.disk = FaultyDisk()
        self.link = Link(rig)
        environment = BrokerEnvironment(
            disk=self.disk,
            new_controller_transport=lambda: self.link,
            serve_http=serve_http,
            new_uuid=uuid4,
            wall_clock_s=lambda: 0.0,
            processing_clock_s=lambda: 0.0,
            on_serving=lambda: None,
        )
        self.broker = Broker(machine.settings(), environment)
        self.ending = asyncio.create_task(self.broker.run())

    async def served(self) -> None:
        await eventually(lambda: self.broker.is_ready()[0])

    async def ended(self) -> int:
        return await asyncio.wait_for(self.ending, HANG_SECONDS)

    def sigterm(self) -> None:
        self.broker._on_signal()


@asynccontextmanager
async def controller() -> AsyncIterator[Rig]:
    """Its time passes quickly by itself."""
    rig = await Rig().start(0)

    async def pass_time() -> None:
        while True:
            await rig.tick()
            await asyncio.sleep(0.005)

    passing = asyncio.create_task(pass_time())
    try:
        yield rig
    finally:
        passing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await passing


def test_a_stopped_broker_is_fenced_leaves_its_proof_and_starts_clean(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as rig:
            machine = Machine(rig, BrokerId(0), tmp_path / "volume")
            process = Running(rig, machine)
            await process.served()
            assert (machine.path / BOOT_STAMP).exists()
            process.sigterm()
            assert await process.ended() == EXIT_CLEAN
            assert (machine.path / CLEAN_STOP).exists()
            stored = rig.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
            assert stored["state"] == "Fenced"
            assert await is_clean_start(rig, machine)

    run(scenario)


async def is_clean_start(rig: Rig, machine: Machine) -> bool:
    """By the request alone: the broker before it ended the loop's worker threads with itself."""
    return (await rig.service.register(machine.open().registration())).is_clean


def stored_clean_since(rig: Rig) -> int:
    found: int = rig.store.objects[(BROKER.kind, "shop", "default-0")]["status"]["cleanSince"]
    return found


def test_a_stop_that_cannot_write_its_proof_is_recorded_before_the_process_ends(
    tmp_path: Path,
) -> None:
    """The last flush fails: neither the stop proof nor the boot stamp may count."""

    async def scenario() -> None:
        async with controller() as rig:
            machine = Machine(rig, BrokerId(0), tmp_path / "volume")
            process = Running(rig, machine)
            await process.served()
            process.disk.failing["write"] = errno.EIO
            process.sigterm()
            assert await process.ended() == EXIT_STORAGE_FAILED
            assert not (machine.path / CLEAN_STOP).exists()
            assert stored_clean_since(rig) == 2
            assert not await is_clean_start(rig, machine)

    run(scenario)


def test_a_disk_that_fails_ends_the_process_once_that_is_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as rig:
            machine = Machine(rig, BrokerId(0), tmp_path / "volume")
            process = Running(rig, machine)
            await process.served()
            process.disk.failing["sync"] = errno.EIO
            process.disk.failing["remove"] = errno.EIO
            assert await process.ended() == EXIT_STORAGE_FAILED  # the probe found it
            assert stored_clean_since(rig) == 2
            assert (machine.path / BOOT_STAMP).exists()
            assert not await is_clean_start(rig, machine)

    run(scenario)


def test_a_disk_that_fails_before_the_registration_gives_nothing_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as rig:
            machine = Machine(rig, BrokerId(0), tmp_path / "volume")
            former = await machine.start()
            former.stop_cleanly()
            failing = Running(rig, machine)
            failing.link.is_cut = True
            await failing.link.was_called.wait()
            failing.disk.failing["sync"] = errno.EIO
            assert await failing.ended() == EXIT_STORAGE_FAILED
            assert not (machine.path / CLEAN_STOP).exists()
            assert not await is_clean_start(rig, machine)

    run(scenario)


def test_a_process_stopped_before_it_could_register_leaves_the_volume_as_it_found_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with controller() as rig:
            machine = Machine(rig, BrokerId(0), tmp_path / "volume")
            former = await machine.start()
            former.stop_cleanly()
            found = (machine.path / CLEAN_STOP).read_bytes()
            waiting = Running(rig, machine)
            waiting.link.is_cut = True
            await waiting.link.was_called.wait()
            assert not (machine.path / CLEAN_STOP).exists()
            waiting.sigterm()
            await waiting.ended()
            assert (machine.path / CLEAN_STOP).read_bytes() == found
            assert await is_clean_start(rig, machine)

    run(scenario)
