"""S10: an append that failed leaves nothing behind, no bytes and no sequence."""

from pathlib import Path

from tidemark_protocol.error_codes import ErrorCode

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import InProcessPool, a_produced_batch


def test_a_retry_after_a_full_disk_is_written_and_readable(tmp_path: Path) -> None:
    """The disk cuts the write of r in the middle. Had the producer's state moved, the retry would
    be acknowledged as a duplicate of nothing; had bytes stayed, it would land behind them."""
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.kill(1)
    disk = FaultyDisk()
    leader = pool.start(1, disk)
    pool.lead(1, in_sync=[1])
    leader.produce_bytes(a_produced_batch(0, "before"))
    size_bytes = leader.replica().log.size_bytes
    disk.space_bytes = 30
    failed = leader.produce_bytes(a_produced_batch(1, "r"))[0]
    assert failed.error is ErrorCode.KAFKA_STORAGE_ERROR
    segment = next((tmp_path / "broker-1" / "orders-0").glob("*.log"))
    assert segment.stat().st_size == size_bytes
    disk.space_bytes = None
    retry = leader.produce_bytes(a_produced_batch(1, "r"))[0]
    assert (retry.error, retry.base_offset) == (ErrorCode.NONE, 1)
    pool.kill(1)
    again = pool.start(1)
    assert again.directory.logs[pool.topic.topic_id, 0].recovery.reason == ""
    pool.lead(1, in_sync=[1])
    assert again.read(0)[0].high_watermark == 2
    known = again.produce_bytes(a_produced_batch(1, "r"))[0]
    assert (known.error, known.base_offset) == (ErrorCode.NONE, 1)


def test_a_replicated_append_that_fails_leaves_the_follower_as_it_was(tmp_path: Path) -> None:
    pool = InProcessPool(tmp_path, brokers=(1, 2), min_insync=1)
    pool.kill(2)
    disk = FaultyDisk()
    pool.start(2, disk)
    pool.lead(1, in_sync=[1, 2])
    pool.brokers[1].produce_bytes(a_produced_batch(0, "r"))
    disk.space_bytes = 30
    pool.replicate(2)
    follower = pool.brokers[2].replica().log
    assert (follower.log_end_offset, len(follower.producers)) == (0, 0)
    disk.space_bytes = None
    pool.time.run(2_000)
    pool.replicate(2, rounds=2)
    assert (follower.log_end_offset, len(follower.producers)) == (1, 1)
