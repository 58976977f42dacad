"""Load Broker and PartitionSlice objects into the pools' states at a takeover.

An object that cannot be read is logged and skipped (S12).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from tidemark_protocol.ids import NO_EPOCH, BrokerId, TopicId

from tidemark_operator.api.broker import is_where_brokers_are, producer_id_round_of, read_broker
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.partition_slice import (
    MalformedObject,
    PartitionSlice,
    SliceReader,
    by_age,
)
from tidemark_operator.controller.core.deleted_topics import is_tombstone, read_tombstone
from tidemark_operator.controller.pool_loop import PoolLoop

logger = logging.getLogger(__name__)

# Some ten milliseconds of the loop each.
PARTITIONS_AT_A_TIME = 256
TOMBSTONES_AT_A_TIME = 500

PoolOf = Callable[[str], PoolLoop]


async def load(pool_of: PoolOf, brokers: Iterable[Object], slices: Iterable[Object]) -> None:
    """Load a few slices at a time, so that the Lease is renewed meanwhile."""
    for item in brokers:
        _load_broker(pool_of, item)
    tombstones: list[Object] = []
    others: list[Object] = []
    for item in slices:
        (tombstones if is_tombstone(item) else others).append(item)
    # Tombstones first: what they cover is not served (S12).
    for number, item in enumerate(tombstones, 1):
        try:
            _load_tombstone(pool_of, item)
        except MalformedObject as error:
            logger.error("deletion record unreadable", extra={"error": str(error)})
        if number % TOMBSTONES_AT_A_TIME == 0:
            await asyncio.sleep(0)
    reader = SliceReader()
    owners: dict[tuple[str, str], TopicId] = {}  # by pool and name
    partitions = 0
    for item in by_age(others):
        value = reader.read(item)
        if value is not None:
            _load_slice(pool_of, value, owners)
            partitions += len(value.partitions)
        if partitions >= PARTITIONS_AT_A_TIME:
            partitions = 0
            await asyncio.sleep(0)
    for flaw in reader.flaws:
        # Shown as a missing slice of its topic (S12); the other topics go on.
        logger.error("PartitionSlice unreadable", extra={"error": flaw})


def _load_broker(pool_of: PoolOf, item: Object) -> None:
    spec = item.get("spec", {})
    if not is_where_brokers_are(item):
        # Written by it, its broker would be asked for another one's resource version for ever.
        logger.error("Broker object ignored", extra={"object": item["metadata"].get("name")})
        return
    try:
        record = read_broker(item)
    except MalformedObject as error:
        # Its registration writes it anew; until then its entries are kept (S12).
        logger.error("Broker object unreadable", extra={"error": str(error)})
        if isinstance(spec.get("pool"), str):
            pool_of(spec["pool"]).state.record_producer_id_round(producer_id_round_of(item))  # S5
        return
    pool = pool_of(record.pool if record else str(spec.get("pool")))
    broker_id = record.broker_id if record else BrokerId(int(spec.get("brokerId", NO_EPOCH)))
    pool.load_broker(broker_id, record, item)


def _load_tombstone(pool_of: PoolOf, item: Object) -> None:
    tombstone = read_tombstone(item)
    pool_of(tombstone.pool).load_tombstone(tombstone)


def _load_slice(
    pool_of: PoolOf, value: PartitionSlice, owners: dict[tuple[str, str], TopicId]
) -> None:
    pool, topic = pool_of(value.pool), value.topic
    if pool.load_leftover(value):
        return
    owner = owners.setdefault((value.pool, topic.topic), topic.topic_id)
    if owner != topic.topic_id:
        # Put back after its name became another topic's: brokers told of both would make room for
        # logs of this one where the other's are.
        logger.error(
            "PartitionSlice ignored, another topic has its topicName",
            extra={"slice": value.name, "topic": topic.topic, "topic_id": topic.topic_id},
        )
        return
    pool.load_slice(value)
