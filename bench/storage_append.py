"""CPU microseconds for one append, as leader and as follower, and for one read.

    python bench/storage_append.py [directory]

Everything a produce costs below the network: split (header and CRC32C), new prefix, one write,
index bookkeeping; nothing is synced. CPU time, so that a busy machine matters less. The log is
truncated every 64 MB, or fresh pages would be measured.
"""

import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch, split_batches
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import LeaderEpoch, Offset, TopicId

TOPIC_ID = TopicId("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
TRUNCATE_AT_BYTES = 64 * 1024 * 1024
ROUNDS = 5  # the best one is shown: the others are the machine's


def open_log(directory: Path) -> PartitionLog:
    directory.mkdir()
    return PartitionLog(
        OsDisk(),
        directory,
        topic="bench",
        topic_id=TOPIC_ID,
        partition=0,
        settings=LogSettings(),
    )


def best_us(run: Callable[[], None], count: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(count):
            run()
        best = min(best, (time.process_time() - started) / count * 1e6)
    return best


def measure(parent: Path, batch_bytes: int) -> tuple[float, float, float]:
    data = memoryview(build_batch([NewRecord(None, bytes(batch_bytes - 72))], timestamp_ms=1))
    leader = open_log(parent / f"leader-{batch_bytes}")
    follower = open_log(parent / f"follower-{batch_bytes}")

    def append_as_leader() -> None:
        if leader.size_bytes > TRUNCATE_AT_BYTES:
            leader.truncate_to(Offset(0))
        batches = split_batches(data, max_batch_bytes=1 << 20)
        leader.append_as_leader(batches, leader_epoch=LeaderEpoch(1))

    offsets = itertools.count()

    def read_next() -> None:
        end = leader.log_end_offset
        leader.read(Offset(next(offsets) % end), max_bytes=batch_bytes, end_offset=end)

    def append_as_follower() -> None:
        if follower.size_bytes > TRUNCATE_AT_BYTES:
            follower.truncate_to(Offset(0))
        batches = split_batches(data, max_batch_bytes=1 << 20)
        prefix = follower.log_end_offset.to_bytes(8, "big") + bytes(data[8:12]) + bytes(4)
        replicated[:] = prefix + data[16:]
        assert batches
        follower.append_as_follower(memoryview(replicated))

    replicated = bytearray(data)
    count = max(200, min(20_000, 30_000_000 // batch_bytes))
    return (
        best_us(append_as_leader, count),
        best_us(append_as_follower, count),
        best_us(read_next, count),
    )


def main() -> None:
    parent = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        print(f"{'batch':>8} {'leader us':>10} {'MB/s':>7} {'follower us':>12} {'read us':>8}")
        for batch_bytes in (1024, 16 * 1024, 128 * 1024):
            leader_us, follower_us, read_us = measure(parent, batch_bytes)
            rate = batch_bytes / leader_us
            print(
                f"{batch_bytes // 1024:>5} KB {leader_us:>10.1f} {rate:>7.0f} "
                f"{follower_us:>12.1f} {read_us:>8.1f}"
            )
    finally:
        shutil.rmtree(parent)


if __name__ == "__main__":
    main()
