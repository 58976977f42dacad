"""S5, the brokers' side: what is on a volume keeps its producer ids, whoever forgot them."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tidemark_protocol.controller_messages import AllocateProducerIdsRequest
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.controller_harness import POOL, FakeBroker, Harness
from tests.support.in_process_pool import InProcessPool, a_produced_batch


async def id_of_a_new_pool(highest_producer_id: int) -> int:
    """The first id that a controller without any stored object gives to broker 0."""
    harness = await Harness().start(0)
    broker = FakeBroker(harness, BrokerId(0), "0-a")
    await broker.register(highest_producer_id=highest_producer_id)
    response = await harness.service.allocate_producer_ids(
        AllocateProducerIdsRequest(POOL, broker.broker_id, broker.epoch)
    )
    assert response.error is ErrorCode.NONE, response.message
    return response.first_producer_id


def test_a_pool_made_anew_gives_no_id_whose_batches_a_volume_holds(tmp_path: Path) -> None:
    """The producer of a batch expired long ago, its broker stopped cleanly, the pool's objects were
    deleted. Given the same id, another producer's first batch would be answered as a duplicate
    of that batch after the next restart: acknowledged and never stored."""
    first = asyncio.run(id_of_a_new_pool(-1))
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.topic = replace(pool.topic, config={"producer.id.expiration.ms": "1000"})
    pool.lead(1)
    pool.brokers[1].produce_bytes(a_produced_batch(0, "old", producer_id=first))
    for _ in range(3):
        pool.brokers[1].partitions.on_tick()
        pool.time.run(2_000)
    assert len(pool.brokers[1].replica().log.producers) == 0
    pool.brokers[1].directory.write_clean_stop(BrokerEpoch(1))
    pool.kill(1)
    started = pool.start(1)
    again = asyncio.run(id_of_a_new_pool(started.directory.highest_producer_id))
    assert again > first
    pool.lead(1, in_sync=[1])
    written = started.produce_bytes(a_produced_batch(0, "new", producer_id=again))[0]
    assert (written.error, written.base_offset) == (ErrorCode.NONE, 1)
