"""Produces of idempotent producers through a broker's front door, against real logs."""

from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.replication.replica_manager import ProduceResult
from tidemark_protocol.error_codes import ErrorCode

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import (
    InProcessBroker,
    InProcessPool,
    a_batch,
    a_produced_batch,
)


@pytest.fixture
def pool(tmp_path: Path) -> InProcessPool:
    pool = InProcessPool(tmp_path, brokers=(1, 2), min_insync=2)
    pool.lead(1)
    return pool


def sent(broker: InProcessBroker, data: bytes, acks: int = 1) -> ProduceResult:
    (result,) = broker.produce_bytes(data, acks=acks)
    return result


def test_a_duplicate_is_answered_with_the_first_offset_and_not_appended(
    pool: InProcessPool,
) -> None:
    leader = pool.brokers[1]
    assert sent(leader, a_batch("before")).base_offset == 0
    first = sent(leader, a_produced_batch(0, "a", "b"))
    assert sent(leader, a_batch("between")).base_offset == 3
    again = sent(leader, a_produced_batch(0, "a", "b"))
    assert again == first == ProduceResult(ErrorCode.NONE, 1, 0)
    assert leader.replica().log.log_end_offset == 4
    assert next(leader.partitions.snapshots()).duplicate_batches == 1


def test_a_duplicate_with_acks_all_is_not_acknowledged_before_its_original_is_committed(
    pool: InProcessPool,
) -> None:
    """The original is in the leader's log alone: an answer now would promise what may be lost."""
    leader = pool.brokers[1]
    original = leader.produce_bytes(a_produced_batch(0, "a"), acks=-1)
    later = leader.produce_bytes(a_produced_batch(1, "b"), acks=-1)
    duplicate = leader.produce_bytes(a_produced_batch(0, "a"), acks=-1)
    assert original == later == duplicate == []
    pool.replicate(2, rounds=2)
    assert [r[0].base_offset for r in (original, duplicate, later)] == [0, 0, 1]
    assert all(r[0].error is ErrorCode.NONE for r in (original, duplicate, later))


def test_a_duplicate_of_what_is_committed_is_answered_at_once(pool: InProcessPool) -> None:
    leader = pool.brokers[1]
    leader.produce_bytes(a_produced_batch(0, "a"), acks=-1)
    pool.replicate(2, rounds=2)
    leader.produce_bytes(a_produced_batch(1, "b"), acks=-1)
    duplicate = leader.produce_bytes(a_produced_batch(0, "a"), acks=-1)
    assert duplicate == [ProduceResult(ErrorCode.NONE, 0, 0)]


def test_a_waiting_duplicate_is_completed_before_later_produces(pool: InProcessPool) -> None:
    leader = pool.brokers[1]
    order: list[str] = []

    def produce(name: str, data: bytes) -> None:
        leader.partitions.produce(
            "orders",
            0,
            memoryview(data),
            acks=-1,
            timeout_ms=1000,
            done=lambda _: order.append(name),
        )

    produce("first", a_produced_batch(0, "a"))
    produce("second", a_produced_batch(1, "b"))
    produce("first again", a_produced_batch(0, "a"))
    pool.replicate(2, rounds=2)
    assert order == ["first", "first again", "second"]


def test_a_duplicate_whose_time_runs_out_stays_unacknowledged(pool: InProcessPool) -> None:
    leader = pool.brokers[1]
    leader.produce_bytes(a_produced_batch(0, "a"), acks=-1, timeout_ms=10_000)
    duplicate = leader.produce_bytes(a_produced_batch(0, "a"), acks=-1, timeout_ms=100)
    pool.time.run(200)
    assert duplicate[0].error is ErrorCode.REQUEST_TIMED_OUT


def test_below_min_insync_a_duplicate_is_refused_like_any_produce(pool: InProcessPool) -> None:
    """I9: it may have been committed, but acks=all is not acknowledged now."""
    leader = pool.brokers[1]
    leader.produce_bytes(a_produced_batch(0, "a"), acks=-1)
    pool.replicate(2, rounds=2)
    pool.lead(1, in_sync=[1])
    again = sent(leader, a_produced_batch(0, "a"), acks=-1)
    assert again.error is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (a_produced_batch(1, "x"), ErrorCode.UNKNOWN_PRODUCER_ID),
        (a_produced_batch(0, "x", producer_id=-5), ErrorCode.INVALID_RECORD),
        (a_produced_batch(-1, "x"), ErrorCode.INVALID_RECORD),
        (a_produced_batch(0, "x", producer_epoch=-1), ErrorCode.INVALID_RECORD),
        (a_produced_batch(0, "x") + a_produced_batch(1, "y"), ErrorCode.INVALID_RECORD),
        (a_batch("x") + a_produced_batch(0, "y"), ErrorCode.INVALID_RECORD),
    ],
    ids=["gap", "negative id", "no sequence", "no epoch", "two batches", "mixed"],
)
def test_a_refused_batch_leaves_nothing(pool: InProcessPool, data: bytes, error: ErrorCode) -> None:
    leader = pool.brokers[1]
    refused = sent(leader, data)
    assert (refused.error, refused.base_offset) == (error, -1)
    assert refused.message
    assert leader.replica().log.log_end_offset == 0


def test_a_full_disk_moves_no_sequence(tmp_path: Path) -> None:
    """S10: the retry after the disk has room is appended, not taken for a duplicate."""
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    disk = FaultyDisk()
    pool.kill(1)
    leader = pool.start(1, disk)
    pool.lead(1, in_sync=[1])
    disk.space_bytes = 10
    assert sent(leader, a_produced_batch(0, "a")).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(leader.replica().log.producers) == 0
    disk.space_bytes = None
    assert sent(leader, a_produced_batch(0, "a")) == ProduceResult(ErrorCode.NONE, 0, 0)
    assert leader.replica().log.log_end_offset == 1


def test_a_quiet_producer_is_forgotten_after_the_topics_expiration_in_every_role(
    pool: InProcessPool,
) -> None:
    """S24: so long after the append, whatever its records say of their time."""
    pool.topic = replace(pool.topic, config={"producer.id.expiration.ms": "60000"})
    pool.push()
    leader = pool.brokers[1]
    leader.produce_bytes(a_produced_batch(0, "a"), acks=-1)
    pool.replicate(2, rounds=2)
    for _ in range(11):
        for broker in pool.brokers.values():
            broker.partitions.on_tick()
            assert len(broker.replica().log.producers) == 1
        pool.time.run(5_999)
    pool.time.run(1_000)
    for broker in pool.brokers.values():
        broker.partitions.on_tick()
        assert len(broker.replica().log.producers) == 0
    forgotten = sent(leader, a_produced_batch(1, "b"))
    assert (forgotten.error, forgotten.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)
    assert sent(leader, a_produced_batch(0, "b", producer_epoch=1)).error is ErrorCode.NONE


def test_registration_tells_the_highest_producer_id_of_all_logs(pool: InProcessPool) -> None:
    """S5: also of a partition that this broker only follows."""
    leader, follower = pool.brokers[1], pool.brokers[2]
    assert follower.directory.highest_producer_id == -1
    leader.produce_bytes(a_produced_batch(0, "a", producer_id=4001), acks=-1)
    leader.produce_bytes(a_produced_batch(0, "a", producer_id=2**62 + 5), acks=-1)  # forged
    pool.replicate(2, rounds=2)
    assert follower.directory.highest_producer_id == 4001
    pool.kill(2)
    assert pool.start(2).directory.highest_producer_id == 4001
