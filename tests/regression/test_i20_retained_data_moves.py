"""I20: retained data moves whole, and is led for the move alone.

Real logs, cores and frames; the moves are the controller's own decisions (docs/decisions/0145).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.server.background.checkpointing import CheckpointWriter
from tidemark_broker.server.config import CheckpointIntervals
from tidemark_operator.controller.core.elections import LeaderCounts, retained_or_moved
from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility
from tidemark_operator.controller.core.reassignment import reassigned
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch

from tests.support.in_process_pool import TOPIC, WALL_CLOCK_S, InProcessPool

YEAR_S = 365 * 24 * 3600
RECORDS = [f"{number}" * 5000 for number in range(6)]


class RetainedPool(InProcessPool):
    """Brokers 1 and 2 have six records of a topic that was deleted; 3 is to take the place of 1."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, brokers=(1, 2))
        self.start(3)
        self.topic = replace(self.topic, config={"segment.bytes": "16384", "retention.ms": "1000"})
        self.lead(1, in_sync=[1, 2])
        for value in RECORDS:
            self.brokers[1].produce(value, acks=1)
        self.replicate(rounds=3)
        self.retain()

    def retain(self) -> None:
        """As a deletion with the policy Retain does."""
        self.is_retained = True
        self.state = replace(
            self.state,
            leader=NO_BROKER,
            leader_broker_epoch=BrokerEpoch(-1),
            leader_epoch=LeaderEpoch(self.state.leader_epoch + 1),
            partition_epoch=PartitionEpoch(self.state.partition_epoch + 1),
        )
        self.push()

    def evaluate(self) -> None:
        self.state = retained_or_moved(
            self.topic,
            self.state,
            self.lives(),
            leader_counts=LeaderCounts([self.state]),
            is_confirmed=True,
        )
        self.push()

    def move_to(self, *target: int) -> None:
        brokers = tuple(map(BrokerId, target))
        self.state = reassigned(self.topic, self.state, self.lives(), brokers, is_retained=True)
        self.evaluate()

    def lives(self) -> Eligibility:
        return Eligibility(
            {
                broker.broker_id: BrokerEligibility(
                    broker.broker_id,
                    broker.broker_epoch,
                    BrokerEpoch(0),
                    BrokerEpoch(0),
                    is_live=True,
                )
                for broker in self.brokers.values()
            }
        )

    def age(self, number: int) -> None:
        """A pass of retention in a year."""
        broker = self.brokers[number]

        async def once() -> None:
            checkpointing = CheckpointWriter(
                broker.partitions,
                broker.directory,
                lambda: WALL_CLOCK_S + YEAR_S,
                CheckpointIntervals(),
            )
            await checkpointing.pass_once()

        asyncio.run(once())


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[RetainedPool]:
    pool = RetainedPool(tmp_path)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def test_retained_records_are_on_the_new_broker_before_the_old_one_leaves(
    pool: RetainedPool,
) -> None:
    whole = pool.brokers[1].log_bytes()
    pool.move_to(3, 2)
    assert pool.state.leader == 2
    for number in (1, 2):
        pool.age(number)  # nothing of retained data goes by time, also while it is led
    pool.replicate(rounds=6)
    pool.brokers[2].partitions.on_tick()
    assert {1, 2, 3} == {int(m.broker_id) for m in pool.checker(2).new_in_sync_replicas}
    pool.evaluate()
    assert (pool.state.replicas, pool.state.leader) == ((3, 2), NO_BROKER)
    assert pool.brokers[1].partitions.hosted(pool.topic.topic_id, 0) is None
    pool.age(3)
    assert pool.brokers[2].log_bytes() == pool.brokers[3].log_bytes() == whole


def test_no_client_reaches_retained_data_that_is_led_for_its_move(pool: RetainedPool) -> None:
    pool.move_to(3, 2)
    leader = pool.brokers[2]
    assert leader.replica().leader is not None
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [result.error for result in leader.read(0)] == [refused]
    assert [result.error for result in leader.produce("late")] == [refused]
    assert leader.partitions.offsets(TOPIC, 0).error is refused
    assert leader.partitions.delete_records(TOPIC, 0, 3).error is refused
    assert leader.replica().log.log_end_offset == len(RECORDS)


def test_data_that_is_adopted_again_is_served_by_its_leader(pool: RetainedPool) -> None:
    pool.move_to(3, 2)
    pool.is_retained = False
    pool.lead(2)
    assert [result.error for result in pool.brokers[2].read(0)] == [ErrorCode.NONE]
