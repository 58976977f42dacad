"""Delete topics permanently, and finish later what a deletion left.

First the deletion record is durable; from then on the topic does not exist for brokers and clients.
Then its slices are deleted, immediately or at a later tick, by a successor too; last the deletion
record itself (S12).
"""

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice

from tidemark_protocol.ids import TopicId

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.deleted_topics import Tombstone, tombstone_of
from tidemark_operator.controller.pool_loop import PoolLoop
from tidemark_operator.store.object_store import StoreError

logger = logging.getLogger(__name__)

SWEPT_AT_ONCE = 128


async def delete_for_good(pool: PoolLoop, topic_id: TopicId, topic: str) -> None:
    """Delete a topic permanently.

    Requires: the caller holds the topic and a turn of the pool. Raises Deferred, then nothing has
    changed. `topic` is its name, by which brokers are notified also if its slices are gone; "" if
    unknown.
    """
    slices = pool.state.topic_slices(topic_id)
    if not slices and (not topic or pool.image.was_deleted(topic_id)):
        return
    brokers = pool.state.brokers.values()
    present = [r.broker_id for r in brokers if r.state is not BrokerControlState.GONE]
    if slices:
        tombstone = tombstone_of(slices, present)
    else:
        tombstone = Tombstone(pool.state.pool, topic_id, topic, tuple(sorted(present)))
    record_deleted(pool, await pool.slice_store.store_deletion_record(tombstone))
    for value in slices:
        pool.state.slices.pop(value.name, None)
        pool.state.leftovers[value.name] = value
    pool.forget_topic(topic_id)
    await _delete_leftovers(pool, slices)


def record_deleted(pool: PoolLoop, tombstone: Tombstone) -> None:
    """Notify brokers of a durable deletion record."""
    pool.image.delete(tombstone.topic_state)
    pool.state.tombstones[tombstone.topic_id] = (tombstone, pool.image.version)
    pool.notify_brokers()


def load_leftovers(pool: PoolLoop, slices: Iterable[PartitionSlice]) -> None:
    """Load, after a takeover, the slices of topics that have a deletion record."""
    for value in slices:
        tombstone, _ = pool.state.tombstones[value.topic.topic_id]
        if tombstone.covers(value):
            pool.state.leftovers[value.name] = value
        else:
            logger.error(
                "PartitionSlice of a deleted topic ignored, its replicas are erased",
                extra={"slice": value.name, "topic": value.topic.topic},
            )


def is_due(pool: PoolLoop) -> bool:
    if pool.is_sweeping:
        return False
    return bool(pool.state.leftovers) or any(pool.state.finished_tombstones())


async def sweep(pool: PoolLoop) -> None:
    """Delete some of what deletions left: slices, and deletion records that all brokers applied.

    It runs concurrently with commands that create topics.
    """
    pool.is_sweeping = True
    try:
        async with pool.lock.shared():
            await _delete_leftovers(pool, islice(pool.state.leftovers.values(), SWEPT_AT_ONCE))
            waiting = {value.topic.topic_id for value in pool.state.leftovers.values()}
            finished = (
                each for each in pool.state.finished_tombstones() if each.topic_id not in waiting
            )
            some = tuple(islice(finished, SWEPT_AT_ONCE))
            await asyncio.gather(*(_remove_deletion_record(pool, tombstone) for tombstone in some))
    finally:
        pool.is_sweeping = False


async def _remove_deletion_record(pool: PoolLoop, tombstone: Tombstone) -> None:
    try:
        await pool.slice_store.remove_deletion_record(tombstone)
    except StoreError as error:
        logger.warning(
            "deletion record not removed yet",
            extra={"topic": tombstone.topic, "error": str(error)},
        )
        return
    pool.state.tombstones.pop(tombstone.topic_id, None)
    pool.image.finish_deletion(tombstone.topic_id)


async def _delete_leftovers(pool: PoolLoop, slices: Iterable[PartitionSlice]) -> None:
    await asyncio.gather(*(_delete(pool, value) for value in tuple(slices)))


async def _delete(pool: PoolLoop, value: PartitionSlice) -> None:
    try:
        await pool.slice_store.delete(value)
    except StoreError as error:
        logger.warning(
            "PartitionSlice of a deleted topic not removed yet",
            extra={"slice": value.name, "error": str(error)},
        )
        return
    pool.state.leftovers.pop(value.name, None)
