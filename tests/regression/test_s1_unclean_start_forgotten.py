"""S1: an unclean start forgotten by the next start.

B's node reboots and B loses r. It starts, and is killed before the controller stored that this
start was unclean; the next process finds the same kernel as the one before it. It must not count.
"""

from pathlib import Path

from tidemark_broker.log.clean_shutdown import SPENT_BOOT_RECORD, STORED_BOOT_RECORD
from tidemark_operator.api.kinds import BROKER
from tidemark_protocol.controller_messages import BootRecord
from tidemark_protocol.ids import BrokerEpoch

from tests.support.broker_on_disk import (
    B,
    Machine,
    Process,
    with_an_acknowledged_record,
)
from tests.support.controller_harness import evaluate
from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import values_of
from tests.support.waiting import run


def reboot(machine: Machine) -> None:
    """The kernel is gone, and with it what it had not written back."""
    machine.boot_id = "boot-2"
    machine.log_file().write_bytes(b"")


def test_a_killed_process_on_the_same_kernel_keeps_its_entries(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        again = machine.open()
        assert again.directory.boot_stamp == BootRecord(
            "boot-1", "pod-1", "claim-1", BrokerEpoch(2)
        )
        response = await again.register()
        await again.serve()
        assert response.is_clean
        assert harness.partition().leader == B
        assert values_of(again.log()) == [(0, b"r")]

    run(scenario)


def test_a_start_that_the_controller_never_heard_of_proves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        reboot(machine)
        cut_short = machine.open()
        cut_short.link.is_cut = True
        await cut_short.register_in_vain()
        again = machine.open()
        response = await again.register()
        await again.serve()
        assert not response.is_clean
        assert not harness.partition().has_leader
        assert [member.broker_id for member in harness.partition().eligible_leaders] == [2]

    run(scenario)


def test_a_verdict_that_the_process_never_heard_of_is_not_lost(tmp_path: Path) -> None:
    """Stored, and the process was killed before the answer came."""

    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        reboot(machine)
        deaf = machine.open()
        deaf.link.loses_responses = True
        await deaf.register_in_vain()
        await evaluate()
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert (stored["brokerEpoch"], stored["cleanSince"]) == (4, 4)
        response = await machine.open().register()
        assert not response.is_clean
        assert not harness.partition().has_leader

    run(scenario)


def test_a_store_that_does_not_answer_gives_no_stamp(tmp_path: Path) -> None:
    """The verdict is not durable, and so the answer says: register again."""

    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        reboot(machine)
        harness.store.is_down = True
        undecided = machine.open()
        await undecided.register_in_vain()
        assert not (machine.path / STORED_BOOT_RECORD).exists()
        harness.store.is_down = False
        assert not (await machine.open().register()).is_clean

    run(scenario)


def test_the_stamp_comes_after_the_answer_and_names_the_new_life(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        again = machine.open()
        assert not (machine.path / STORED_BOOT_RECORD).exists()
        await again.register()
        again.kill()
        third = machine.open()
        assert third.directory.boot_stamp == BootRecord(
            "boot-1", "pod-1", "claim-1", BrokerEpoch(4)
        )

    run(scenario)


def test_both_proofs_are_gone_for_good_before_a_log_is_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.stop_cleanly()
        disk = FaultyDisk()
        machine.open(disk)
        removals = [
            disk.done.index(("remove", ".kafka_cleanshutdown")),
            disk.done.index(("rename", SPENT_BOOT_RECORD)),
        ]
        synced = disk.done.index(("sync_directory", "volume"), max(removals))
        first_read = disk.done.index(("open", machine.log_file().name))
        assert max(removals) < synced < first_read

    run(scenario)


def test_a_process_told_to_end_before_it_registered_gives_its_proofs_back(tmp_path: Path) -> None:
    """The controller is away, and pods come and go meanwhile: nothing is lost by that."""

    async def scenario() -> None:
        for stop in (Process.stop_cleanly, Process.kill):
            _, machine, process = await with_an_acknowledged_record(tmp_path / stop.__name__)
            stop(process)
            waiting = machine.open()
            waiting.directory.restore_clean_shutdown()
            waiting.kill()
            assert (await machine.open().register()).is_clean

    run(scenario)


def test_proofs_given_back_are_still_those_of_the_former_life(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        reboot(machine)
        waiting = machine.open()
        waiting.directory.restore_clean_shutdown()
        waiting.kill()
        assert not (await machine.open().register()).is_clean

    run(scenario)
