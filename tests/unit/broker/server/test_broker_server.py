"""How a whole broker process ends, and what the next start may claim: the real broker on a real
volume and the real controller, over a link in memory."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.clean_shutdown import STORED_BOOT_RECORD
from tidemark_broker.replication.results import ProduceResult
from tidemark_broker.server.background import disk_space
from tidemark_broker.server.broker_server import (
    EXIT_CLEAN,
    EXIT_REJECTED,
    EXIT_STORAGE_FAILED,
    BrokerServer,
)
from tidemark_broker.server.environment import BrokerEnvironment
from tidemark_operator.api.kinds import BROKER
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_protocol.controller_messages import RegisterResponse
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, Offset

from tests.support.broker_on_disk import Link, Machine
from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import HANG_SECONDS, eventually, run

CLEAN_STOP = ".kafka_cleanshutdown"


async def serve_http(
    broker: BrokerServer, stop: asyncio.Event, on_listening: Callable[[int], None]
) -> None:
    on_listening(8080)
    await stop.wait()


class Running:
    """One process of broker 0."""

    def __init__(
        self, harness: Harness, machine: Machine, disk: FaultyDisk | None = None, **settings: Any
    ) -> None:
        self.harness = harness
        self.disk = disk or FaultyDisk()
        self.link = Link(harness, BrokerIdentity(POOL, machine.broker_id))
        environment = BrokerEnvironment(
            disk=self.disk,
            new_controller_transport=lambda: self.link,
            serve_http=serve_http,
            new_uuid=uuid4,
            wall_clock_s=lambda: 0.0,
            processing_clock_s=lambda: 0.0,
            on_serving=lambda: None,
        )
        self.broker = BrokerServer(replace(machine.settings(), **settings), environment)
        self.ending = asyncio.create_task(self.broker.run())

    async def served(self) -> None:
        await eventually(lambda: self.broker.is_ready()[0])

    async def lead_a_record(self) -> None:
        """Alone."""
        await self.served()
        await self.harness.service.create_topic(
            POOL, self.harness.topic_state(1, 1), ((self.broker.settings.broker_id,),)
        )
        partitions = self.broker.partitions
        await eventually(lambda: not isinstance(partitions.find_leading("orders", 0), ErrorCode))
        self.append(b"a")

    def append(self, value: bytes) -> None:
        """Committed at once."""
        batch = memoryview(build_batch([NewRecord(None, value, ())], timestamp_ms=0))
        results: list[ProduceResult] = []
        self.broker.partitions.produce(
            "orders", 0, batch, acks=-1, timeout_ms=1000, done=results.append
        )
        assert [result.error for result in results] == [ErrorCode.NONE]

    async def ended(self) -> int:
        return await asyncio.wait_for(self.ending, HANG_SECONDS)

    def sigterm(self) -> None:
        self.broker._on_signal()


@asynccontextmanager
async def controller() -> AsyncIterator[Harness]:
    """Its time passes quickly by itself."""
    harness = await Harness().start(0)

    async def pass_time() -> None:
        while True:
            await harness.tick()
            await asyncio.sleep(0.005)

    passing = asyncio.create_task(pass_time())
    try:
        yield harness
    finally:
        passing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await passing


def test_a_stopped_broker_is_fenced_leaves_its_proof_and_starts_clean(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            process = Running(harness, machine)
            await process.served()
            assert (machine.path / STORED_BOOT_RECORD).exists()
            process.sigterm()
            assert await process.ended() == EXIT_CLEAN
            assert (machine.path / CLEAN_STOP).exists()
            stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
            assert stored["state"] == "Fenced"
            assert await is_clean_start(harness, machine)

    run(scenario)


async def is_clean_start(harness: Harness, machine: Machine) -> bool:
    """By the request alone: the broker before it ended the loop's worker threads with itself."""
    return (await harness.service.register(machine.open().registration())).is_clean


def stored_clean_since(harness: Harness) -> int:
    found: int = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]["cleanSince"]
    return found


def test_a_stop_that_cannot_write_its_proof_is_recorded_before_the_process_ends(
    tmp_path: Path,
) -> None:
    """The last flush fails: neither the stop proof nor the boot stamp may count."""

    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            process = Running(harness, machine)
            await process.served()
            process.disk.io_failure["write"] = errno.EIO
            process.sigterm()
            assert await process.ended() == EXIT_STORAGE_FAILED
            assert not (machine.path / CLEAN_STOP).exists()
            assert stored_clean_since(harness) == 2
            assert not await is_clean_start(harness, machine)

    run(scenario)


def test_a_disk_that_fails_ends_the_process_once_that_is_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            process = Running(harness, machine)
            await process.served()
            process.disk.io_failure["sync"] = errno.EIO
            process.disk.io_failure["remove"] = errno.EIO
            assert await process.ended() == EXIT_STORAGE_FAILED  # the probe found it
            assert stored_clean_since(harness) == 2
            assert (machine.path / STORED_BOOT_RECORD).exists()
            assert not await is_clean_start(harness, machine)

    run(scenario)


def test_a_disk_that_fails_before_the_registration_gives_nothing_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            previous = await machine.start()
            previous.stop_cleanly()
            io_failure = Running(harness, machine)
            io_failure.link.is_cut = True
            await io_failure.link.was_called.wait()
            io_failure.disk.io_failure["sync"] = errno.EIO
            assert await io_failure.ended() == EXIT_STORAGE_FAILED
            assert not (machine.path / CLEAN_STOP).exists()
            assert not await is_clean_start(harness, machine)

    run(scenario)


def test_a_check_of_the_disk_that_is_due_at_the_end_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker is left for it: it would end the broker with an error instead of its exit code."""
    monkeypatch.setattr(disk_space, "INTERVAL_SECONDS", 0.0)  # one is always due

    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            waiting = Running(harness, machine)
            waiting.link.is_cut = True
            await waiting.link.was_called.wait()
            waiting.sigterm()
            await waiting.ended()

    run(scenario)


def test_a_process_stopped_before_it_could_register_leaves_the_volume_as_it_found_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            previous = await machine.start()
            previous.stop_cleanly()
            found = (machine.path / CLEAN_STOP).read_bytes()
            waiting = Running(harness, machine)
            waiting.link.is_cut = True
            await waiting.link.was_called.wait()
            assert not (machine.path / CLEAN_STOP).exists()
            waiting.sigterm()
            await waiting.ended()
            assert (machine.path / CLEAN_STOP).read_bytes() == found
            assert await is_clean_start(harness, machine)

    run(scenario)


def test_one_that_is_refused_for_good_leaves_the_volume_as_it_found_it(tmp_path: Path) -> None:
    """With the address of another cluster's controller. Else the last member that could lead would
    have lost its proof by a start that changed nothing."""

    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            (await machine.start()).stop_cleanly()
            found = (machine.path / CLEAN_STOP).read_bytes()
            refused = Running(harness, machine)
            refused.link.answer = RegisterResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, "another's")
            assert await refused.ended() == EXIT_REJECTED
            assert (machine.path / CLEAN_STOP).read_bytes() == found
            assert await is_clean_start(harness, machine)

    run(scenario)


def test_one_whose_port_is_taken_leaves_the_volume_as_it_found_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            (await machine.start()).stop_cleanly()
            with socket.create_server(("127.0.0.1", 0)) as other:
                port = other.getsockname()[1]
                process = Running(harness, machine, listen_host="127.0.0.1", kafka_port=port)
                with pytest.raises(ExceptionGroup) as met:
                    await process.ended()
            assert met.group_contains(OSError)
            assert await is_clean_start(harness, machine)

    run(scenario)


FOREVER_SECONDS = 3600.0


def written_watermarks(machine: Machine) -> dict[tuple[str, int], Offset]:
    path = machine.path / checkpoint_formats.HIGH_WATERMARKS
    return checkpoint_formats.decode_offsets(path.read_bytes()) if path.exists() else {}


def test_a_running_broker_writes_its_high_watermarks_from_time_to_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            process = Running(harness, machine, high_watermark_checkpoint_seconds=0.01)
            await process.lead_a_record()
            await eventually(lambda: written_watermarks(machine) == {("orders", 0): 1})
            process.sigterm()
            assert await process.ended() == EXIT_CLEAN

    run(scenario)


def test_a_clean_stop_writes_the_last_high_watermarks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            process = Running(harness, machine, high_watermark_checkpoint_seconds=FOREVER_SECONDS)
            await process.lead_a_record()
            assert written_watermarks(machine) == {}
            process.sigterm()
            assert await process.ended() == EXIT_CLEAN
            assert written_watermarks(machine) == {("orders", 0): 1}
            assert machine.open().directory.high_watermarks == {(ORDERS, 0): 1}

    run(scenario)


@pytest.mark.parametrize(
    ("limit_seconds", "signals"),
    [(0.05, 1), (FOREVER_SECONDS, 2)],
    ids=["until the limit", "until the second signal"],
)
def test_a_registered_broker_that_no_controller_answers_stops_with_its_proof(
    tmp_path: Path, limit_seconds: float, signals: int
) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            process = Running(harness, machine, stop_limit_seconds=limit_seconds)
            await process.lead_a_record()
            assert process.broker.directory is not None
            process.broker.directory.checkpoint_recovery_points()
            process.append(b"not synced by anything before the stop")
            process.link.is_cut = True
            process.disk.done.clear()
            for _ in range(signals):
                process.sigterm()
            assert await process.ended() == EXIT_CLEAN
            assert process.broker.session is not None
            assert not process.broker.session.may_stop.is_set()
            synced = process.disk.done.index(("sync", machine.log_file().name))
            assert ("write", CLEAN_STOP) in process.disk.done[synced:]
            assert written_watermarks(machine) == {("orders", 0): 2}
            assert await is_clean_start(harness, machine)

    run(scenario)
