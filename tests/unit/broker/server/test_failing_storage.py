"""A disk that fills up refuses writes; one that fails ends the broker's serving (S8, S10)."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_protocol.error_codes import ErrorCode

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import TOPIC, InProcessPool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2))
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def with_faulty_disk(pool: InProcessPool, number: int) -> FaultyDisk:
    pool.kill(number)
    disk = FaultyDisk()
    pool.start(number, disk)
    return disk


def test_a_full_disk_refuses_produce_and_goes_on(pool: InProcessPool) -> None:  # S10
    disk = with_faulty_disk(pool, 1)
    pool.lead(1, in_sync=[1, 2])
    kept = pool.brokers[1].produce("a", acks=1)
    disk.space_bytes = 0
    refused = pool.brokers[1].produce("b", acks=1)
    assert refused[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.space_bytes = None
    again = pool.brokers[1].produce("c", acks=1)
    assert [result.base_offset for result in kept + again] == [0, 1]
    assert pool.brokers[1].storage_errors == []


def test_a_failed_append_ends_serving(pool: InProcessPool) -> None:  # S8
    disk = with_faulty_disk(pool, 1)
    pool.lead(1, in_sync=[1, 2])
    waiting = pool.brokers[1].produce("a")
    disk.io_failure["write_at"] = errno.EIO
    failed = pool.brokers[1].produce("b")
    assert failed[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert waiting[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(pool.brokers[1].storage_errors) == 1
    view = pool.brokers[1].partitions.replica(TOPIC, 0)
    assert view is not None
    assert view.role == "idle"
    pool.push()
    assert pool.brokers[1].replica().role == "idle"


def test_a_follower_with_a_full_disk_asks_again_later(pool: InProcessPool) -> None:
    disk = with_faulty_disk(pool, 2)
    pool.lead(1, in_sync=[1, 2])
    pool.brokers[1].produce("a", acks=1)
    disk.space_bytes = 0
    sent = pool.send_fetch(2)
    assert sent is not None
    sent.apply(pool.time.now_ms)
    assert len(sent.refused) == 1
    assert pool.send_fetch(2) is None
    disk.space_bytes = None
    pool.time.run(1000)
    pool.replicate(2)
    assert pool.brokers[2].log_bytes() == pool.brokers[1].log_bytes()
