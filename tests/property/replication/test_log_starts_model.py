"""Whatever a partition went through, followers end with their leader's log.

Records are deleted up to any offset, also inside a batch, and each replica retains for itself;
brokers are killed, come with an empty disk, lead again, with proof or without. Then one more record
and a while of fetches: nobody may be left behind.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidemark_broker.replication.log_start_offset import (
    UP_TO_HIGH_WATERMARK,
    advance_log_starts,
    delete_segments,
)
from tidemark_protocol.ids import Offset

from tests.support.in_process_pool import TOPIC, InProcessPool
from tests.support.log_fixtures import headers_of

BROKERS = (1, 2, 3)
CONFIG = {"segment.bytes": "300", "retention.bytes": "900"}
ROUNDS = 20  # more than any cut and restart takes
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "produce",
                "produce",
                "produce",
                "replicate",
                "replicate",
                "delete records",
                "retain",
                "restart",
                "lose the disk",
                "elect",
            )
        ),
        st.sampled_from(BROKERS),
        st.integers(0, 5),
    ),
    min_size=5,
    max_size=40,
)


class RunningPool:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.pool = InProcessPool(path, min_insync=1)
        self.pool.topic = replace(self.pool.topic, config=CONFIG)
        self.leader = 1
        self.produced = 0
        self.pool.lead(1)

    def take(self, step: str, number: int, count: int) -> None:
        brokers, is_leader = self.pool.brokers, number == self.leader
        match step:
            case "produce":
                values = [f"{self.produced + at}" for at in range(1 + count)]
                brokers[self.leader].produce(*values, acks=1)
                self.produced += len(values)
            case "replicate" if count > 1:
                self.pool.replicate(*self.followers(), rounds=2)
            case "replicate" if not is_leader:
                self.pool.replicate(number)
            case "delete records":
                replica = brokers[self.leader].replica()
                offset = Offset(min(replica.log.log_start_offset + count, replica.high_watermark))
                wanted = UP_TO_HIGH_WATERMARK if count > 2 else offset
                brokers[self.leader].partitions.delete_records(TOPIC, 0, wanted)
            case "retain":
                raised = advance_log_starts((brokers[number].replica(),), wall_ms=1_700_000_000_000)
                brokers[number].directory.checkpoint_recovery_points()
                delete_segments(raised)
            case "restart" | "lose the disk" if not is_leader:
                if count % 2:
                    self.checkpoint(number)
                self.pool.kill(number)
                if step == "lose the disk":
                    shutil.rmtree(self.path / f"broker-{number}")
                self.pool.start(number)
                self.pool.lead(self.leader, [self.leader])
            case "elect" if not is_leader:
                self.leader = number
                self.pool.lead(number, [number])

    def followers(self) -> tuple[int, ...]:
        return tuple(number for number in BROKERS if number != self.leader)

    def checkpoint(self, number: int) -> None:
        broker = self.pool.brokers[number]
        broker.directory.checkpoint_high_watermarks(broker.partitions.high_watermarks())
        broker.directory.checkpoint_recovery_points()

    def bytes_from(self, number: int, start: Offset) -> bytes:
        log = self.pool.brokers[number].replica().log
        found, parts = start, []
        while found < log.log_end_offset:
            data = log.read(found, max_bytes=1 << 20, end_offset=log.log_end_offset)
            parts.append(data)
            found = headers_of(data)[-1].next_offset
        return b"".join(parts)

    def check_that_all_follow(self) -> None:
        self.take("produce", self.leader, 0)  # who is told the same over and over lacks it
        for _ in range(ROUNDS):
            self.pool.time.run(1_000)  # longer than any back-off
            self.pool.replicate(*self.followers())
        leader = self.pool.brokers[self.leader].replica().log
        for number in BROKERS:
            replica = self.pool.brokers[number].replica()
            log = replica.log
            assert log.log_end_offset == leader.log_end_offset
            assert log.log_start_offset <= replica.high_watermark <= log.log_end_offset  # I1
            start = max(log.log_start_offset, leader.log_start_offset)
            assert self.bytes_from(number, start) == self.bytes_from(self.leader, start)
            assert self.pool.brokers[number].storage_errors == []


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(STEPS)
def test_followers_end_with_their_leaders_log(steps):
    path = Path(tempfile.mkdtemp())
    living = RunningPool(path)
    try:
        for step in steps:
            living.take(*step)
        living.check_that_all_follow()
    finally:
        for number in tuple(living.pool.brokers):
            living.pool.kill(number)
        shutil.rmtree(path)
