"""S8: a lost write-back becomes clean.

fsync fails, the kernel marks the page clean, and the next process on the same kernel finds a log
that looks whole. Nothing that a disk's failure, or a damaged log, puts in doubt counts as clean.
"""

import asyncio
import contextlib
import errno
from pathlib import Path

import pytest
from tidemark_broker.log.clean_shutdown import STORED_BOOT_RECORD
from tidemark_broker.log.errors import StorageFailed
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.server.broker_server import invalidate_clean_shutdown
from tidemark_operator.api.kinds import BROKER
from tidemark_protocol.controller_messages import BootRecord
from tidemark_protocol.ids import BrokerEpoch

from tests.regression.simulated_node import Node
from tests.support.broker_on_disk import Machine, Process, with_an_acknowledged_record
from tests.support.controller_harness import ORDERS
from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import append, values_of
from tests.support.waiting import run


class Ending:
    """The end of a process whose disk failed, while its session goes on polling."""

    def __init__(self, process: Process, *, record_limit_seconds: float = 5.0) -> None:
        self._polling = asyncio.create_task(process.session.run())
        self.voiding = asyncio.create_task(
            invalidate_clean_shutdown(
                process.session, process.directory, record_limit_seconds=record_limit_seconds
            )
        )

    async def done(self) -> None:
        await self.voiding
        self._polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._polling


def test_the_process_ends_once_the_controller_recorded_the_failure(tmp_path: Path) -> None:
    """The stamp cannot be taken off a disk that takes no writes."""

    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        disk = FaultyDisk()
        io_failure = machine.open(disk)
        await io_failure.register()
        await io_failure.serve()
        assert harness.partition().leader == 1
        disk.io_failure["remove"] = errno.EIO
        await Ending(io_failure).done()
        io_failure.kill()
        assert not harness.partition().has_leader
        assert (machine.path / STORED_BOOT_RECORD).exists()
        again = FaultyDisk()
        assert not (await machine.open(again).register()).is_clean
        assert is_written_again_before_a_sync(again, machine)  # the stamp does not speak against it
        assert not harness.partition().has_leader

    run(scenario)


def test_without_a_controller_it_ends_once_the_stamp_is_off_the_volume(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.link.is_cut = True
        await Ending(process, record_limit_seconds=0.01).done()
        process.kill()
        assert not (machine.path / STORED_BOOT_RECORD).exists()
        assert not (await machine.open().register()).is_clean
        assert not harness.partition().has_leader

    run(scenario)


def test_with_neither_it_does_not_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        disk = FaultyDisk()
        io_failure = machine.open(disk)
        await io_failure.register()
        io_failure.link.is_cut = True
        disk.io_failure["sync_directory"] = errno.EIO  # removed, but not for good
        ending = Ending(io_failure, record_limit_seconds=0.01)
        await asyncio.wait((ending.voiding,), timeout=0.1)
        assert not ending.voiding.done()
        disk.io_failure.clear()
        await ending.done()

    run(scenario)


def test_a_failure_that_could_not_be_stored_is_not_told_as_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, _, process = await with_an_acknowledged_record(tmp_path)
        voice = process.voice
        assert voice is not None
        harness.store.faults[BROKER.kind] = ["lost"] * harness.settings.write_attempts
        polling = voice.heartbeat(storage_failed=True)
        for _ in range(20):
            await harness.tick()
        assert not polling.result().is_storage_failure_recorded
        assert (await voice.heartbeat(storage_failed=True)).is_storage_failure_recorded

    run(scenario)


def test_the_stop_proof_of_a_life_whose_storage_failed_proves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        assert process.voice is not None
        assert (await process.voice.heartbeat(storage_failed=True)).is_storage_failure_recorded
        process.stop_cleanly()
        assert not (await machine.open().register()).is_clean

    run(scenario)


def test_a_restart_secures_what_the_killed_process_left_before_it_claims_its_proof(
    tmp_path: Path,
) -> None:
    """The kernel tells of the lost write-back at the next fsync: that start ends, and the one after
    it, which finds nothing wrong any more, is unclean."""

    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        disk = FaultyDisk()
        disk.io_failure["sync"] = errno.EIO
        with pytest.raises(StorageFailed):
            machine.open(disk)
        assert not (machine.path / STORED_BOOT_RECORD).exists()

    run(scenario)


def is_written_again_before_a_sync(disk: FaultyDisk, machine: Machine) -> bool:
    name = machine.log_file().name
    steps = [operation for operation, of in disk.done if of == name]
    return "write_at" in steps[: steps.index("sync")]


@pytest.mark.parametrize("end", ["stamp removed", "killed before that", "stopped cleanly"])
def test_only_what_a_stop_proof_vouches_for_is_not_written_again(tmp_path: Path, end: str) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        if end == "stopped cleanly":
            process.stop_cleanly()
        elif end == "stamp removed":
            process.directory.remove_boot_record()
        process.kill()
        disk = FaultyDisk()
        again = machine.open(disk)
        again.directory.checkpoint_recovery_points()
        assert is_written_again_before_a_sync(disk, machine) == (end != "stopped cleanly")
        assert again.log().log_end_offset == 1

    run(scenario)


@pytest.mark.parametrize("is_boot_record_removed", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_what_a_failed_sync_may_have_lost_is_written_once_more(
    seed: int, is_boot_record_removed: bool
) -> None:
    """Its pages look clean: the next life's sync, and its clean stop, would prove what is not on
    the disk. The stamp stays where the controller's record, or a kill, came before its removal."""
    node = Node(seed, LogSettings())
    directory = node.boots()
    log = directory.create_log("orders", ORDERS, 0)
    directory.write_boot_record(BootRecord("boot-1", "pod-1", "claim-1", BrokerEpoch(1)))
    append(log, b"one", b"two")
    node.volume.lose_write_backs(1, lambda path: path.endswith(".log"))
    with pytest.raises(StorageFailed):
        log.flush()
    if is_boot_record_removed:
        directory.remove_boot_record()
    node.is_killed()
    again = node.boots()
    assert (again.boot_stamp is None) == is_boot_record_removed
    again.write_clean_stop(BrokerEpoch(2))
    node.loses_power()
    assert values_of(node.boots().logs[ORDERS, 0]) == [(0, b"one"), (1, b"two")]


def test_a_log_that_ends_at_its_recovery_point_is_synced_before_its_proof_is_claimed(
    tmp_path: Path,
) -> None:
    """The lost write-back took all that was past it, so that nothing looks unsynced."""

    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.log().flush()
        process.directory.checkpoint_recovery_points()
        synced = machine.log_file().read_bytes()
        process.append(b"past it")
        process.kill()
        machine.log_file().write_bytes(synced)
        disk = FaultyDisk()
        again = machine.open(disk)
        assert again.log().log_end_offset == again.log().recovery_point
        assert ("sync", machine.log_file().name) in disk.done

    run(scenario)


def test_one_batch_cut_short_at_the_very_end_is_what_a_kill_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.append(b"cut short")
        process.kill()
        data = machine.log_file().read_bytes()
        machine.log_file().write_bytes(data[:-3])
        again = machine.open()
        assert again.log().log_end_offset == 1
        assert (await again.register()).is_clean

    run(scenario)


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize("where", ["last batch", "first batch"])
def test_damage_is_not_what_a_kill_leaves(tmp_path: Path, where: str) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.append(b"another")
        process.kill()
        data = machine.log_file().read_bytes()
        position = len(data) - 1 if where == "last batch" else len(data) // 2 - 1
        machine.log_file().write_bytes(flipped(data, position))
        again = machine.open()
        assert again.directory.boot_stamp is None
        assert not (await again.register()).is_clean

    run(scenario)


def test_a_clean_stop_leaves_nothing_to_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.append(b"another")
        process.stop_cleanly()
        data = machine.log_file().read_bytes()
        machine.log_file().write_bytes(data[:-3])
        again = machine.open()
        assert again.directory.clean_stop_epoch == -1
        assert not (await again.register()).is_clean

    run(scenario)
