"""S24: a clean stop keeps all of a producer's window, and only time since an append forgets it."""

from dataclasses import replace
from pathlib import Path

from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch

from tests.support.in_process_pool import InProcessPool, a_produced_batch


def test_five_batches_in_flight_come_back_after_a_clean_stop_and_all_are_known(
    tmp_path: Path,
) -> None:
    """The answers are lost with the connection. Were only the last batch known, as in Kafka's
    snapshot, four retries would be out of order, and the client would go on in a new epoch."""
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    for sequence in range(5):
        pool.brokers[1].produce_bytes(a_produced_batch(sequence, f"r{sequence}"))
    broker = pool.brokers[1]
    broker.directory.write_clean_stop(BrokerEpoch(broker.broker_epoch))
    pool.kill(1)
    started = pool.start(1)
    assert started.directory.clean_stop_epoch == broker.broker_epoch
    pool.lead(1, in_sync=[1])
    retries = [started.produce_bytes(a_produced_batch(n, f"r{n}"))[0] for n in range(5)]
    assert [(r.error, r.base_offset) for r in retries] == [(ErrorCode.NONE, n) for n in range(5)]
    assert started.replica().log.log_end_offset == 5


def test_records_dated_long_ago_do_not_expire_their_producer(tmp_path: Path) -> None:
    """A replayed archive: Kafka counts from the records' own timestamps, and would forget at the
    first sweep what was written a minute ago."""
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    old = build_batch(
        [NewRecord(None, b"of 1970")],
        timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    broker = pool.brokers[1]
    broker.produce_bytes(old)
    for _ in range(3):
        broker.partitions.on_tick()
        pool.time.run(60_000)
    retry = broker.produce_bytes(old)[0]
    assert (retry.error, retry.base_offset) == (ErrorCode.NONE, 0)
    assert broker.replica().log.log_end_offset == 1


def test_time_counts_anew_from_a_load(tmp_path: Path) -> None:
    """How long the broker was away is not known to it: the client may have been waiting for it."""
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.topic = replace(pool.topic, config={"producer.id.expiration.ms": "60000"})
    pool.lead(1)
    pool.brokers[1].produce_bytes(a_produced_batch(0, "r"))
    pool.brokers[1].partitions.on_tick()
    pool.time.run(50_000)
    pool.kill(1)
    started = pool.start(1)
    pool.lead(1, in_sync=[1])
    started.partitions.on_tick()
    pool.time.run(50_000)
    started.partitions.on_tick()
    assert started.produce_bytes(a_produced_batch(0, "r"))[0].base_offset == 0
    assert started.replica().log.log_end_offset == 1
