"""S27: a leader that never heard of an epoch in between must not count what followers had before.

Found by the search of tests/model (docs/decisions/0015). Real logs, cores and frames.
"""

from pathlib import Path

from tidemark_protocol.ids import BrokerId

from tests.support.in_process_pool import InProcessPool


def test_progress_from_before_an_epoch_that_the_leader_missed_acknowledges_nothing(
    tmp_path: Path,
) -> None:
    """1 leads and 2 has its record. 3 leads meanwhile and 2 follows it, cutting that record; 1
    leads again and heard of neither change. 2 is in the ISR, but has not got the record now."""
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3), min_insync=2)
    pool.lead(1)
    superseded = pool.brokers[1]
    responses = superseded.produce("r", timeout_ms=600_000)
    pool.replicate(2, rounds=2)
    leader = superseded.replica().leader
    assert leader is not None
    follower = leader.follower(BrokerId(2))
    assert follower is not None and follower.log_end_offset == 1
    del pool.brokers[1]  # out of earshot, not dead
    pool.lead(3, in_sync=None)
    pool.brokers[3].produce("other")
    pool.replicate(2, rounds=3)
    pool.brokers[1] = superseded
    pool.kill(3)
    pool.lead(1, in_sync=[1, 2])
    assert responses == []
    assert superseded.replica().high_watermark == 0
    pool.replicate(2, rounds=4)
    assert [response.error for response in responses] == [0]
    assert pool.brokers[2].log_bytes() == superseded.log_bytes()
