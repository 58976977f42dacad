"""A volume that is really full heals itself, where retention or removed logs allow it (0085)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.record_batch import read_records, split_batches
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk_reserve import RESERVE
from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.log_config import settings_of_topic
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.server.config import CheckpointIntervals
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, Offset

from tests.support.broker_on_disk import Machine, Process
from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.in_process_pool import InProcessPool
from tests.support.log_fixtures import append
from tests.support.small_volume import SmallVolume
from tests.support.waiting import eventually, run
from tests.unit.broker.replication.test_log_starts import WRITTEN_S, configure, fill, retain, starts
from tests.unit.broker.server.test_broker_server import Running, controller

KIBIBYTE = 1024
VOLUME_BYTES = 320 * KIBIBYTE
HELD_BYTES = 4 * KIBIBYTE
RETENTION = {"segment.bytes": "16384", "retention.bytes": "60000"}
OFTEN = CheckpointIntervals(interval_seconds=0.05)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2))
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def free_bytes(pool: InProcessPool, number: int, volume: SmallVolume) -> None:
    """As a broker does within two minutes."""
    for _ in range(2):  # what one pass renamed the next one deletes
        retain(pool, number, now_s=WRITTEN_S)
    look_at_space(pool, number, volume)
    pool.time.run(1000)


def look_at_space(pool: InProcessPool, number: int, volume: SmallVolume) -> None:
    pool.brokers[number].directory.reserve.keep(volume.space(volume.path))


def fill_up(volume: SmallVolume) -> None:
    """To the last byte."""
    (volume.path / "somebody-else").write_bytes(bytes(volume.free_bytes))


def values_of(log: PartitionLog) -> list[tuple[int, str]]:
    """(offset, first letters) of all records."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = memoryview(log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset))
        for batch in split_batches(data, max_batch_bytes=len(data)):
            for record in read_records(batch.data):
                assert record.value is not None
                found.append((record.offset, record.value[:4].decode()))
            offset = batch.header.next_offset
    return found


def test_a_follower_that_filled_its_volume_frees_it_and_goes_on(pool: InProcessPool) -> None:
    pool.kill(2)
    volume = SmallVolume(pool.path / "broker-2", 100 * KIBIBYTE)
    follower = pool.start(2, volume)
    look_at_space(pool, 2, volume)
    configure(pool, segment_bytes="16384")
    fill(pool, count=25)
    log = follower.replica().log
    copied = log.log_end_offset
    assert 0 < copied < 25
    fill_up(volume)
    assert (volume.path / RESERVE).stat().st_size > 0, "released for records"
    configure(pool, segment_bytes="16384", retention_bytes="10000")
    free_bytes(pool, 2, volume)
    assert volume.free_bytes > 70 * KIBIBYTE
    pool.replicate(2, rounds=12)  # and it is full once more
    free_bytes(pool, 2, volume)
    pool.replicate(2, rounds=12)
    assert log.log_end_offset == 25
    written = values_of(pool.brokers[1].replica().log)
    assert values_of(log) == written[log.log_start_offset :]
    assert follower.storage_errors == []


def test_what_an_earlier_checkpoint_says_is_deleted_without_a_new_one(pool: InProcessPool) -> None:
    """There is no reserve here."""
    configure(pool, segment_bytes="16384", retention_bytes="10000")
    fill(pool)
    pool.kill(1)
    log_starts = pool.path / "broker-1" / checkpoint_formats.LOG_STARTS
    log_starts.write_bytes(checkpoint_formats.encode_offsets({("orders", 0): Offset(3)}))
    volume = SmallVolume(pool.path / "broker-1", 0)
    broker = pool.start(1, volume)
    pool.push()
    assert len(list(broker.replica().log.directory.glob("*.log"))) == 2
    retain(pool, 1, now_s=WRITTEN_S)
    assert len(list(broker.replica().log.directory.glob("*.log"))) == 1
    assert starts(pool)[0] == 3
    assert broker.storage_errors == []


async def a_full_volume(
    harness: Harness, machine: Machine, volume: SmallVolume
) -> list[tuple[int, str]]:
    """Of a broker that was killed. What its log holds; all was committed but for the last."""
    process = Process(harness, machine.settings(), "first", volume)
    directory = process.directory
    await process.register()
    await process.serve()
    topic = harness.topic_state(1, 1, **RETENTION)
    await harness.service.create_topic(POOL, topic, ((BrokerId(0),),))
    directory.reserve.keep(volume.space(volume.path))
    log = process.log()
    log.settings = settings_of_topic(RETENTION)
    filled = False
    while not filled:
        committed = Offset(log.log_end_offset - 1)
        if log.log_end_offset == 30:
            directory.checkpoint_recovery_points()
            directory.checkpoint_high_watermarks({(ORDERS, 0): committed})
        try:
            append(log, b"%4d" % log.log_end_offset + bytes(3000))
        except DiskFull:
            filled = True
    fill_up(volume)
    held = values_of(log)
    assert process.voice is not None
    process.kill()
    return held


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_broker_that_starts_on_a_full_volume_serves_and_frees_it(
    tmp_path: Path, is_reserved: bool
) -> None:
    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            volume = SmallVolume(machine.path, VOLUME_BYTES)
            held = await a_full_volume(harness, machine, volume)
            if is_reserved:  # its former life was killed after it took the space for a checkpoint
                (machine.path / RESERVE).write_bytes(b"")
            process = Running(harness, machine, volume, recovery_points=OFTEN)
            await process.served()
            assert process.broker.partitions.broker_epoch == stored_broker_epoch(machine.path)
            await eventually(lambda: volume.free_bytes > VOLUME_BYTES // 2)
            log = process.broker.partitions.replicas[0].log
            assert values_of(log) == held[log.log_start_offset :]
            assert log.size_bytes >= int(RETENTION["retention.bytes"])
            partitions = process.broker.partitions
            leading = partitions.find_leading
            await eventually(lambda: not isinstance(leading("orders", 0), ErrorCode))
            await eventually(lambda: not partitions.low_disk_space)
            process.append(b"more")
            await eventually(lambda: (machine.path / RESERVE).stat().st_size == HELD_BYTES)
            process.sigterm()
            assert await process.ended() == 0

    run(scenario)


def stored_broker_epoch(path: Path) -> int:
    return checkpoint_formats.decode_highest_epochs(
        (path / checkpoint_formats.HIGHEST_EPOCHS).read_bytes()
    )[0]


def test_what_was_removed_is_deleted_before_the_epoch_that_has_no_space_is_stored(
    tmp_path: Path,
) -> None:
    """A volume that was full when this version first opened it has no reserve."""

    async def scenario() -> None:
        async with controller() as harness:
            machine = Machine(harness, BrokerId(0), tmp_path / "volume")
            volume = SmallVolume(machine.path, VOLUME_BYTES)
            await a_full_volume(harness, machine, volume)
            (machine.path / "orders-0").rename(machine.path / "orders-0.5f-delete")
            (machine.path / RESERVE).rename(machine.path / "as-much")
            process = Running(harness, machine, volume, recovery_points=OFTEN)
            await process.served()
            assert not list(machine.path.glob("*-delete"))
            process.sigterm()
            await process.ended()

    run(scenario)
