"""Produces with acks=all that were appended before the ISR fell below min ISR (I9, KIP-966): where
the watermark stands they are neither acknowledged nor told of a failure, where it moves with the
ISR alone they are told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.replication.replica_manager import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset, PartitionEpoch
from tidemark_protocol.partition_state import TopicState

from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessPool, a_produced_batch

STORED = ProduceResult(ErrorCode.NONE, Offset(0), Offset(0))


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path)
    pool.lead(1)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def errors(results: list[ProduceResult]) -> list[ErrorCode]:
    return [result.error for result in results]


def only_the_leader_is_in_sync(pool: InProcessPool) -> None:
    pool.state = replace(
        pool.state,
        in_sync_replicas=(pool.member(1),),
        partition_epoch=PartitionEpoch(pool.state.partition_epoch + 1),
    )
    pool.push()


def another_joins(pool: InProcessPool) -> None:
    pool.replicate(2, rounds=2)
    pool.checker(1)


def test_they_wait_for_the_isr_or_for_their_timeout(pool: InProcessPool) -> None:
    patient = pool.brokers[1].produce("a", timeout_ms=10_000)
    hasty = pool.brokers[1].produce("b", timeout_ms=100)
    only_the_leader_is_in_sync(pool)
    assert (patient, hasty) == ([], [])
    pool.time.run(200)
    assert (patient, errors(hasty)) == ([], [ErrorCode.REQUEST_TIMED_OUT])
    pool.replicate(2, rounds=2)
    assert patient == []
    pool.checker(1)
    assert patient == [STORED]


def test_what_the_isr_alone_commits_below_min_isr_is_told_to_be_in_the_log(tmp_path: Path) -> None:
    pool = InProcessPool(tmp_path, topic=TopicState(TOPIC, TOPIC_ID, 1, 3, commit_rule="Isr"))
    pool.lead(1)
    waiting = pool.brokers[1].produce("a", timeout_ms=10_000)
    only_the_leader_is_in_sync(pool)
    assert errors(waiting) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert pool.brokers[1].replica().high_watermark == 1
    assert errors(pool.brokers[1].produce("b")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    for number in tuple(pool.brokers):
        pool.kill(number)


def test_a_retry_is_refused_until_the_isr_has_grown_and_is_a_duplicate_then(
    pool: InProcessPool,
) -> None:
    leader = pool.brokers[1]
    first = leader.produce_bytes(a_produced_batch(0, "a"), timeout_ms=100)
    only_the_leader_is_in_sync(pool)
    pool.time.run(200)
    retry = leader.produce_bytes(a_produced_batch(0, "a"))
    assert errors(first + retry) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS]
    another_joins(pool)
    assert leader.produce_bytes(a_produced_batch(0, "a")) == [STORED]
    assert leader.replica().log.log_end_offset == 1
