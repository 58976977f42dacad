"""Remember Topics whose slices are missing, until they are deleted.

Of a Topic object that is gone only its slices tell. If these are gone too, brokers would keep its
records without end, whatever its deletionPolicy said; so what a pass over the Topic saw last is
kept here. Absence alone is never taken for a deletion (S12): an operator that did not see the Topic
knows nothing of it, and then its records stay on the disks.
"""

import logging
from dataclasses import dataclass

from tidemark_protocol.ids import TopicId

from tidemark_operator.api.kinds import PARTITION_SLICE, TOPIC
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.object_index import topic_entry
from tidemark_operator.reconcile.topic.plan import ObservedTopic
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.store.object_store import ObjectStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OrphanedTopic:
    uid: str  # of the Topic object
    pool: str  # namespace/name
    topic_id: TopicId
    topic_name: str
    is_to_be_erased: bool


class OrphanedTopics:
    def __init__(self, store: ObjectStore, controller: ControllerService) -> None:
        self._store = store
        self._controller = controller
        self._known: dict[WorkKey, OrphanedTopic] = {}

    def note(self, key: WorkKey, observed: ObservedTopic) -> None:
        """Remember the Topic as a pass found it."""
        topic, recorded = observed.topic, observed.recorded_topic_id
        if recorded is None or observed.view is not None:
            self._known.pop(key, None)
            return
        self._known[key] = OrphanedTopic(
            topic.metadata.uid,
            topic.pool,
            recorded,
            topic.spec.topic_name,
            topic.spec.deletion_policy == "Delete",
        )

    async def forget_deleted(self, key: WorkKey, uid: str | None) -> None:
        """Delete the data of a remembered Topic that is gone.

        `uid` is that of the object that a live read of the key found, None if it found none.
        """
        known = self._known.get(key)
        if known is None or uid == known.uid:
            return
        if known.is_to_be_erased and not await self._is_claimed(key.namespace, known.topic_id):
            log.info(
                "Topic object without PartitionSlices deleted",
                extra={"topic": known.topic_name, "topic_id": known.topic_id},
            )
            await self._controller.delete_topic(
                known.pool, known.topic_id, retain=False, topic=known.topic_name
            )
        del self._known[key]  # not before: what fails is tried again

    async def _is_claimed(self, namespace: str, topic_id: TopicId) -> bool:
        """Return whether a slice or another Topic has the data.

        A slice decides by its own copy of the policy, and data that another Topic has is not
        erased.
        """
        slices = await self._store.list(PARTITION_SLICE, namespace)
        if any(item.get("topicId") == topic_id and not item.get("deleted") for item in slices):
            return True
        topics = await self._store.list(TOPIC, namespace)
        return any(topic_id in topic_entry(topic).topic_ids for topic in topics)
