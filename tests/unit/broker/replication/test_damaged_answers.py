"""What a leader sent was damaged on its way to a follower: a bit of memory, or of a network card.

TCP's checksum misses some of that, the batches' own does not (I10). All of the shell is real here,
from the connection's bytes to the log.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.replication.core.follower import MAX_BACK_OFF_MS

from tests.support.in_process_pool import InProcessPool
from tests.unit.broker.jumping_loop import run_without_waiting
from tests.unit.broker.replication.test_leader_endpoint import SECOND, Wire

MARGIN_MS = 5  # clocks are rounded


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, SECOND))
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def corruption_response(wire: Wire, text: bytes) -> None:
    """One bit of what is on its way."""
    (response,) = wire.answers
    corrupt = bytearray(response)
    corrupt[corrupt.index(text)] ^= 1
    wire.answers[0] = bytes(corrupt)


def test_a_damaged_answer_is_not_kept_and_asked_for_again_after_a_while(
    pool: InProcessPool,
) -> None:
    leader, follower = pool.brokers[1], pool.brokers[SECOND]

    async def main() -> None:
        pool.lead(1)
        wire = Wire(pool)
        wire.refresh()
        leader.produce("before", acks=1)
        wire.deliver_all()
        before = follower.log_bytes()
        assert before == leader.log_bytes() != b""

        leader.produce("whole", acks=1)
        leader.produce("damaged on its way", acks=1)
        for _ in range(2):
            wire.deliver_request()
            pool.time.run(20)
            corruption_response(wire, b"damaged on its way")
            wire.deliver_response()
            assert follower.log_bytes() == before
            assert follower.storage_errors == []
            assert follower.replica().corruption is None  # its own disk is as whole as ever
            assert follower.partitions.failed_replicas == {}
            assert not wire.requests  # not at once: the leader's own memory may be at fault
            await asyncio.sleep((MAX_BACK_OFF_MS - MARGIN_MS) / 1000)
            assert not wire.requests
            await asyncio.sleep(2 * MARGIN_MS / 1000)
            assert wire.requested[-1].fetch_offset == 1

        wire.deliver_all()
        assert follower.log_bytes() == leader.log_bytes() != before
        assert leader.replica().high_watermark == 3

    run_without_waiting(main)
