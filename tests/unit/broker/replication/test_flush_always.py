"""`flush: Always`: who acknowledges has it on its disk (S11)."""

from pathlib import Path

from tidemark_broker.replication.replica_manager import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset
from tidemark_protocol.partition_state import TopicState

from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessPool, a_produced_batch


def stored(offset: int) -> ProduceResult:
    return ProduceResult(ErrorCode.NONE, Offset(offset), Offset(0))


def flushing_pool(tmp_path: Path) -> InProcessPool:
    topic = TopicState(TOPIC, TOPIC_ID, 1, 2, flush="Always")
    pool = InProcessPool(tmp_path, brokers=(1, 2), topic=topic)
    pool.lead(1)
    return pool


def flush(pool: InProcessPool, number: int) -> None:
    replica = pool.brokers[number].replica()
    end, epoch = replica.log.log_end_offset, replica.leader_epoch
    replica.log.flush()
    replica.on_flushed(end, epoch, pool.time.now_ms)


def test_flush_always_acknowledges_only_flushed_ends(tmp_path: Path) -> None:  # S11
    pool = flushing_pool(tmp_path)
    flush(pool, 2)  # a follower fetches nothing before its own end is durable
    results = pool.brokers[1].produce("a")
    pool.replicate(2)
    assert pool.send_fetch(2) is None
    flush(pool, 2)
    pool.replicate(2)
    assert results == []
    flush(pool, 1)
    assert results == [stored(0)]
    for number in (1, 2):
        pool.kill(number)


def test_with_flush_always_the_leader_alone_acknowledges_once_its_own_disk_has_it(
    tmp_path: Path,
) -> None:
    pool = flushing_pool(tmp_path)
    leader = pool.brokers[1]
    first = leader.produce_bytes(a_produced_batch(0, "a"), acks=1)
    everybody = leader.produce_bytes(a_produced_batch(1, "b"))
    assert (first, everybody) == ([], [])
    flush(pool, 1)
    assert (first, everybody) == ([stored(0)], [])
    assert leader.produce_bytes(a_produced_batch(0, "a"), acks=1) == [stored(0)]  # sent again
    late = leader.produce("c", acks=1, timeout_ms=100)
    pool.time.run(200)
    cut_off = leader.produce("d", acks=1)
    pool.lead(2)
    assert [result.error for result in late + cut_off] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    for number in (1, 2):
        pool.kill(number)
