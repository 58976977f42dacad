"""Group commit: one worker at a time for all that asked, and how old the oldest wait is (S20)."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.server.background.group_commit import GroupCommit
from tidemark_protocol.partition_state import TopicState

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessPool
from tests.support.waiting import eventually


class GatedDisk(FaultyDisk):
    """Syncs of directories wait until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.syncs = 0

    def check(self, operation: str, path: Path) -> None:
        if operation == "sync" and path.suffix == ".log":
            self.syncs += 1
            assert self.gate.wait(10)
        super().check(operation, path)


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def pool(tmp_path: Path, disk: GatedDisk) -> Iterator[InProcessPool]:
    topic = TopicState(TOPIC, TOPIC_ID, 1, 1, flush="Always")
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1, topic=topic)
    pool.kill(1)
    pool.start(1, disk)
    pool.lead(1, in_sync=[1])
    disk.syncs = 0
    yield pool
    disk.gate.set()
    pool.kill(1)


def test_what_gathers_during_a_sync_shares_the_next_one(
    pool: InProcessPool, disk: GatedDisk
) -> None:
    async def scenario() -> None:
        broker = pool.brokers[1]
        group_commit = GroupCommit(broker.partitions, on_flushed=lambda replica: None)
        broker.observers.add(group_commit)
        running = asyncio.create_task(group_commit.run())
        disk.gate.clear()
        first = broker.produce("a")
        await eventually(lambda: disk.syncs == 1)
        more = [broker.produce(f"{number}") for number in range(20)]
        assert (first, group_commit.oldest_age_ms() >= 0) == ([], True)
        disk.gate.set()
        await eventually(lambda: all(len(results) == 1 for results in [first, *more]))
        assert disk.syncs == 2
        assert broker.replica().log.recovery_point == 21
        running.cancel()

    asyncio.run(scenario())


def test_a_sync_that_fails_ends_serving(pool: InProcessPool, disk: GatedDisk) -> None:  # S8
    async def scenario() -> None:
        broker = pool.brokers[1]
        group_commit = GroupCommit(broker.partitions, on_flushed=lambda replica: None)
        broker.observers.add(group_commit)
        disk.io_failure["sync"] = 5
        results = broker.produce("a")
        await asyncio.wait_for(group_commit.run(), 10)
        assert len(broker.storage_errors) == 1
        assert [result.base_offset for result in results] != [0] or results[0].error != 0

    asyncio.run(scenario())


def test_a_replica_that_lost_its_role_is_not_flushed_for_ever(
    pool: InProcessPool, disk: GatedDisk
) -> None:
    async def scenario() -> None:
        broker = pool.brokers[1]
        (replica,) = broker.partitions.replicas
        rounds = []
        group_commit = GroupCommit(broker.partitions, on_flushed=rounds.append)
        broker.observers.add(group_commit)
        running = asyncio.create_task(group_commit.run())
        disk.gate.clear()
        broker.produce("a")
        await eventually(lambda: disk.syncs == 1)
        broker.produce("b")
        replica.become_idle("topic deleted")
        replica.log.record_removed()
        disk.gate.set()
        await eventually(lambda: rounds == [replica, replica])
        assert not replica.needs_flush
        running.cancel()

    asyncio.run(scenario())
