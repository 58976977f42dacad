"""Delete topics permanently, and finish later what a deletion left.

First the deletion record is durable; from then on the topic does not exist for brokers and clients.
Then its slices are deleted, immediately or at a later tick, by a successor too; last the deletion
record itself (S12).
"""

from itertools import islice

from tidemark_protocol.ids import TopicId

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.controller.core.decision import (
    DeleteSlices,
    RemoveTombstones,
    Steps,
    StoreTombstone,
)
from tidemark_operator.controller.core.deleted_topics import Tombstone, tombstone_of
from tidemark_operator.controller.core.pool_state import PoolState

SWEPT_AT_ONCE = 128


def delete_for_good(pool: PoolState, topic_id: TopicId, topic: str) -> Steps[None]:
    """Delete a topic permanently.

    Raises Deferred, then nothing has changed. `topic` is its name, by which brokers are notified
    also if its slices are gone; "" if unknown.
    """
    slices = pool.topic_slices(topic_id)
    if not slices and (not topic or pool.image.was_deleted(topic_id)):
        return
    brokers = pool.brokers.values()
    present = [r.broker_id for r in brokers if r.state is not BrokerControlState.GONE]
    if slices:
        tombstone = tombstone_of(slices, present)
    else:
        tombstone = Tombstone(pool.pool, topic_id, topic, tuple(sorted(present)))
    yield StoreTombstone(tombstone)
    for value in slices:
        pool.slices.pop(value.name, None)
        pool.leftovers[value.name] = value
    pool.forget_topic(topic_id)
    yield DeleteSlices(tuple(slices))


def is_due(pool: PoolState) -> bool:
    return bool(pool.leftovers) or any(pool.finished_tombstones())


def sweep(pool: PoolState) -> Steps[None]:
    """Delete some of what deletions left: slices, and deletion records that all brokers applied."""
    yield DeleteSlices(tuple(islice(pool.leftovers.values(), SWEPT_AT_ONCE)))
    waiting = {value.topic.topic_id for value in pool.leftovers.values()}
    finished = (each for each in pool.finished_tombstones() if each.topic_id not in waiting)
    yield RemoveTombstones(tuple(islice(finished, SWEPT_AT_ONCE)))
