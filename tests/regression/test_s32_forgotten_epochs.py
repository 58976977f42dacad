"""S32: where two histories parted lies below the leader's log start, so nobody can say it.

A deposed leader has records of its own epoch that nobody copied. Its successor committed others in
their place, and retention has deleted them since. Kafka's leader answers that the old epoch ended
where its log starts: the follower would keep its own records below that, only hidden by its log
start, which is written down a minute later. Killed before, and elected, it would show them.
"""

from pathlib import Path

import pytest
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.in_process_pool import InProcessPool, a_produced_batch


@pytest.mark.parametrize("tail", [("lost",), ("lost", "lost too", "and this"), ("lost",) * 9])
def test_a_follower_keeps_nothing_of_an_epoch_that_its_leader_has_forgotten(
    tmp_path: Path, tail: tuple[str, ...]
) -> None:
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3), min_insync=2)
    pool.lead(1)
    pool.brokers[1].produce("both have it")
    pool.replicate(2, 3, rounds=2)
    for value in tail:
        pool.brokers[1].produce(value)
    pool.kill(1)
    pool.lead(2, in_sync=[2, 3])
    leader = pool.brokers[2].replica().log
    for number in range(6):
        pool.brokers[2].produce(f"committed {number}")
        if leader.log_end_offset == 4:
            leader._roll()
    pool.replicate(3, rounds=2)
    leader.advance_log_start(Offset(4))
    leader.delete_segments_below(Offset(4))
    pool.start(1)
    pool.push()
    pool.replicate(1, rounds=3)
    again = pool.brokers[1].replica().log
    assert (again.log_start_offset, again.log_end_offset) == (4, 7)
    assert again._segments[0].base_offset == 4  # nothing of it is on the disk
    assert pool.brokers[1].log_bytes() == pool.brokers[2].log_bytes()


@pytest.mark.parametrize("deleted", [2, 3])
def test_a_follower_whose_log_starts_where_its_leaders_does_goes_on(
    tmp_path: Path, deleted: int
) -> None:
    """Nothing parted there: all records were deleted, and then another led. It was told to cut
    where there was nothing to cut, over and over, and was in sync no more."""
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3), min_insync=2)
    pool.lead(1)
    for value in ("a", "b"):
        pool.brokers[1].produce(value)
    pool.replicate(2, 3, rounds=3)
    for broker in pool.brokers.values():
        broker.replica().log.advance_log_start(Offset(2))
    leader = pool.brokers[2].replica().log
    leader.delete_segments_below(Offset(2))  # the others' next pass is to come
    pool.lead(2)
    for number in range(deleted - 2):
        pool.brokers[2].produce(f"{number}")
    pool.replicate(1, 3, rounds=4)
    for number in (1, 3):
        log = pool.brokers[number].replica().log
        assert (log.log_start_offset, log.log_end_offset) == (2, leader.log_end_offset)
    assert pool.brokers[2].replica().high_watermark == leader.log_end_offset == deleted


@pytest.mark.parametrize("tail", [0, 1, 3])
def test_who_ends_where_its_leaders_log_starts_still_knows_its_producers(
    tmp_path: Path, tail: int
) -> None:
    """Seed 40001614 of the simulator: retention took a producer's last batch everywhere while its
    acknowledgement was lost. Whoever copied from a leader with an empty log forgot the producer,
    led in its turn, and took the retry for a first batch. `tail`: what it must cut."""
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3), min_insync=1)
    pool.lead(1)
    batch = a_produced_batch(0, "unacknowledged")
    pool.brokers[1].produce_bytes(batch, acks=1)
    pool.replicate(2, 3, rounds=2)
    pool.lead(3, in_sync=[2, 3])
    for number in range(tail):
        pool.brokers[3].produce(f"nobody copied {number}", acks=1)
    leader = pool.brokers[2].replica()
    leader.log.advance_log_start(Offset(1))
    leader.log.delete_segments_below(Offset(1))
    pool.lead(2, in_sync=[2])
    pool.replicate(3, rounds=3)
    assert pool.brokers[3].log_bytes() == pool.brokers[2].log_bytes()
    pool.lead(3, in_sync=[2, 3])
    (again,) = pool.brokers[3].produce_bytes(batch, acks=1)
    assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
    assert pool.brokers[3].replica().log.log_end_offset == 1
