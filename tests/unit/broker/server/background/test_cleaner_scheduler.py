"""Compaction by a broker: what is due, in steps, beside a log that goes on; what it refuses."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from tidemark_broker.kafka_wire.records.compression import packed
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log import cleaner as compaction
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.disk_reserve import RESERVE
from tidemark_broker.log.segment import Segment
from tidemark_broker.server.background.cleaner_scheduler import LogCleaner
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tests.support.compacted_log_fixtures import keyed_batch, pairs_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import KEY, TOPIC, InProcessPool, a_batch
from tests.support.log_fixtures import headers_of

NOW_S = 1_700_000_000.0


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2))
    pool.topic = replace(
        pool.topic,
        config={
            "cleanup.policy": "compact",
            "segment.bytes": "16384",
            "min.cleanable.dirty.ratio": "0",
        },
    )
    pool.lead(1, in_sync=[1, 2])
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def put(pool: InProcessPool, key: str, value: str) -> None:
    data = bytes(keyed_batch((key, value)).data)
    (result,) = pool.brokers[1].produce_bytes(data, acks=1)
    assert result.error is ErrorCode.NONE
    pool.replicate(2)


def fill(pool: InProcessPool) -> None:
    """Three keys, twelve records of 5000 bytes: four segments."""
    for number in range(12):
        put(pool, f"key-{number % 3}", f"{number:05d}" * 1000)
    pool.replicate(2, rounds=2)


def clean(pool: InProcessPool, number: int, disk: OsDisk | None = None) -> int:
    cleaner = LogCleaner(pool.brokers[number].partitions, disk or OsDisk(), lambda: NOW_S)
    return asyncio.run(cleaner.pass_once())


def offsets(pool: InProcessPool, number: int) -> list[int]:
    return [offset for offset, _, _ in pairs_of(pool.brokers[number].replica().log)]


def test_leader_and_follower_compact_each_for_itself(pool: InProcessPool) -> None:
    fill(pool)
    assert clean(pool, 1) == 1
    after = offsets(pool, 1)
    assert len(after) < 12
    assert offsets(pool, 2) == list(range(12))
    assert clean(pool, 2) == 1
    assert offsets(pool, 2) == after
    assert pool.brokers[1].log_bytes()[:61] == pool.brokers[2].log_bytes()[:61]
    put(pool, "key-0", "next")
    pool.replicate(2, rounds=2)
    assert pairs_of(pool.brokers[2].replica().log)[-1] == (12, "key-0", "next")
    assert clean(pool, 1) == 0


def test_a_start_finds_the_indexes_of_what_was_compacted(pool: InProcessPool) -> None:
    fill(pool)
    clean(pool, 1)
    paths = [segment.path for segment in pool.brokers[1].replica().log.segments[:-1]]
    assert all(path.with_suffix(".index").exists() for path in paths)
    pool.kill(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Segment, "rebuild_indexes", _never)
        again = pool.start(1)
    assert [segment.path for segment in again.replica().log.segments[:-1]] == paths


def _never(segment: Segment) -> None:
    raise AssertionError(f"{segment.path} is read from end to end")


def test_how_far_it_came_is_known_after_a_restart(pool: InProcessPool) -> None:
    fill(pool)
    clean(pool, 1)
    cleaned_to = pool.brokers[1].replica().log.cleaned_to
    pool.brokers[1].directory.checkpoint_recovery_points()
    pool.kill(1)
    text = (pool.path / "broker-1" / checkpoint_formats.CLEANED_TO).read_bytes()
    assert checkpoint_formats.decode_offsets(text) == {(TOPIC, 0): cleaned_to}
    assert pool.start(1).replica().log.cleaned_to == cleaned_to > 0


def test_a_producer_that_may_retry_stays_and_an_expired_one_goes(pool: InProcessPool) -> None:
    replica = pool.brokers[1].replica()
    for producer_id in (7, 8, 9):
        data = bytes(keyed_batch(("key-0", "first"), producer=(producer_id, 0)).data)
        pool.brokers[1].produce_bytes(data, acks=1)
        replica.expire_producers(100_000_000 * (producer_id // 8))  # 8 and 9 are new by then
    fill(pool)
    clean(pool, 1)
    headers = headers_of(pool.brokers[1].log_bytes())
    assert [header.producer_id for header in headers if header.producer_id >= 0] == [8, 9]


def test_only_what_is_committed_is_compacted(pool: InProcessPool) -> None:
    for number in range(12):
        data = bytes(keyed_batch(("key", f"{number:05d}" * 1000)).data)
        pool.brokers[1].produce_bytes(data, acks=1)
    assert pool.brokers[1].replica().high_watermark == 0
    assert clean(pool, 1) == 0


def test_a_full_disk_only_delays_it(pool: InProcessPool) -> None:
    fill(pool)
    disk = FaultyDisk()
    disk.space_bytes = 100
    clean(pool, 1, disk)
    assert pool.brokers[1].storage_errors == []
    assert offsets(pool, 1) == list(range(12))
    assert clean(pool, 1) == 1
    assert len(offsets(pool, 1)) < 12


def test_it_gets_nothing_of_the_space_that_is_kept_for_checkpoints(pool: InProcessPool) -> None:
    fill(pool)
    directory = pool.brokers[1].directory
    (directory.path / RESERVE).touch()  # as it is once a checkpoint took that space
    directory.reserve.look()
    clean(pool, 1)
    assert offsets(pool, 1) == list(range(12))
    assert pool.brokers[1].storage_errors == []
    directory.reserve.keep(OsDisk().space(directory.path))
    assert clean(pool, 1) == 1
    assert len(offsets(pool, 1)) < 12


def test_a_failing_disk_ends_serving(pool: InProcessPool) -> None:  # S8
    fill(pool)
    disk = FaultyDisk()
    disk.io_failure["sync"] = 5
    clean(pool, 1, disk)
    assert len(pool.brokers[1].storage_errors) == 1


def test_a_log_that_is_removed_during_a_commit_fails_no_disk(pool: InProcessPool) -> None:
    """A sync takes its time, and the loop goes on meanwhile."""
    fill(pool)
    partitions = pool.brokers[1].partitions
    cleaner = LogCleaner(partitions, OsDisk(), lambda: NOW_S)
    log = pool.brokers[1].replica().log
    commit = log.swaps.commit

    def slow_commit(path: Path, begun: int) -> bool:
        is_committed = commit(path, begun)
        pool.brokers[1].directory.remove_logs([(log.topic_id, log.partition)])
        return is_committed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log.swaps, "commit", slow_commit)
        asyncio.run(cleaner.pass_once())
    assert log.failure == "it was removed"
    assert pool.brokers[1].storage_errors == []


def test_a_log_that_would_outgrow_its_segment_is_no_failing_disk(
    pool: InProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(pool)
    monkeypatch.setattr(compaction, "MAX_SEGMENT_BYTES", 4_000)
    assert clean(pool, 1) == 1
    assert pool.brokers[1].storage_errors == []
    assert pool.brokers[1].replica().corruption is None
    assert {9, 10, 11} <= set(offsets(pool, 1))  # the last of each key


def test_damage_that_it_meets_is_reported(pool: InProcessPool) -> None:  # I10
    fill(pool)
    path = pool.brokers[1].replica().log.segments[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    clean(pool, 1)
    replica = pool.brokers[1].replica()
    assert replica.corruption is not None
    assert replica.corruption.offset == 2
    assert KEY in pool.brokers[1].partitions.failed_replicas


def test_records_without_a_key_are_refused(pool: InProcessPool) -> None:
    (refused,) = pool.brokers[1].produce_bytes(a_batch("no key"), acks=1)
    assert refused.error is ErrorCode.INVALID_RECORD
    assert "no key" in refused.message
    assert pool.brokers[1].replica().log.log_end_offset == 0


def compressed(codec: int, body: bytes) -> bytes:
    plain = keyed_batch(("key", "value")).data
    data = bytearray(plain[:HEADER_BYTES]) + body
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] |= codec
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_every_codec_is_taken_and_what_does_not_open_is_refused(
    pool: InProcessPool, codec: int
) -> None:
    body = packed(codec, keyed_batch(("key", "value")).data[HEADER_BYTES:])
    (taken,) = pool.brokers[1].produce_bytes(compressed(codec, body), acks=1)
    assert taken.error is ErrorCode.NONE
    (broken,) = pool.brokers[1].produce_bytes(compressed(codec, b"not packed"), acks=1)
    assert broken.error is ErrorCode.INVALID_RECORD
