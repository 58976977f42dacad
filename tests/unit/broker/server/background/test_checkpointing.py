"""When recovery points and high watermarks are written, and what goes with them."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.log.synced_prefix_files import synced_prefix_of
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.server.background.checkpointing import CheckpointWriter
from tidemark_broker.server.config import CheckpointIntervals
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessBroker, InProcessPool
from tests.support.simulated_time import SimulatedTime
from tests.unit.broker.jumping_loop import run_without_waiting

HOUR = 3600.0


class AtOnce(ThreadPoolExecutor):
    """Workers take no time: the loop's clock jumps."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class TimedCheckpointing(CheckpointWriter):
    """Remembers when a pass began."""

    def __init__(self, broker: InProcessBroker, settings: CheckpointIntervals) -> None:
        super().__init__(broker.partitions, broker.directory, lambda: 0.0, settings)
        self.passes_s: list[float] = []

    async def pass_once(self) -> None:
        self.passes_s.append(asyncio.get_running_loop().time())
        await super().pass_once()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    pool = InProcessPool(tmp_path, brokers=(1,))
    pool.lead(1, in_sync=[1])
    yield pool.brokers[1]
    pool.kill(1)


def passes_of(
    broker: InProcessBroker,
    settings: CheckpointIntervals,
    *steps: tuple[float, Callable[[], object]],
) -> list[float]:
    """`steps`: after so many seconds, what happens."""
    checkpointing: list[TimedCheckpointing] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce(1))
        checkpointing.append(TimedCheckpointing(broker, settings))
        running = asyncio.create_task(checkpointing[0].run_recovery_points())
        for after_seconds, happen in steps:
            await asyncio.sleep(after_seconds)
            happen()
        running.cancel()

    run_without_waiting(scenario)
    return checkpointing[0].passes_s


def nothing() -> None: ...


def test_the_first_pass_comes_soon_and_the_others_at_the_interval(broker: InProcessBroker) -> None:
    assert passes_of(broker, CheckpointIntervals(), (130.0, nothing)) == [5.0, 65.0, 125.0]


def test_an_interval_shorter_than_that_is_kept(broker: InProcessBroker) -> None:
    settings = CheckpointIntervals(interval_seconds=2.0)
    assert passes_of(broker, settings, (5.0, nothing)) == [2.0, 4.0]


def test_a_pass_comes_once_so_many_bytes_were_appended(broker: InProcessBroker) -> None:
    """What a restart has to write again and to verify stays bounded."""
    settings = CheckpointIntervals(interval_seconds=HOUR, appended_bytes=10_000)

    def produce() -> None:
        broker.produce("x" * 6_000, acks=1)

    passes_s = passes_of(
        broker, settings, (10.5, produce), (10.0, produce), (10.0, produce), (10.0, nothing)
    )
    assert passes_s == [5.0, 21.0]


def test_a_pass_writes_the_synced_parts_of_logs_that_have_grown(broker: InProcessBroker) -> None:
    log = broker.replica().log
    settings = CheckpointIntervals(interval_seconds=HOUR, growth_bytes=1_000)
    broker.produce("x", acks=1)
    passes_of(broker, settings, (6.0, nothing))
    assert synced_prefix_of(OsDisk(), log.directory) is None
    broker.produce("x" * 1_000, acks=1)
    passes_of(broker, settings, (6.0, nothing))
    part = synced_prefix_of(OsDisk(), log.directory)
    assert part is not None
    assert part.next_offset == log.log_end_offset == log.recovery_point


def test_high_watermarks_are_written_at_their_interval_as_they_are_then(tmp_path: Path) -> None:
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    broker = pool.brokers[1]
    path = broker.directory.path / checkpoint_formats.HIGH_WATERMARKS
    written: list[dict[tuple[str, int], int]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce(1))
        checkpointing = CheckpointWriter(
            broker.partitions, broker.directory, lambda: 0.0, CheckpointIntervals()
        )
        running = asyncio.create_task(checkpointing.run_high_watermarks(5.0))
        for _ in range(2):
            broker.produce("x", acks=1)
            await asyncio.sleep(5.5)
            written.append(dict(checkpoint_formats.decode_offsets(path.read_bytes())))
        running.cancel()

    run_without_waiting(scenario)
    pool.kill(1)
    assert written == [{(TOPIC, 0): 1}, {(TOPIC, 0): 2}]


def test_no_high_watermark_is_written_before_the_registration_is_answered_or_twice(
    tmp_path: Path,
) -> None:  # S9
    disk = FaultyDisk()
    directory = LogManager.open(tmp_path, disk, broker_id=BrokerId(1), settings=LogSettings())
    directory.create_log(TOPIC, TOPIC_ID, 0)
    partitions = ReplicaManager(BrokerId(1), scheduler=SimulatedTime(), wall_clock_s=lambda: 0.0)
    partitions.open(directory, submit=[].append)
    writes: list[int] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce(1))
        checkpointing = CheckpointWriter(partitions, directory, lambda: 0.0, CheckpointIntervals())
        running = asyncio.create_task(checkpointing.run_high_watermarks(5.0))
        for happen in (nothing, lambda: partitions.set_broker_epoch(BrokerEpoch(11)), nothing):
            happen()
            await asyncio.sleep(20.5)
            writes.append(disk.done.count(("write", checkpoint_formats.HIGH_WATERMARKS)))
        running.cancel()

    run_without_waiting(scenario)
    directory.close()
    assert writes == [0, 1, 1]
