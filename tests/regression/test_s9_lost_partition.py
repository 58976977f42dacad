"""S9: the proof is per broker, loss is per partition.

A clean stop, then one partition's directory is lost: the broker is clean, that replica is not.
"""

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.replication.results import FetchResult
from tidemark_broker.server.background.checkpointing import CheckpointWriter
from tidemark_broker.server.config import CheckpointIntervals
from tidemark_broker.server.lifecycle_manager import replica_report
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, ControllerEpoch, Offset, PartitionEpoch, TopicId
from tidemark_protocol.partition_state import Member, TopicState

from tests.support.broker_on_disk import B, Machine, Process
from tests.support.controller_harness import ORDERS, POOL, TICK_MS, FakeBroker, Harness, evaluate
from tests.support.controller_steps import successor
from tests.support.controller_values import shown
from tests.support.in_process_pool import InProcessPool
from tests.support.waiting import eventually, run


async def two_partitions(path: Path) -> tuple[Harness, Machine, Process]:
    """B leads both, and is the only one in sync; A is eligible."""
    harness = await Harness().start(1)
    machine = Machine(harness, B, path / "volume")
    process = await machine.start()
    assert process.voice is not None
    harness.brokers.append(process.voice)
    await harness.create(partitions=2, replicas=2)
    for number in (0, 1):
        process.append(b"one", partition=number)
        process.append(b"two", partition=number)
    await harness.kill(harness.brokers[0])
    assert [harness.partition(number).leader for number in (0, 1)] == [1, 1]
    return harness, machine, process


def is_listed(harness: Harness, number: int) -> bool:
    state = harness.partition(number)
    return B in {member.broker_id for member in state.in_sync_replicas + state.eligible_leaders}


def test_a_partition_whose_directory_is_gone_is_led_by_nobody_who_lost_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        await process.voice_stops()
        process.stop_cleanly()
        shutil.rmtree(machine.path / "orders-1")
        again = machine.open()
        assert (await again.register()).is_clean
        await again.serve()
        assert harness.partition(0).leader == B
        assert not harness.partition(1).has_leader
        assert not is_listed(harness, 1)

    run(scenario)


def test_a_log_that_ends_below_its_own_checkpoint_is_void(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        await process.voice_stops()
        process.stop_cleanly()
        data = machine.log_file(1).read_bytes()
        machine.log_file(1).write_bytes(data[: len(data) // 2])  # whole batches: no torn end
        again = machine.open()
        assert (ORDERS, 1) in again.directory.high_watermarks
        assert again.log(1).log_end_offset == 1
        assert (await again.register()).is_clean
        await again.serve()
        assert harness.partition(0).leader == B
        assert not is_listed(harness, 1)

    run(scenario)


def test_the_evidence_stands_until_it_was_heard_and_no_longer(tmp_path: Path) -> None:  # S31
    """Registered in vain it is told again; once heard, what follows the end is not committed."""

    async def scenario() -> None:
        _, machine, process = await two_partitions(tmp_path)
        await process.voice_stops()
        process.stop_cleanly()
        data = machine.log_file(1).read_bytes()
        machine.log_file(1).write_bytes(data[: len(data) // 2])
        unheard = machine.open()
        unheard.link.is_cut = True
        await unheard.register_in_vain()
        again = machine.open()
        assert again.directory.high_watermarks[ORDERS, 1] == 2
        await again.register()
        again.append(b"uncommitted", partition=1)
        again.kill()
        assert machine.open().directory.high_watermarks[ORDERS, 1] == 1

    run(scenario)


def test_the_same_after_a_kill(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        process.directory.checkpoint_high_watermarks(
            {key: Offset(2) for key in process.directory.logs}
        )
        process.kill()
        shutil.rmtree(machine.path / "orders-0")
        again = machine.open()
        assert (await again.register()).is_clean
        await again.serve()
        assert not is_listed(harness, 0)
        assert harness.partition(1).leader == B

    run(scenario)


def test_the_loss_is_stripped_before_the_new_epoch_is_stored_and_a_successor_finds_it(
    tmp_path: Path,
) -> None:
    """What a broker said is gone with its controller: what followed from it is in the slice."""

    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        await process.voice_stops()
        process.stop_cleanly()
        shutil.rmtree(machine.path / "orders-1")
        again = machine.open()
        await again.register()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        await again.serve()
        await evaluate()
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert stored["cleanSince"] < stored["brokerEpoch"]
        assert not is_listed(harness, 1)
        assert not harness.partition(1).has_leader

    run(scenario)


def test_an_empty_volume_has_no_replica_at_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        process.kill()
        shutil.rmtree(machine.path)
        again = machine.open()
        assert not (await again.register()).is_clean
        await again.serve()
        assert [is_listed(harness, number) for number in (0, 1)] == [False, False]
        assert shown(harness.partition(0)).startswith("leader -1")

    run(scenario)


def test_a_replica_that_a_running_broker_reports_failed_is_void_there_and_not_led(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        harness, _, process = await two_partitions(tmp_path)
        voice = process.voice
        assert isinstance(voice, FakeBroker)
        logs = process.directory.logs
        (key,) = (each for each in logs if each[1] == 1)
        failed = replica_report(process.directory, key, logs[key])
        await voice.poll_to_the_end(failed_replicas=(failed,))
        assert harness.partition(0).leader == BrokerId(1)
        assert not harness.partition(1).has_leader
        assert not is_listed(harness, 1)

    run(scenario)


@pytest.mark.parametrize("in_order", [False, True], ids=["killed", "stopped in order"])
def test_a_corrupt_batch_that_a_leader_met_is_not_forgotten_by_its_restart(
    tmp_path: Path, in_order: bool
) -> None:
    """It ends before the controller hears of it. The batch lies below the recovery point, so the
    start does not look at it, and the proof of the broker holds."""

    async def scenario() -> None:
        harness, machine, previous = await two_partitions(tmp_path)
        previous.log(1).settings = LogSettings(segment_bytes=61)
        previous.append(b"in another segment", partition=1)
        previous.directory.checkpoint_high_watermarks(
            {key: Offset(2) for key in previous.directory.logs}
        )
        previous.directory.checkpoint_recovery_points()
        previous.kill()
        process = await machine.start()
        polling = asyncio.create_task(process.session.run())
        process.session.serve()
        await eventually(lambda: process.partitions.metadata.has_come)
        data = bytearray(machine.log_file(1).read_bytes())
        data[-1] ^= 1
        machine.log_file(1).write_bytes(data)
        read: list[FetchResult] = []
        process.partitions.fetch(
            "orders", 1, 1, max_bytes=1000, min_bytes=1, max_wait_ms=0, done=read.append
        )
        assert read[0].error is ErrorCode.CORRUPT_MESSAGE
        polling.cancel()
        if in_order:
            process.stop_cleanly()
        process.kill()
        again = machine.open()
        assert again.log(1).log_end_offset == 3
        assert (await again.register()).is_clean
        await again.serve()
        assert harness.partition(0).leader == B
        assert not harness.partition(1).has_leader
        assert not is_listed(harness, 1)
        assert list(again.partitions.failed_replicas) == [(ORDERS, 1)]

    run(scenario)


def test_a_start_that_nobody_heard_of_leaves_the_evidence(tmp_path: Path) -> None:
    """Its checkpoint would say of each log that it never was longer."""

    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        await process.voice_stops()
        process.stop_cleanly()
        data = machine.log_file(1).read_bytes()
        machine.log_file(1).write_bytes(data[: len(data) // 2])
        unheard = machine.open()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        checkpointing = CheckpointWriter(
            unheard.partitions, unheard.directory, lambda: 0.0, CheckpointIntervals()
        )
        writing = asyncio.create_task(checkpointing.run_high_watermarks(0.0))
        for _ in range(10):
            await asyncio.sleep(0)
        await asyncio.to_thread(int)  # what the one worker had to write is written
        writing.cancel()
        unheard.directory.restore_clean_shutdown()
        unheard.kill()
        again = machine.open()
        assert (await again.register()).is_clean
        await again.serve()
        assert harness.partition(0).leader == B
        assert not is_listed(harness, 1)

    run(scenario)


@pytest.mark.parametrize("is_eligible", [False, True])
def test_no_empty_log_takes_the_place_of_one_that_a_former_life_is_counted_on_for(
    tmp_path: Path, is_eligible: bool
) -> None:
    """Whoever asked next what is here would take it for the log that is gone."""
    pool = InProcessPool(tmp_path)
    pool.lead(1)
    pool.brokers[1].produce("a")
    pool.replicate(rounds=3)
    previous = pool.member(3)
    pool.kill(3)
    (tmp_path / "broker-3").rename(tmp_path / "lost")
    pool.start(3)
    present = (pool.member(1), pool.member(2))
    in_sync, eligible = (present, (previous,)) if is_eligible else ((*present, previous), ())
    count_on(pool, in_sync, eligible)
    broker = pool.brokers[3].partitions
    assert broker.roles.missing_logs(pool.image().topics) == ()
    assert broker.roles.logs_to_retry() == ()
    broker.roles.failed_roles.retry()
    assert broker.replicas == ()
    assert list(broker.failed_replicas) == [(pool.topic.topic_id, 0)]
    count_on(pool, present, ())
    assert not broker.failed_replicas
    pool.replicate(3, rounds=2)
    assert pool.brokers[3].log_bytes() == pool.brokers[1].log_bytes()


def count_on(
    pool: InProcessPool, in_sync: tuple[Member, ...], eligible: tuple[Member, ...]
) -> None:
    pool.state = replace(
        pool.state,
        in_sync_replicas=in_sync,
        eligible_leaders=eligible,
        partition_epoch=PartitionEpoch(pool.state.partition_epoch + 1),
    )
    pool.push()


def lose_directory(machine: Machine) -> None:
    shutil.rmtree(machine.path / "orders-1")


def lose_records(machine: Machine) -> None:
    data = machine.log_file(1).read_bytes()
    machine.log_file(1).write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("lose", [lose_directory, lose_records])
def test_a_slice_that_is_put_back_while_nobody_controls_counts_on_no_log_that_is_gone(
    tmp_path: Path, lose: Callable[[Machine], None]
) -> None:
    """S12: the controller that registered B knew of no such partition, and its successor never
    heard what B came back with."""

    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        key = (PARTITION_SLICE.kind, "shop", "orders-0")
        saved = harness.store.objects.pop(key)
        await process.voice_stops()
        process.stop_cleanly()
        lose(machine)
        again = machine.open()
        assert (await again.register()).is_clean
        await again.serve()
        harness.store.objects[key] = saved
        await successor(harness)
        await harness.advance(300)  # it decides what it can before B has spoken to it
        again.session.serve()
        polling = asyncio.create_task(again.session.run())
        await eventually(lambda: harness.partition(0).leader == B)
        await eventually(lambda: not is_listed(harness, 1))
        assert shown(harness.partition(1)) == "leader -1@-1 epoch 1 isr [] eligible [0@1] pe 3"
        polling.cancel()

    run(scenario)


def test_no_entry_is_renewed_in_a_slice_that_its_broker_was_not_told_of(tmp_path: Path) -> None:
    """S3: its last write has no known outcome, so the push that B applies is without it."""

    async def scenario() -> None:
        harness, machine, process = await two_partitions(tmp_path)
        key = (PARTITION_SLICE.kind, "shop", "orders-0")
        saved = harness.store.objects.pop(key)
        await process.voice_stops()
        process.stop_cleanly()
        lose_directory(machine)
        again = machine.open()
        assert (await again.register()).is_clean
        await again.serve()
        harness.store.objects[key] = saved
        await successor(harness)
        harness.store.faults[PARTITION_SLICE.kind] = ["lost"]
        harness.clock.ms += TICK_MS
        await harness.service.tick()
        for _ in range(100):
            if harness.store.faults[PARTITION_SLICE.kind]:
                await asyncio.sleep(0)
        harness.store.is_down = True
        await harness.advance(100)
        again.session.serve()
        polling = asyncio.create_task(again.session.run())
        await eventually(lambda: again.partitions.metadata.controller_epoch == 2)
        await evaluate()
        assert not again.partitions.failed_replicas
        polling.cancel()  # its next poll comes a moment later
        harness.store.is_down = False
        await harness.advance(100)
        assert harness.partition(1).leader != B
        polling = asyncio.create_task(again.session.run())
        await eventually(lambda: harness.partition(0).leader == B)
        await eventually(lambda: not is_listed(harness, 1))
        polling.cancel()

    run(scenario)


def test_a_log_that_made_room_for_another_topics_is_not_counted_on_when_its_slice_is_put_back(
    tmp_path: Path,
) -> None:
    """S12: a slice is deleted by hand, its Topic made anew and deleted, then the slice put back:
    the entry is of B's present life, and its log was set aside."""

    async def scenario() -> None:
        harness, _, process = await two_partitions(tmp_path)
        process.session.serve()
        polling = asyncio.create_task(process.session.run())
        hosted = process.partitions.hosted
        await eventually(lambda: hosted(ORDERS, 1) is not None)
        key = (PARTITION_SLICE.kind, "shop", "orders-0")
        saved = harness.store.objects.pop(key)
        await harness.service.confirm_slices(POOL, ORDERS)
        again = TopicState("orders", TopicId("7f1c0000-0000-0000-0000-000000000009"), 2, 1)
        await harness.service.create_topic(POOL, again, ((B,), (B,)))
        await eventually(lambda: hosted(again.topic_id, 1) is not None)
        assert hosted(ORDERS, 1) is None
        await harness.service.delete_topic(POOL, again.topic_id, retain=False, topic="orders")
        await eventually(lambda: hosted(again.topic_id, 1) is None)
        unclean = FakeBroker(harness, BrokerId(0), "0-b")
        await unclean.register()
        harness.store.objects[key] = saved
        await harness.service.find_slices(POOL, ORDERS)
        await harness.advance(100)
        await eventually(lambda: not is_listed(harness, 1))
        assert not harness.partition(1).has_leader
        polling.cancel()

    run(scenario)
