"""Retention and deletion of records as a pool of brokers lives them."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.record_batch import (
    read_records,
    split_batches,
    with_append_time,
)
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.replication.core.effects import LeaderResponse
from tidemark_broker.replication.log_start_offset import UP_TO_HIGH_WATERMARK
from tidemark_broker.replication.results import NO_APPEND_TIME
from tidemark_broker.server.background.checkpointing import CheckpointWriter
from tidemark_broker.server.config import CheckpointIntervals
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import (
    KEY,
    TOPIC,
    WALL_CLOCK_S,
    InProcessPool,
    a_produced_batch,
)

WRITTEN_S = 1_700_000_000  # the timestamp of the pool's batches
WEEK_S = 7 * 24 * 3600


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2))
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def configure(pool: InProcessPool, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    pool.topic = replace(pool.topic, config=named)
    pool.push()


def retain(pool: InProcessPool, number: int, *, now_s: float) -> None:
    broker = pool.brokers[number]

    async def once() -> None:
        checkpointing = CheckpointWriter(
            broker.partitions, broker.directory, lambda: now_s, CheckpointIntervals()
        )
        await checkpointing.pass_once()

    asyncio.run(once())


def fill(pool: InProcessPool, count: int = 6) -> None:
    pool.lead(1, in_sync=[1, 2])
    for number in range(count):
        pool.brokers[1].produce(f"{number}" * 5000, acks=1)
        pool.replicate(2, rounds=1)
    pool.replicate(2, rounds=2)


def starts(pool: InProcessPool) -> list[int]:
    return [pool.brokers[number].replica().log.log_start_offset for number in sorted(pool.brokers)]


def test_a_changed_config_is_used_by_the_open_log(pool: InProcessPool) -> None:
    configure(pool, segment_bytes="16384", retention_ms="1000", cleanup_policy="compact,delete")
    settings = pool.brokers[1].replica().log.settings
    assert (settings.segment_bytes, settings.retention_ms) == (16384, 1000)
    assert (settings.compacts, settings.deletes) == (True, True)
    configure(pool)
    settings = pool.brokers[1].replica().log.settings
    assert (settings.segment_bytes, settings.retention_ms) == (1 << 30, WEEK_S * 1000)
    assert (settings.compacts, settings.deletes) == (False, True)


def test_followers_follow_the_leaders_log_start(pool: InProcessPool) -> None:
    configure(pool, segment_bytes="16384", retention_bytes="10000")
    fill(pool)
    retain(pool, 1, now_s=WRITTEN_S)
    assert starts(pool) == [3, 0]
    pool.replicate(2)
    assert starts(pool) == [3, 3]
    response = pool.brokers[1].read(1)[0]
    assert (response.error, response.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)


def test_every_replica_keeps_time_for_itself(pool: InProcessPool) -> None:
    fill(pool)
    retain(pool, 2, now_s=WRITTEN_S + WEEK_S + 1)
    assert starts(pool) == [0, 6]
    assert pool.brokers[2].replica().log.size_bytes == 0
    pool.brokers[1].produce("later")
    pool.replicate(2, rounds=2)
    assert pool.brokers[2].replica().log.log_end_offset == 7


def test_what_is_not_committed_is_kept(pool: InProcessPool) -> None:  # I1
    pool.lead(1, in_sync=[1, 2])
    pool.brokers[1].produce("a", acks=1)
    retain(pool, 1, now_s=WRITTEN_S + WEEK_S + 1)
    assert starts(pool) == [0, 0]


def test_nothing_is_too_old_before_the_topic_said_what_it_keeps(pool: InProcessPool) -> None:
    """Registered, and its metadata on the way: the defaults are another topic's."""
    configure(pool, retention_ms="-1")
    fill(pool)
    broker = pool.brokers[2]
    broker.directory.checkpoint_high_watermarks(broker.partitions.high_watermarks())
    pool.kill(2)
    pool.start(2)
    retain(pool, 2, now_s=WRITTEN_S + 10 * WEEK_S)
    assert starts(pool) == [0, 0]
    configure(pool)
    retain(pool, 2, now_s=WRITTEN_S + 10 * WEEK_S)
    assert starts(pool) == [0, 6]


def test_what_is_retained_without_a_topic_does_not_grow_old(pool: InProcessPool) -> None:  # I20
    """It was deleted by mistake, and is to be adopted again, whole."""
    configure(pool)
    fill(pool)
    for is_retained, start in ((True, 0), (False, 6)):
        pool.image_version += 1
        image = pool.image()
        (topic,) = image.topics
        pushed = replace(image, topics=(replace(topic, is_retained=is_retained),))
        pool.brokers[2].partitions.apply_push(pushed)
        retain(pool, 2, now_s=WRITTEN_S + 10 * WEEK_S)
        assert starts(pool) == [0, start]


def test_a_restart_knows_the_log_start(pool: InProcessPool) -> None:
    configure(pool, segment_bytes="16384", retention_bytes="10000")
    fill(pool)
    retain(pool, 1, now_s=WRITTEN_S)
    pool.kill(1)
    text = (pool.path / "broker-1" / checkpoint_formats.LOG_STARTS).read_bytes()
    assert checkpoint_formats.decode_offsets(text) == {(TOPIC, 0): 3}
    broker = pool.start(1)
    assert broker.replica().log.log_start_offset == 3


def test_records_deleted_on_request_are_deleted_everywhere(pool: InProcessPool) -> None:
    fill(pool)
    found = pool.brokers[1].partitions.delete_records(TOPIC, 0, Offset(4))
    assert (found.error, found.log_start_offset) == (ErrorCode.NONE, 4)
    pool.replicate(2)
    assert starts(pool) == [4, 4]
    assert pool.brokers[1].read(3)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    found = pool.brokers[1].partitions.delete_records(TOPIC, 0, UP_TO_HIGH_WATERMARK)
    assert found.log_start_offset == 6
    lower = pool.brokers[1].partitions.delete_records(TOPIC, 0, Offset(1))
    assert (lower.error, lower.log_start_offset) == (ErrorCode.NONE, 6)


def test_records_are_deleted_by_the_leader_and_below_its_high_watermark(
    pool: InProcessPool,
) -> None:
    fill(pool)
    pool.brokers[1].produce("uncommitted", acks=1)
    beyond = pool.brokers[1].partitions.delete_records(TOPIC, 0, Offset(7))
    assert (beyond.error, beyond.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    assert "high watermark" in beyond.message
    elsewhere = pool.brokers[2].partitions.delete_records(TOPIC, 0, Offset(1))
    assert elsewhere.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = pool.brokers[1].partitions.delete_records("nowhere", 0, Offset(1))
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_follower_that_ends_below_the_leaders_log_start_begins_anew_there(
    pool: InProcessPool,
) -> None:
    fill(pool)
    pool.brokers[1].partitions.delete_records(TOPIC, 0, UP_TO_HIGH_WATERMARK)
    pool.kill(2)
    pool.path.joinpath("broker-2").rename(pool.path / "lost")
    pool.start(2)
    pool.lead(1, in_sync=[1])
    pool.replicate(2, rounds=3)
    log = pool.brokers[2].replica().log
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)


def test_a_follower_begins_anew_where_the_leaders_log_starts_inside_a_batch(
    pool: InProcessPool,
) -> None:
    """KAFKA-6975: whole batches are stored and fetched, so its log begins with the batch."""
    pool.lead(1, in_sync=[1, 2])
    pool.brokers[1].produce("a", "b", "c", acks=1)
    pool.brokers[1].produce("d", acks=1)
    pool.replicate(2, rounds=3)
    pool.brokers[1].partitions.delete_records(TOPIC, 0, Offset(1))
    pool.kill(2)
    pool.path.joinpath("broker-2").rename(pool.path / "lost")
    pool.start(2)
    pool.lead(1, in_sync=[1])
    pool.replicate(2, rounds=4)
    log = pool.brokers[2].replica().log
    assert (log.log_start_offset, log.log_end_offset) == (1, 4)
    assert pool.brokers[2].log_bytes() == pool.brokers[1].log_bytes()


def test_a_full_disk_delays_checkpoints_and_stops_nothing(pool: InProcessPool) -> None:
    pool.kill(1)
    disk = FaultyDisk()
    pool.start(1, disk)
    configure(pool, segment_bytes="16384", retention_bytes="10000")
    fill(pool)
    disk.space_bytes = 0
    retain(pool, 1, now_s=WRITTEN_S)
    assert pool.brokers[1].storage_errors == []
    log = pool.brokers[1].replica().log
    assert len(list(log.directory.glob("*.log"))) == 2, "deleted before the checkpoint was written"
    disk.space_bytes = None
    retain(pool, 1, now_s=WRITTEN_S)
    assert len(list(log.directory.glob("*.log"))) == 1
    assert pool.brokers[1].partitions.hosted(*KEY) is not None


def test_a_topic_with_log_append_time_stamps_what_it_takes(pool: InProcessPool) -> None:
    configure(pool, message_timestamp_type="LogAppendTime")
    pool.lead(1, in_sync=[1, 2])
    assert pool.brokers[1].produce("a", acks=1)[0].error is ErrorCode.NONE
    pool.replicate(2, rounds=2)
    data = memoryview(pool.brokers[2].log_bytes())
    (batch,) = split_batches(data, max_batch_bytes=len(data))
    stamp_ms = int(WALL_CLOCK_S * 1000)
    assert batch.header.max_timestamp_ms == stamp_ms
    assert [record.timestamp_ms for record in read_records(batch.data)] == [stamp_ms]
    assert pool.brokers[1].replica().log.offset_for_timestamp(stamp_ms) == (0, stamp_ms)


def test_a_topic_with_create_time_keeps_the_times_of_records_whose_batch_says_otherwise(
    pool: InProcessPool,
) -> None:
    """As Kafka 4.4: the type becomes the topic's, the batch's largest time stays."""
    pool.lead(1, in_sync=[1, 2])
    (sent,) = split_batches(memoryview(a_produced_batch(0, "a")), max_batch_bytes=1000)
    stamped = with_append_time(sent, 1_600_000_000_000)
    assert pool.brokers[1].produce_bytes(bytes(stamped.data), acks=1)[0].error is ErrorCode.NONE
    data = memoryview(pool.brokers[1].log_bytes())
    (batch,) = split_batches(data, max_batch_bytes=len(data))
    assert not batch.header.has_append_time
    assert batch.header.max_timestamp_ms == 1_600_000_000_000
    assert [record.timestamp_ms for record in read_records(batch.data)] == [1_700_000_000_000]


def test_a_topic_with_log_append_time_refuses_a_batch_that_is_stamped_already(
    pool: InProcessPool,
) -> None:
    configure(pool, message_timestamp_type="LogAppendTime")
    pool.lead(1, in_sync=[1, 2])
    (sent,) = split_batches(memoryview(a_produced_batch(0, "a")), max_batch_bytes=1000)
    response = pool.brokers[1].produce_bytes(bytes(with_append_time(sent, 1).data), acks=1)[0]
    assert response.error is ErrorCode.INVALID_TIMESTAMP
    assert [found.position for found in response.record_errors] == [0]
    assert pool.brokers[1].log_bytes() == b""


def test_a_duplicate_is_answered_with_the_time_that_its_original_was_stamped_with(
    pool: InProcessPool,
) -> None:
    configure(pool, message_timestamp_type="LogAppendTime")
    pool.lead(1, in_sync=[1, 2])
    broker, batch = pool.brokers[1], a_produced_batch(0, "a")
    first, again = (broker.produce_bytes(batch, acks=1)[0] for _ in range(2))
    assert first.append_time_ms == int(WALL_CLOCK_S * 1000)
    assert again == first
    configure(pool)
    assert broker.produce_bytes(batch, acks=1)[0].append_time_ms == NO_APPEND_TIME


def test_an_empty_log_that_goes_back_to_where_its_leader_begins_loses_nothing(
    pool: InProcessPool,
) -> None:
    """Seed 24003382: all offsets from there on were counted as committed records lost."""
    pool.lead(1)
    follower, now_ms = pool.brokers[2], pool.time.now_ms
    replica = follower.replica()
    assert replica.follower is not None
    replica.log.truncate_fully_and_start_at(Offset(88))  # a former leader's log start
    replica.follower.on_restarted(Offset(88))
    fetch = replica.next_fetch(now_ms)
    assert fetch is not None
    response = LeaderResponse(
        ErrorCode.OFFSET_OUT_OF_RANGE, Offset(-1), Offset(0), has_records=False
    )
    replica.on_leader_response(fetch, response, memoryview(b""), now_ms)
    assert (replica.log.log_end_offset, replica.high_watermark) == (0, 0)
    shown = replica.snapshot(now_ms)
    assert (shown.truncated_records, shown.committed_truncated_records) == (0, 0)
    assert follower.partitions.committed_cuts.unrecorded() == ()
