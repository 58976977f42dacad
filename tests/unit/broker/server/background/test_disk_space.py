"""Short of disk space a broker takes no records, and does everything else."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.log.disk import DiskSpace, OsDisk
from tidemark_broker.server.background.disk_space import (
    LEAST_FREE_BYTES,
    DiskSpaceMonitor,
    least_free_bytes,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import KEY, InProcessPool
from tests.support.waiting import eventually

MEBIBYTE = 1024 * 1024
SMALL = DiskSpace(free_bytes=0, total_bytes=1000 * MEBIBYTE)  # its limit is 50 MiB


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2))
    pool.lead(1, in_sync=[1, 2])
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


class Roles:
    def __init__(self) -> None:
        self.were_taken = asyncio.Event()

    async def take(self) -> None:
        self.were_taken.set()


def record_free(pool: InProcessPool, free_mebibytes: float, number: int = 1) -> None:
    broker = pool.brokers[number]
    watch = DiskSpaceMonitor(
        OsDisk(),
        pool.path,
        broker.partitions,
        keep_reserve=broker.directory.reserve.keep,
        apply_roles=Roles().take,
    )
    watch.note(SMALL._replace(free_bytes=int(free_mebibytes * MEBIBYTE)))


def test_the_limit_is_a_twentieth_of_a_small_volume_and_bounded_on_a_large_one() -> None:
    assert least_free_bytes(SMALL) == 50 * MEBIBYTE
    assert least_free_bytes(DiskSpace(0, 10**13)) == LEAST_FREE_BYTES


def test_records_are_refused_with_a_sentence_that_says_what_to_do(pool: InProcessPool) -> None:
    pool.brokers[1].produce("before", acks=1)
    record_free(pool, 49.9)
    (refused,) = pool.brokers[1].produce("a", acks=1)
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused.is_out_of_space
    assert "lower retention.ms" in refused.message
    assert pool.brokers[1].replica().log.log_end_offset == 1


def test_reads_replication_and_watermarks_go_on(pool: InProcessPool) -> None:
    waiting = pool.brokers[1].produce("a")
    record_free(pool, 10)
    record_free(pool, 10, number=2)
    pool.replicate(2, rounds=2)
    assert [result.error for result in waiting] == [ErrorCode.NONE]
    assert pool.brokers[1].read(0)[0].data == pool.brokers[2].log_bytes()
    assert pool.brokers[1].storage_errors == []


def test_it_ends_by_itself_some_way_above_the_limit(pool: InProcessPool) -> None:
    record_free(pool, 49)
    record_free(pool, 62)
    assert pool.brokers[1].produce("a", acks=1)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    record_free(pool, 62.5)
    assert pool.brokers[1].produce("a", acks=1)[0].error is ErrorCode.NONE
    record_free(pool, 50)
    assert pool.brokers[1].produce("b", acks=1)[0].error is ErrorCode.NONE


def test_a_full_disk_is_told_the_same_way(pool: InProcessPool) -> None:  # S10
    pool.kill(1)
    disk = FaultyDisk()
    pool.start(1, disk)
    pool.lead(1, in_sync=[1, 2])
    disk.space_bytes = 0
    (refused,) = pool.brokers[1].produce("a", acks=1)
    assert refused.is_out_of_space


def test_the_space_is_asked_of_the_filesystem(tmp_path: Path) -> None:
    space = OsDisk().space(tmp_path)
    assert 0 < space.free_bytes < space.total_bytes


@pytest.mark.parametrize("has_space", [True, False])
def test_roles_are_taken_again_while_there_is_space(pool: InProcessPool, has_space: bool) -> None:
    async def scenario() -> None:
        disk, roles = FaultyDisk(), Roles()
        disk.space_bytes = None if has_space else 0
        partitions = pool.brokers[1].partitions
        watch = DiskSpaceMonitor(
            disk,
            pool.path,
            partitions,
            keep_reserve=pool.brokers[1].directory.reserve.keep,
            apply_roles=roles.take,
        )
        watching = asyncio.create_task(watch.run())
        if has_space:
            await asyncio.wait_for(roles.were_taken.wait(), 10)
        else:
            await eventually(lambda: bool(partitions.low_disk_space))
        watching.cancel()
        assert roles.were_taken.is_set() == has_space

    asyncio.run(scenario())


def test_a_role_not_taken_is_reported_until_there_is_space_also_while_nobody_has_it(
    pool: InProcessPool,
) -> None:
    pool.kill(1)
    disk = FaultyDisk()
    broker = pool.start(1, disk)
    pool.lead(1, in_sync=[1])
    disk.space_bytes = 0
    pool.lead(1)
    assert list(broker.partitions.failed_replicas) == [KEY]
    # The controller heard that, and there is nobody else: were it granted again, it would go on so.
    pool.lead_nobody()
    assert list(broker.partitions.failed_replicas) == [KEY]
    pool.push()
    assert list(broker.partitions.failed_replicas) == [KEY]
    disk.space_bytes = None
    broker.partitions.roles.failed_roles.retry()
    assert list(broker.partitions.failed_replicas) == []
    pool.lead(1, in_sync=[1])
    assert broker.produce("a", acks=1)[0].error is ErrorCode.NONE


def test_a_short_log_is_reported_no_more_once_nobody_counts_on_it_space_or_not(
    pool: InProcessPool,
) -> None:
    """S9, S14: with one replica nobody else can lead; it takes no space to have lost records."""
    pool.brokers[1].produce("a", acks=1)
    pool.brokers[1].directory.checkpoint_high_watermarks({KEY: Offset(1)})
    path = pool.brokers[1].replica().log.segments[0].path
    pool.kill(1)
    path.write_bytes(b"")
    broker = pool.start(1)
    record_free(pool, 10)
    pool.push()
    assert list(broker.partitions.failed_replicas) == [KEY]
    pool.lead_nobody()
    assert list(broker.partitions.failed_replicas) == []
    assert broker.partitions.roles.failed_roles.keys == ()
    pool.lead(1, in_sync=[1])
    assert broker.replica().role == "leader"
