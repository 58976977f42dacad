"""S7: the same boot_id, another mount.

A volume torn off an unreachable node comes back to the same kernel without its dirty pages; a claim
is restored from a snapshot; a machine is restored with its memory. The stamp of a killed process
counts only where kernel, pod, claim and life are all those that the controller stored.
"""

from pathlib import Path

import pytest
from tidemark_broker.replication.core.effects import (
    LeaderAssignment,
    LeaderSettings,
    ProposeIsr,
    ReplicaFetch,
)
from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_protocol.controller_messages import BootRecord, BrokerState, Endpoints
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

from tests.support.broker_on_disk import B, Machine, with_an_acknowledged_record
from tests.support.controller_values import TOPIC_ID, members, partition
from tests.support.waiting import run


@pytest.mark.parametrize(
    "changed",
    [
        {"boot_id": "boot-2"},
        {"pod_uid": "pod-2"},
        {"claim_uid": "claim-2"},
        {"boot_id": ""},
        {"pod_uid": ""},
    ],
    ids=["kernel", "pod", "claim", "kernel not known", "pod not known"],
)
def test_a_process_killed_elsewhere_starts_unclean(tmp_path: Path, changed: dict[str, str]) -> None:
    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        for name, value in changed.items():
            setattr(machine, name, value)
        machine.log_file().write_bytes(b"")  # the pages that were not written back
        again = machine.open()
        response = await again.register()
        await again.serve()
        assert not response.is_clean
        assert not harness.partition().has_leader

    run(scenario)


@pytest.mark.parametrize("name", ["boot_id", "pod_uid"])
def test_what_was_never_known_is_equal_to_nothing(tmp_path: Path, name: str) -> None:
    """A kernel that names no boot and a process that names no pod: equal words, no proof."""

    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        setattr(machine, name, "")
        nameless = machine.open()
        await nameless.register()
        nameless.kill()
        assert not (await machine.open().register()).is_clean

    run(scenario)


def test_a_volume_of_an_earlier_life_starts_unclean(tmp_path: Path) -> None:
    """Put back from a snapshot under the same kernel, pod and claim: only the life differs."""

    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        machine.snapshot(tmp_path / "earlier")
        process.kill()
        later = await machine.start()
        later.append(b"acknowledged later")
        later.kill()
        machine.restore(tmp_path / "earlier")
        restored = machine.open()
        assert restored.directory.boot_stamp == BootRecord(
            "boot-1", "pod-1", "claim-1", BrokerEpoch(2)
        )
        assert not (await restored.register()).is_clean

    run(scenario)


def test_the_stop_proof_of_an_earlier_life_proves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        process.stop_cleanly()
        machine.snapshot(tmp_path / "stopped")
        later = await machine.start()
        later.append(b"acknowledged later")
        later.stop_cleanly()
        machine.restore(tmp_path / "stopped")
        restored = machine.open()
        assert restored.directory.clean_stop_epoch == 2
        assert not (await restored.register()).is_clean

    run(scenario)


def test_a_claim_restored_from_a_snapshot_of_the_running_life_starts_unclean(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        _, machine, process = await with_an_acknowledged_record(tmp_path)
        machine.snapshot(tmp_path / "running")
        process.append(b"acknowledged after the snapshot")
        process.kill()
        machine.restore(tmp_path / "running")
        machine.claim_uid, machine.pod_uid = "claim-2", "pod-2"
        assert not (await machine.open().register()).is_clean

    run(scenario)


def test_an_empty_volume_in_place_of_the_old_one_starts_unclean(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, _, process = await with_an_acknowledged_record(tmp_path)
        process.kill()
        empty = Machine(harness, B, tmp_path / "empty")
        start = empty.open()
        assert start.directory.was_empty
        assert not (await start.register()).is_clean
        assert not harness.partition().has_leader

    run(scenario)


def test_the_proofs_of_one_volume_do_not_count_for_another(tmp_path: Path) -> None:
    """Somebody copied the proof files onto a volume that was made anew."""

    async def scenario() -> None:
        harness, machine, process = await with_an_acknowledged_record(tmp_path)
        process.stop_cleanly()
        other = Machine(harness, B, tmp_path / "other")
        other.open().kill()
        for name in (".kafka_cleanshutdown", "tidemark-boot-stamp.json"):
            (other.path / name).write_bytes((machine.path / name).read_bytes())
        start = other.open()
        assert start.directory.clean_stop_epoch == 2
        assert not (await start.register()).is_clean

    run(scenario)


def test_a_member_that_fetches_below_the_high_watermark_is_expelled_at_once() -> None:
    """A machine restored with its memory never starts: its own fetch gives it away."""
    nowhere = Endpoints("10.0.0.1", 9092, 8080, "http://x")
    state = partition("0@1 1@2 2@3", leader="0@1", leader_epoch=5)
    brokers = {
        member.broker_id: BrokerState(
            member.broker_id,
            member.broker_epoch,
            is_fenced=False,
            is_stopping=False,
            endpoints=nowhere,
        )
        for member in state.in_sync_replicas
    }
    leader = PartitionLeader(
        LeaderAssignment(TOPIC_ID, BrokerId(0), BrokerEpoch(1), state, LeaderSettings()),
        brokers,
        log_end_offset=Offset(0),
        high_watermark=Offset(0),
        now_ms=0,
    )

    def fetched(broker_id: int, offset: int) -> list[ProposeIsr]:
        fetch = ReplicaFetch(
            BrokerId(broker_id),
            BrokerEpoch(broker_id + 1),
            LeaderEpoch(5),
            Offset(offset),
            LeaderEpoch(-1),
        )
        effects = leader.on_fetch(fetch, leader_end=Offset(10), now_ms=1)
        return [effect for effect in effects if isinstance(effect, ProposeIsr)]

    leader.on_append(Offset(10), 1)
    assert fetched(1, 10) == fetched(2, 10) == []
    assert leader.high_watermark == 10
    (proposed,) = fetched(2, 4)
    assert proposed.proposal.new_in_sync_replicas == members("0@1 1@2")
