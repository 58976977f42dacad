"""Retain or delete the data of Topic objects that are gone, as their slices say.

Called after a live read found no Topic of that name. The slices are found by the index and by the
name of a Topic's first slice; the decision is made from live reads of them, and of the Topics that
may claim the data (S12).
"""

import logging

from tidemark_protocol.ids import TopicId

from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.api.partition_slice import slice_name
from tidemark_operator.controller.keyed_locks import KeyedLocks
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.topic.observe import TopicObserver
from tidemark_operator.reconcile.topic.slice_owners import SliceOwner
from tidemark_operator.reconcile.work_queue import WorkKey

log = logging.getLogger(__name__)

TopicNames = KeyedLocks[tuple[str, str]]  # pool and topicName


class DeletedTopics:
    def __init__(
        self,
        store: IndexedStore,
        controller: ControllerService,
        observer: TopicObserver,
        names: TopicNames,
    ) -> None:
        """Create it; `names` is held while the data of a topicName is given or taken."""
        self._store = store
        self._controller = controller
        self._observer = observer
        self._names = names

    async def forget(self, key: WorkKey) -> tuple[SliceOwner, ...]:
        """Retain or delete the data that no Topic claims, and return what it was."""
        index, first = self._store.index, slice_name(key.name, 0)
        if not index.has_slice(key.namespace, first):
            # Maybe of a controller that was deposed: reading it puts it into the index.
            await self._store.get(PARTITION_SLICE, key.namespace, first)
        forgotten = []
        for topic_id in index.ids_of_owner(key):
            for entry in index.slices_with_id(topic_id)[:1]:
                async with self._names.hold((entry.pool, entry.topic_name)):
                    forgotten += await self._forget(key, topic_id)
        return tuple(forgotten)

    async def _forget(self, key: WorkKey, topic_id: TopicId) -> list[SliceOwner]:
        forgotten = []
        for kept in await self._observer.kept(key.namespace, topic_id):
            if kept.object_name != key.name or kept.is_retained:
                continue
            if not await self._observer.is_abandoned(kept):
                continue
            retain = kept.deletion_policy != "Delete"
            log.info(
                "Topic object deleted",
                extra={"topic": kept.topic_name, "topic_id": kept.topic_id, "retain": retain},
            )
            await self._controller.delete_topic(
                kept.pool, kept.topic_id, retain=retain, topic=kept.topic_name
            )
            forgotten.append(kept)
        return forgotten
