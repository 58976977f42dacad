"""S14: with `flush: Always` only a lost disk voids an entry.

One power cut of all three brokers; the machine of C never returns. What was acknowledged was on the
disks of A and B before, so they lead without a human, as long as these are the very disks.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidemark_broker.log.clean_shutdown import SPENT_BOOT_RECORD, Mount
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_operator.api.kinds import BROKER
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import Member

from tests.support.broker_on_disk import Machine, Process
from tests.support.controller_harness import POOL, Harness
from tests.support.controller_steps import expand
from tests.support.controller_values import shown
from tests.support.log_fixtures import values_of
from tests.support.waiting import run

A, B, C = (BrokerId(number) for number in range(3))
DEAD = "leader -1@-1 epoch 1 isr [] eligible [0@1 1@2 2@3] pe 1"


@dataclass
class Pool:
    harness: Harness
    machines: dict[BrokerId, Machine]
    processes: dict[BrokerId, Process]

    async def fence_all(self) -> None:
        """As one event: all of them fell silent together."""
        decisions = self.harness.service._pools[POOL].decisions
        records = decisions.state.brokers.values()
        lives = [(record.broker_id, record.broker_epoch) for record in records if record.is_live]
        await decisions.fence(lives, "silent")

    def lose_power(self, broker_id: BrokerId) -> None:
        """Of what was not synced, the beginning of a batch is left."""
        process, machine = self.processes[broker_id], self.machines[broker_id]
        process.append(b"unsynced")
        process.kill()
        machine.boot_id, machine.pod_uid = "boot-2", "pod-2"
        data = machine.log_file().read_bytes()
        machine.log_file().write_bytes(data[:-5])

    async def comes_back(self, broker_id: BrokerId) -> Process:
        process = await self.machines[broker_id].start()
        assert process.voice is not None
        await self.harness.advance(100, process.voice)
        return process

    async def joins(self, broker_id: BrokerId) -> None:
        """Its leader, any other one, has seen it catch up."""
        state = self.harness.partition()
        leader = self.processes[state.leader].voice
        assert leader is not None and state.leader != broker_id
        entry = Member(broker_id, self.processes[broker_id].session.broker_epoch)
        (response,) = (await leader.alter(expand(state, entry))).answers
        assert response.error is ErrorCode.NONE

    def status(self, broker_id: BrokerId) -> dict[str, object]:
        found: dict[str, object] = self.harness.store.objects[
            (BROKER.kind, "shop", f"default-{broker_id}")
        ]["status"]
        return found


async def with_an_acknowledged_record(path: Path, flush: str = "Always") -> Pool:
    """r is synced and in sync on all three; then nobody is heard any more."""
    harness = await Harness().start(0)
    pool = Pool(harness, {}, {})
    for broker_id in (A, B, C):
        machine = pool.machines[broker_id] = Machine(
            harness, broker_id, path / f"volume-{broker_id}"
        )
        process = pool.processes[broker_id] = await machine.start()
        assert process.voice is not None
        harness.brokers.append(process.voice)
    await harness.create(flush=flush)
    for process in pool.processes.values():
        process.append(b"r")
        process.log().flush()
    assert shown(harness.partition()) == "leader 0@1 epoch 0 isr [0@1 1@2 2@3] eligible [] pe 0"
    return pool


def test_who_comes_back_with_its_disk_leads_although_one_never_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        for broker_id in (A, B, C):
            pool.lose_power(broker_id)
        await pool.fence_all()
        assert shown(pool.harness.partition()) == DEAD
        again = await pool.comes_back(A)
        state = pool.harness.partition()
        assert (state.leader, state.leader_broker_epoch) == (A, again.session.broker_epoch)
        assert values_of(again.log()) == [(0, b"r")]
        await pool.comes_back(B)
        assert B in {member.broker_id for member in pool.harness.partition().eligible_leaders}
        assert (
            "recoveries" not in pool.harness.stored_slice()
            or not pool.harness.stored_slice()["recoveries"]
        )

    run(scenario)


def test_what_was_acknowledged_from_memory_waits_for_whoever_may_have_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path, flush="Os")
        for broker_id in (A, B, C):
            pool.lose_power(broker_id)
        await pool.fence_all()
        await pool.comes_back(A)
        await pool.comes_back(B)
        assert not pool.harness.partition().has_leader
        eligible = [member.broker_id for member in pool.harness.partition().eligible_leaders]
        assert eligible == [C]

    run(scenario)


def test_the_verdict_on_the_disk_is_stored_beside_the_one_on_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        pool.lose_power(A)
        await pool.fence_all()
        response = await pool.machines[A].open().register()
        status = pool.status(A)
        assert not response.is_clean
        assert (status["brokerEpoch"], status["cleanSince"]) == (4, 4)
        assert isinstance(status["storage"], dict)
        assert status["storage"]["diskSince"] == 1

    run(scenario)


def test_a_second_power_cut_before_the_registration_takes_nothing_away(tmp_path: Path) -> None:
    """Nor does any other end of a start that the controller never heard of."""

    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        pool.lose_power(A)
        await pool.fence_all()
        machine = pool.machines[A]
        cut_short = machine.open()
        cut_short.link.is_cut = True
        await cut_short.register_in_vain()
        machine.boot_id = "boot-3"
        assert (machine.path / SPENT_BOOT_RECORD).exists()
        await pool.comes_back(A)
        assert pool.harness.partition().leader == A

    run(scenario)


def test_what_it_joined_with_in_its_new_life_counts_after_the_next_power_cut(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        for number in (2, 3):
            pool.lose_power(A)
            pool.machines[A].boot_id = f"boot-{number}"
            await pool.fence_all()
            assert not pool.harness.partition().has_leader
            pool.processes[A] = await pool.comes_back(A)
            assert pool.harness.partition().leader == A
        storage = pool.status(A)["storage"]
        assert isinstance(storage, dict)
        assert storage["diskSince"] == 1

    run(scenario)


def _empty(machine: Machine, _earlier: Path) -> None:
    shutil.rmtree(machine.path)


def _restored(machine: Machine, earlier: Path) -> None:
    machine.restore(earlier)


def _cloned(machine: Machine, _earlier: Path) -> None:
    machine.claim_uid = "claim-2"


def _unstamped(machine: Machine, _earlier: Path) -> None:
    (machine.path / "tidemark-boot-stamp.json").unlink()


def _unnamed(machine: Machine, _earlier: Path) -> None:
    machine.claim_uid = ""


@pytest.mark.parametrize(
    "change",
    [_empty, _restored, _cloned, _unstamped, _unnamed],
    ids=[
        "an empty volume",
        "restored from an earlier life",
        "another claim",
        "no stamp",
        "a claim that nobody names",
    ],
)
def test_another_disk_proves_nothing(tmp_path: Path, change: object) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        machine, earlier = pool.machines[A], tmp_path / "earlier"
        machine.snapshot(earlier)
        pool.processes[A].stop_cleanly()
        pool.processes[A] = await machine.start()
        await pool.joins(A)
        pool.processes[A].append(b"acknowledged later")
        for broker_id in (A, B, C):
            pool.lose_power(broker_id)
        await pool.fence_all()
        assert A in {member.broker_id for member in pool.harness.partition().eligible_leaders}
        assert callable(change)
        change(machine, earlier)
        await pool.comes_back(A)
        assert not pool.harness.partition().has_leader
        eligible = [member.broker_id for member in pool.harness.partition().eligible_leaders]
        assert eligible == [B, C]

    run(scenario)


def test_a_disk_that_failed_in_its_last_life_proves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        voice = pool.processes[A].voice
        assert voice is not None
        assert (await voice.heartbeat(storage_failed=True)).is_storage_failure_recorded
        for broker_id in (A, B, C):
            pool.lose_power(broker_id)
        await pool.fence_all()
        await pool.comes_back(A)
        assert not pool.harness.partition().has_leader

    run(scenario)


def test_a_failure_that_no_controller_heard_of_takes_the_stamp_off_the_disk(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        pool.processes[A].directory.remove_boot_record()
        for broker_id in (A, B, C):
            pool.lose_power(broker_id)
        await pool.fence_all()
        await pool.comes_back(A)
        assert not pool.harness.partition().has_leader

    run(scenario)


@pytest.mark.parametrize("end", ["killed", "stopped", "lost its power"])
def test_damage_that_is_more_than_a_torn_tail_voids_the_disk(tmp_path: Path, end: str) -> None:
    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        machine = pool.machines[A]
        if end == "stopped":
            pool.processes[A].stop_cleanly()
        else:
            pool.processes[A].kill()
        if end != "killed":
            machine.boot_id = "boot-2"
        data = bytearray(machine.log_file().read_bytes())
        data[-1] ^= 1
        machine.log_file().write_bytes(data)
        await pool.fence_all()
        first = machine.open()
        first.kill()  # nor is it forgotten by the next start
        await pool.comes_back(A)
        assert not pool.harness.partition().has_leader

    run(scenario)


def test_a_start_that_is_killed_as_soon_as_it_cut_damage_off_leaves_no_whole_disk(
    tmp_path: Path,
) -> None:
    """To the next start the log looks whole."""

    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        machine = pool.machines[A]
        pool.processes[A].kill()
        data = bytearray(machine.log_file().read_bytes())
        data[-1] ^= 1
        machine.log_file().write_bytes(data)
        await pool.fence_all()
        mount = Mount(machine.boot_id, machine.pod_uid, machine.claim_uid)
        cut_short = LogManager.open(
            machine.path, OsDisk(), broker_id=A, settings=LogSettings(), mount=mount
        )
        assert len(machine.log_file().read_bytes()) < len(data)
        cut_short.close()
        await pool.comes_back(A)
        assert not pool.harness.partition().has_leader

    run(scenario)


def test_a_replica_below_its_own_checkpoint_is_void_on_a_kept_disk_too(tmp_path: Path) -> None:
    """S9."""

    async def scenario() -> None:
        pool = await with_an_acknowledged_record(tmp_path)
        directory = pool.processes[A].directory
        directory.checkpoint_high_watermarks(
            {key: log.log_end_offset for key, log in directory.logs.items()}
        )
        for broker_id in (A, B, C):
            pool.lose_power(broker_id)
        pool.machines[A].log_file().write_bytes(b"")
        await pool.fence_all()
        await pool.comes_back(A)
        assert not pool.harness.partition().has_leader

    run(scenario)
