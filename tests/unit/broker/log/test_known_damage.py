"""What a broker knows of a corrupt batch outlives its process: a restart verifies too little to
find it again (decision 0066)."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.log.corruption_marker import (
    KnownCorruption,
    decode_corruption,
    encode_corruption,
)
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import StorageFailed
from tidemark_broker.server.lifecycle_manager import replica_report
from tidemark_protocol.controller_messages import TopicPush
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset
from tidemark_protocol.partition_state import TopicState

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import KEY, TOPIC, TOPIC_ID, InProcessBroker, InProcessPool
from tests.unit.broker.replication.test_corruption_repair import agree, drop

MARK = "tidemark-damage.json"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    one_record_each = TopicState(TOPIC, TOPIC_ID, 1, 3, config={"segment.bytes": "16384"})
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3), topic=one_record_each)
    pool.lead(1, in_sync=[1, 2, 3])
    for number in range(5):
        pool.brokers[1].produce(f"{number}" * 16_384, acks=1)
    pool.replicate(2, 3, rounds=7)
    pool.brokers[1].directory.checkpoint_recovery_points()
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def flip_a_bit(broker: InProcessBroker, offset: int) -> None:
    path = broker.replica().log.segments[offset].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def restart(
    pool: InProcessPool, number: int, *, in_order: bool = False, disk: Disk | None = None
) -> InProcessBroker:
    broker = pool.brokers[number]
    if in_order:
        broker.partitions.stop("stopping")
        broker.directory.write_clean_stop(broker.broker_epoch)
    pool.kill(number)
    return pool.start(number, disk)


def reads_corruption(
    pool: InProcessPool, *, writes_fail_with: int
) -> tuple[InProcessBroker, FaultyDisk]:
    """The leader meets a damaged batch while it cannot write that down."""
    pool.kill(1)
    disk = FaultyDisk()
    broker = pool.start(1, disk)
    pool.lead(1, in_sync=[1, 2, 3])
    pool.replicate(2, 3, rounds=2)
    flip_a_bit(broker, 2)
    disk.io_failure["write"] = writes_fail_with
    broker.read(2)
    return broker, disk


def is_marked(broker: InProcessBroker) -> bool:
    return (broker.replica().log.directory / MARK).exists()


def is_registered_failed(broker: InProcessBroker) -> bool:
    ((key, log),) = broker.directory.logs.items()
    return replica_report(broker.directory, key, log).failed


@pytest.mark.parametrize("in_order", [False, True], ids=["killed", "stopped in order"])
def test_who_was_reported_failed_is_so_after_a_restart_until_it_is_rebuilt(
    pool: InProcessPool, in_order: bool
) -> None:
    flip_a_bit(pool.brokers[1], 2)
    pool.brokers[1].read(2)
    again = restart(pool, 1, in_order=in_order)
    assert again.replica().log.log_end_offset == 5, "nothing was verified"
    assert is_registered_failed(again)
    assert KEY in again.partitions.failed_replicas  # and so heartbeats say, from the first on
    pool.lead(2, in_sync=[2, 3])
    pool.acknowledge_failures(1)
    agree(pool, 1)
    assert again.replica().log.log_end_offset == 2
    pool.replicate(1, rounds=4)
    again.partitions.on_tick()
    assert again.log_bytes() == pool.brokers[2].log_bytes()
    assert again.partitions.failed_replicas == {}
    assert is_marked(again), "a lost kernel could still give back what was cut"
    again.replica().log.flush()
    again.partitions.on_tick()
    assert not is_marked(again)
    assert not is_registered_failed(restart(pool, 1))


def test_a_replica_that_still_counts_keeps_what_it_has_and_fetches_nothing(
    pool: InProcessPool,
) -> None:
    """The controller elected another, and did not hear of the damage before."""
    flip_a_bit(pool.brokers[1], 2)
    pool.brokers[1].read(2)
    again = restart(pool, 1)
    pool.lead(2, in_sync=[1, 2, 3])
    assert again.replica().log.log_end_offset == 5
    assert again.replica().next_fetch(pool.time.now_ms) is None
    drop(pool, 1, leader=2)
    agree(pool, 1)
    assert again.replica().log.log_end_offset == 2


def test_damage_that_recovery_cut_is_over_when_all_is_fetched_again(pool: InProcessPool) -> None:
    flip_a_bit(pool.brokers[1], 2)
    pool.brokers[1].read(2)
    (pool.path / "broker-1" / "recovery-point-offset-checkpoint").unlink()
    again = restart(pool, 1)
    assert again.replica().log.log_end_offset == 2
    assert is_registered_failed(again)
    pool.lead(2, in_sync=[2, 3])
    pool.acknowledge_failures(1)
    agree(pool, 1)
    pool.replicate(1, rounds=4)
    again.replica().log.flush()
    again.partitions.on_tick()
    assert again.log_bytes() == pool.brokers[2].log_bytes()
    assert (again.partitions.failed_replicas, is_marked(again)) == ({}, False)


def test_one_that_was_alone_is_not_registered_failed_but_still_knows(pool: InProcessPool) -> None:
    """Its entry is the only one: void, nobody would lead."""
    flip_a_bit(pool.brokers[1], 2)
    pool.lead(1, in_sync=[1])
    assert pool.brokers[1].read(2)[0].error is ErrorCode.CORRUPT_MESSAGE
    again = restart(pool, 1)
    assert not is_registered_failed(again)
    pool.lead(1, in_sync=[1])
    assert again.partitions.failed_replicas == {}
    pool.lead(1, in_sync=[1, 2])
    assert KEY in again.partitions.failed_replicas
    assert is_registered_failed(again)


def spoil_a_sector(pool: InProcessPool, offset: int) -> tuple[InProcessBroker, FaultyDisk]:
    """The leader's disk cannot read the batch at `offset` any more."""
    pool.kill(1)
    disk = FaultyDisk()
    broker = pool.start(1, disk)
    pool.lead(1, in_sync=[1, 2, 3])
    pool.replicate(2, 3, rounds=2)
    disk.bad_sectors[broker.replica().log.segments[offset].path] = range(100, 101)
    return broker, disk


@pytest.mark.parametrize("by", ["consumer", "follower"])
def test_a_sector_that_cannot_be_read_is_damage_that_a_restart_knows_of(
    pool: InProcessPool, by: str
) -> None:  # 0089
    """It ended the process, and the next one took the log for whole, and led without the batch."""
    broker, disk = spoil_a_sector(pool, 2)
    if by == "consumer":
        assert broker.read(2)[0].error is ErrorCode.CORRUPT_MESSAGE
    else:
        pool.lead(1, in_sync=[1, 3])
        pool.brokers[2].replica().log.truncate_to(Offset(2))
        pool.replicate(2, rounds=2)
    assert (broker.storage_errors, is_marked(broker)) == ([], True)
    assert KEY in broker.partitions.failed_replicas
    again = restart(pool, 1, in_order=True, disk=disk)
    assert again.replica().log.log_end_offset == 5
    assert is_registered_failed(again)
    pool.lead(3, in_sync=[3])
    pool.acknowledge_failures(1)
    agree(pool, 1)
    assert again.replica().log.log_end_offset == 2


def test_a_sector_that_a_later_start_can_read_was_no_damage(pool: InProcessPool) -> None:
    """Seeds 49001750 and 49002212 of the simulator: all others had lost their proofs, and the
    partition waited for people though nothing was missing."""
    broker, disk = spoil_a_sector(pool, 2)
    broker.read(2)
    disk.bad_sectors.clear()
    again = restart(pool, 1)
    assert (is_marked(again), is_registered_failed(again)) == (False, False)
    pool.lead(1, in_sync=[1])
    assert again.read(2)[0].error is ErrorCode.NONE


@pytest.mark.parametrize("first", ["unreadable", "flipped"])
def test_where_a_bit_flipped_too_it_stays_damaged(pool: InProcessPool, first: str) -> None:
    broker, disk = spoil_a_sector(pool, 2)
    if first == "flipped":
        flip_a_bit(broker, 1)
        broker.read(1)
    broker.read(2)
    if first == "unreadable":
        flip_a_bit(broker, 1)
    disk.bad_sectors.clear()
    again = restart(pool, 1, in_order=True)
    assert (is_marked(again), is_registered_failed(again)) == (True, True)


def test_what_recovery_cuts_off_is_judged_as_without_a_mark(pool: InProcessPool) -> None:
    """After a power cut, most tails have holes. The stop was unclean, which says enough."""
    broker, disk = spoil_a_sector(pool, 2)
    broker.read(2)
    disk.bad_sectors.clear()
    flip_a_bit(broker, 3)
    (pool.path / "broker-1" / "recovery-point-offset-checkpoint").unlink()
    again = restart(pool, 1)
    assert again.replica().log.log_end_offset == 3
    assert not again.replica().log.recovery.only_a_torn_tail
    assert (is_marked(again), is_registered_failed(again)) == (False, False)


def test_a_disk_that_can_neither_read_nor_write_ends_serving(pool: InProcessPool) -> None:
    broker, disk = spoil_a_sector(pool, 2)
    disk.io_failure["write"] = errno.EIO
    broker.read(2)
    assert len(broker.storage_errors) == 1


def test_damage_that_is_met_while_the_disk_fails_is_known_to_the_next_process(
    pool: InProcessPool,
) -> None:
    """Seed 46009284: a flush had failed in its worker, and the process was about to end for it."""
    pool.kill(1)
    disk = FaultyDisk()
    broker = pool.start(1, disk)
    pool.lead(1, in_sync=[1, 2, 3])
    pool.replicate(2, 3, rounds=2)
    flip_a_bit(broker, 2)
    disk.io_failure["sync"] = errno.EIO
    with pytest.raises(StorageFailed):
        broker.replica().log.flush()
    disk.io_failure.clear()
    broker.read(2)
    assert is_registered_failed(restart(pool, 1))


def test_a_replica_made_anew_is_not_damaged(pool: InProcessPool) -> None:
    leader = pool.brokers[1]
    flip_a_bit(leader, 2)
    leader.read(2)
    pool.image_version += 1
    deleted = TopicPush(pool.topic, (), is_deleted=True)
    leader.partitions.apply_push(replace(pool.image(), topics=(deleted,)))
    assert leader.partitions.failed_replicas == {}
    pool.push(1)
    assert leader.replica().log.log_end_offset == 0
    assert not is_marked(leader)
    assert not is_registered_failed(leader)


def test_a_full_disk_delays_the_mark_not_the_report(pool: InProcessPool) -> None:
    broker, disk = reads_corruption(pool, writes_fail_with=errno.ENOSPC)
    assert (KEY in broker.partitions.failed_replicas, is_marked(broker)) == (True, False)
    disk.io_failure.clear()
    broker.partitions.on_tick()
    assert is_marked(broker)
    assert broker.storage_errors == []


def test_a_disk_that_fails_there_ends_serving(pool: InProcessPool) -> None:
    broker, _ = reads_corruption(pool, writes_fail_with=errno.EIO)
    assert len(broker.storage_errors) == 1


def test_a_mark_is_read_as_it_was_written() -> None:
    known = KnownCorruption(Offset(7), "a reason", is_reported=False, is_unreadable=True)
    assert decode_corruption(encode_corruption(known)) == known


def test_a_mark_of_a_former_version_is_of_damage_that_stays() -> None:
    data = b'{"version": 0, "offset": 7, "reason": "a reason", "isReported": true}'
    assert decode_corruption(data) == KnownCorruption(Offset(7), "a reason", is_reported=True)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version": 0}', b'{"version": 1, "offset": 3}', b"\xff"]
)
def test_an_unreadable_mark_puts_all_of_the_log_in_doubt(data: bytes) -> None:
    known = decode_corruption(data)
    assert (known.offset, known.is_reported) == (0, True)


def test_a_damaged_log_that_was_short_too_stays_failed_once_nobody_counts_on_it(
    pool: InProcessPool,
) -> None:
    """Its role was refused for what recovery cut off; that this is over says nothing of the damage:
    it is to be heard of before the longest log of all is taken (S14)."""
    flip_a_bit(pool.brokers[1], 2)
    pool.brokers[1].read(2)
    directory = pool.brokers[1].directory
    directory.checkpoint_high_watermarks(pool.brokers[1].partitions.high_watermarks())
    (pool.path / "broker-1" / "recovery-point-offset-checkpoint").unlink()
    again = restart(pool, 1)
    pool.push()
    assert again.partitions.roles.failed_roles.keys == (KEY,)
    pool.lead_nobody()
    again.partitions.roles.failed_roles.retry()
    assert again.partitions.roles.failed_roles.keys == ()
    assert list(again.partitions.failed_replicas) == [KEY]
    again.partitions.on_tick()
    assert is_registered_failed(again)
