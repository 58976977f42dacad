"""What compaction leaves of idempotent producers: who may retry is found again, others go (I8)."""

import dataclasses
from pathlib import Path

from tidemark_broker.log.partition_log import PartitionLog
from tidemark_protocol.ids import FORGED_PRODUCER_IDS_FROM, LeaderEpoch

from tests.support.compacted_log_fixtures import COMPACTED, compact, keyed_batch, put, seal
from tests.support.log_fixtures import NoSyncDisk, headers_of, open_log, read_all

DISK = NoSyncDisk()
EXPIRATION_MS = 1_000
ROOMY = dataclasses.replace(COMPACTED, segment_bytes=10_000)


def opened(path: Path) -> PartitionLog:
    return open_log(path, DISK, recovery_point=None, settings=ROOMY)


def produce(log: PartitionLog, producer_id: int, sequence: int = 0) -> None:
    """To a key that all of them write."""
    batch = keyed_batch(("key", f"{producer_id:02d}"), producer=(producer_id, sequence))
    log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))


def outdate(log: PartitionLog) -> None:
    put(log, ("key", "of nobody"))
    seal(log)


def check_clock(log: PartitionLog, now_ms: int) -> None:
    log.producers.expire(now_ms, expiration_ms=EXPIRATION_MS)


def producers_in(log: PartitionLog) -> list[int]:
    return [header.producer_id for header in headers_of(read_all(log)) if header.producer_id >= 0]


def read_anew(log: PartitionLog) -> PartitionLog:
    """All of it from the log alone, as after a start that finds no snapshot."""
    for path in log.directory.glob("*.*"):
        if path.suffix in (".producers", ".snapshot"):
            path.unlink()
    return opened(log.directory)


def test_batches_of_expired_producers_go(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for producer_id in range(20):
        produce(log, producer_id)
    check_clock(log, 0)
    check_clock(log, EXPIRATION_MS)
    outdate(log)
    compact(log, DISK)
    assert producers_in(log) == [19]  # the highest


def test_a_log_of_short_lived_producers_does_not_grow(tmp_path: Path) -> None:
    log = opened(tmp_path)
    sizes = []
    for life in range(12):
        produce(log, life)
        check_clock(log, life * EXPIRATION_MS)
        seal(log)
        compact(log, DISK)
        sizes.append(log.size_bytes)
    assert max(sizes[4:]) <= sizes[3]


def test_who_is_not_expired_is_found_again_after_compaction(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for producer_id in (3, 4, 5):
        produce(log, producer_id)
    check_clock(log, 0)
    produce(log, 3, 1)  # since when it is quiet nobody has looked
    check_clock(log, EXPIRATION_MS)
    check_clock(log, 2 * EXPIRATION_MS - 1)
    outdate(log)
    compact(log, DISK)
    assert producers_in(log) == [5, 3]
    entry = read_anew(log).producers.get(3)
    assert entry is not None and entry.last_sequence == 1


def test_a_restart_expires_nobody_for_compaction(tmp_path: Path) -> None:
    """Whom the broker would have forgotten just now is counted anew from its load (S24)."""
    log = opened(tmp_path)
    for producer_id in (3, 4):
        produce(log, producer_id)
    check_clock(log, 0)
    check_clock(log, EXPIRATION_MS - 1)
    outdate(log)
    log.close()
    again = opened(tmp_path)
    compact(again, DISK)  # before anybody looked at the clock
    assert producers_in(again) == [3, 4]
    check_clock(again, 10 * EXPIRATION_MS)
    put(again, ("key", "again"))
    seal(again)
    compact(again, DISK)
    assert producers_in(again) == [3, 4]
    assert set(read_anew(again).producers.ids) == {3, 4}


def test_the_highest_id_stays_for_whoever_gives_the_next_one(tmp_path: Path) -> None:  # S5
    log = opened(tmp_path)
    for producer_id in (3, 9, 4, FORGED_PRODUCER_IDS_FROM):
        produce(log, producer_id)
    log.producers.expire(0, expiration_ms=EXPIRATION_MS)
    log.producers.expire(EXPIRATION_MS, expiration_ms=EXPIRATION_MS)
    outdate(log)
    compact(log, DISK)
    assert producers_in(log) == [9]
    assert read_anew(log).producers.highest_producer_id == 9


def test_a_segment_of_kept_batches_is_not_written_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for producer_id in (3, 4):
        produce(log, producer_id)
    outdate(log)
    compact(log, DISK)
    first = log.segments[0]
    put(log, ("other", "1" * ROOMY.segment_bytes))  # too large to be joined with it
    seal(log)
    compact(log, DISK)
    assert log.segments[0] is first
    assert producers_in(log) == [3, 4]
