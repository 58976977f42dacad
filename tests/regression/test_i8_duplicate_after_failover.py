"""I8: what a client sends again after a failover is in the log once, and acknowledged when it is
committed. (Kafka: KIP-98, idempotent producer; the producer's state is in every replica's log.)"""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import InProcessBroker, InProcessPool, a_produced_batch


def sequences(broker: InProcessBroker) -> list[tuple[int, int]]:
    """(producer epoch, base sequence) of every batch in the log."""
    data, position, found = broker.log_bytes(), 0, []
    while position < len(data):
        header = read_header(data, position)
        found.append((header.producer_epoch, header.base_sequence))
        position += header.size_bytes
    return found


@pytest.fixture
def pool(tmp_path: Path) -> InProcessPool:
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3), min_insync=2)
    pool.lead(1)
    return pool


def test_an_answer_that_died_with_the_leader_is_found_by_its_successor(
    pool: InProcessPool,
) -> None:
    """Replicated, not yet committed, the leader dies: the retry at the next leader is the original,
    and acknowledged only once the in-sync replicas of the new epoch have it."""
    lost = pool.brokers[1].produce_bytes(a_produced_batch(0, "r"))
    pool.replicate(2, 3)  # they have it; 1 has not heard so
    assert lost == []
    pool.kill(1)
    pool.lead(2, in_sync=[2, 3])
    retry = pool.brokers[2].produce_bytes(a_produced_batch(0, "r"))
    assert retry == []
    pool.replicate(3, rounds=2)
    assert [(r.error, r.base_offset) for r in retry] == [(ErrorCode.NONE, 0)]
    assert sequences(pool.brokers[2]) == sequences(pool.brokers[3]) == [(0, 0)]


def test_what_died_with_the_leader_is_appended_by_its_successor(pool: InProcessPool) -> None:
    """Not replicated: the retry is what comes next there, and the old leader gives its copy up."""
    pool.brokers[1].produce_bytes(a_produced_batch(0, "committed"))
    pool.replicate(2, 3, rounds=2)
    pool.brokers[1].produce_bytes(a_produced_batch(1, "r"))
    pool.kill(1)
    pool.lead(2, in_sync=[2, 3])
    retry = pool.brokers[2].produce_bytes(a_produced_batch(1, "r"))
    following = pool.brokers[2].produce_bytes(a_produced_batch(2, "next"))
    pool.replicate(3, rounds=2)
    assert [r[0].base_offset for r in (retry, following)] == [1, 2]
    pool.start(1)
    pool.push()
    pool.replicate(1, rounds=3)
    for broker in pool.brokers.values():
        assert sequences(broker) == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_that_was_truncated_is_not_taken_for_a_duplicate(pool: InProcessPool) -> None:
    """1 holds r uncommitted, is deposed and cuts it off, and leads again: r is not in its log any
    more, so that answering a retry from memory would acknowledge what nobody has."""
    pool.brokers[1].produce_bytes(a_produced_batch(0, "r"))
    pool.lead(2)
    pool.replicate(1, 3, rounds=2)
    assert sequences(pool.brokers[1]) == []
    pool.lead(1)
    retry = pool.brokers[1].produce_bytes(a_produced_batch(0, "r"))
    pool.replicate(2, 3, rounds=2)
    assert [(r.error, r.base_offset) for r in retry] == [(ErrorCode.NONE, 0)]
    assert sequences(pool.brokers[2]) == [(0, 0)]


def test_a_new_epoch_fences_what_is_still_on_its_way_also_after_a_failover(
    pool: InProcessPool,
) -> None:
    """A frozen connection delivers the old epoch's batch to the new leader: its records were sent
    again under the new epoch already."""
    pool.brokers[1].produce_bytes(a_produced_batch(0, "r", producer_epoch=1))
    pool.replicate(2, 3, rounds=2)
    pool.kill(1)
    pool.lead(2, in_sync=[2, 3])
    late = pool.brokers[2].produce_bytes(a_produced_batch(0, "r", producer_epoch=0))
    assert late[0].error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert sequences(pool.brokers[2]) == [(1, 0)]


def test_batches_of_one_producer_cannot_overtake_each_other_at_a_new_leader(
    pool: InProcessPool,
) -> None:
    """The new leader knows nothing of the producer, and the second of two retries comes first:
    taken (as Kafka does, KIP-360) the first could never be written any more."""
    pool.brokers[1].produce_bytes(a_produced_batch(0, "a"))
    pool.brokers[1].produce_bytes(a_produced_batch(1, "b"))
    pool.kill(1)
    pool.lead(2, in_sync=[2, 3])
    leader = pool.brokers[2]
    early = leader.produce_bytes(a_produced_batch(1, "b"))
    assert early[0].error is ErrorCode.UNKNOWN_PRODUCER_ID
    retries = [leader.produce_bytes(a_produced_batch(n, "r")) for n in range(2)]
    pool.replicate(3, rounds=2)
    assert [r[0].base_offset for r in retries] == [0, 1]


def test_everybody_restarts_and_the_duplicate_is_still_known(pool: InProcessPool) -> None:
    pool.brokers[1].produce_bytes(a_produced_batch(0, "r"))
    pool.replicate(2, 3, rounds=2)
    for number in (1, 2, 3):
        pool.kill(number)
    for number in (1, 2, 3):
        pool.start(number)
    pool.lead(3, in_sync=[1, 2, 3])
    pool.replicate(1, 2, rounds=2)
    retry = pool.brokers[3].produce_bytes(a_produced_batch(0, "r"))
    assert [(r.error, r.base_offset) for r in retry] == [(ErrorCode.NONE, 0)]
    assert sequences(pool.brokers[3]) == [(0, 0)]


def test_a_batch_whose_predecessor_was_lost_on_the_way_is_refused_until_that_comes(
    pool: InProcessPool,
) -> None:
    """The connection dies with b, and c arrives on a new one: taken, b could never be written."""
    leader = pool.brokers[1]
    leader.produce_bytes(a_produced_batch(0, "a"))
    early = leader.produce_bytes(a_produced_batch(2, "c"))
    assert early[0].error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in (1, 2):
        leader.produce_bytes(a_produced_batch(sequence, "again"))
    assert sequences(leader) == [(0, 0), (0, 1), (0, 2)]
