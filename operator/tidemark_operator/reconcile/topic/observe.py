"""Read what planners decide from, as one frozen value for one object.

The cost does not depend on the number of objects: others that matter are found by the store's index
and read one by one. That a Topic is gone follows only from a live read that finds no such object,
or one with another UID, never from a list, an event or the index (S12); the same holds for a slice.
"""

from dataclasses import replace

from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import PARTITION_SLICE, TOPIC
from tidemark_operator.api.topic import Topic
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.object_index import TopicEntry, topic_entry
from tidemark_operator.reconcile.pool_membership import leaving_brokers
from tidemark_operator.reconcile.topic.plan import ObservedTopic, PreviousTopic
from tidemark_operator.reconcile.topic.plan_placement import any_misplaced
from tidemark_operator.reconcile.topic.slice_owners import SliceOwner, retained_topics
from tidemark_operator.store.typed_store import TypedStore


class TopicObserver:
    def __init__(self, store: IndexedStore, controller: ControllerService) -> None:
        self._store = store
        self._objects = TypedStore(store)
        self._index = store.index
        self._controller = controller
        self.leaving: dict[str, frozenset[BrokerId]] = {}  # by pool, as its last pass saw it

    async def observe(self, topic: Topic) -> ObservedTopic:
        pool, spec = topic.pool, topic.spec
        recorded, topic_id = topic.recorded_topic_id, topic.topic_id
        view = self._controller.topic(pool, topic_id)
        if view is not None and not self._index.has_slices(
            topic.namespace, view.slice_names, topic_id
        ):
            # The last sweep did not list one of them: it may be gone.
            await self._controller.confirm_slices(pool, topic_id)
            view = self._controller.topic(pool, topic_id)
        if (view is None and recorded) or (view is not None and view.missing_slices):
            await self._controller.find_slices(pool, topic_id)  # maybe restored
            view = self._controller.topic(pool, topic_id)
        observed = ObservedTopic(topic=topic, recorded_topic_id=recorded, view=view)
        serves = view is not None and not view.is_retained
        if view is not None and serves and spec.partitions <= view.topic.partition_count:
            if not any_misplaced(spec, view, self.leaving.get(pool, frozenset())):
                return observed  # the steady state costs no further reads
            return await self._with_pool(observed)
        observed = await self._with_pool(observed)
        return observed if view is not None else await self._with_rivals(observed, topic_id)

    async def _with_pool(self, observed: ObservedTopic) -> ObservedTopic:
        topic = observed.topic
        # Its brokers are there whether or not it is valid now.
        pool = await self._objects.read(BrokerPool, topic.namespace, topic.spec.pool_name)
        if pool is None:
            return replace(observed, pool_replicas=None)
        brokers = self._controller.brokers(topic.pool)
        return replace(
            observed,
            pool_replicas=pool.spec.replicas,
            active_brokers=frozenset(broker.broker_id for broker in brokers if broker.is_active),
            racks={broker.broker_id: broker.rack for broker in brokers},
            pool_has_racks=bool(pool.spec.rack_key),
            leaving=leaving_brokers(pool.spec, (broker.broker_id for broker in brokers)),
        )

    async def _with_rivals(self, observed: ObservedTopic, topic_id: TopicId) -> ObservedTopic:
        """Add others with the topicName: Topics, and data of Topics that are gone."""
        topic = observed.topic
        ids = self._index.ids_named(topic.pool, topic.spec.topic_name)
        others = [each for each in ids if each != topic_id]
        owner = await self._name_owner(topic, frozenset(others))
        if owner is not None:
            return replace(observed, name_owner=owner)
        for other in others:
            for kept in await self.kept(topic.namespace, other):
                if kept.is_retained or await self.is_abandoned(kept, besides=topic):
                    previous = self._controller.topic(topic.pool, kept.topic_id)
                    if previous is not None:
                        return replace(
                            observed,
                            previous=PreviousTopic(
                                previous.topic, kept.is_retained, kept.deletion_policy
                            ),
                        )
        return observed

    async def _name_owner(self, topic: Topic, with_data: frozenset[TopicId]) -> str | None:
        """Return the Topic object that has the name before this one, or None.

        It is one that has data already, else the oldest; of one second, by name. It is read,
        because the index may name one that is gone.
        """

        def rank(entry: TopicEntry) -> tuple[bool, str, str]:
            return (not entry.topic_ids & with_data, entry.created, entry.key.name)

        while True:
            named = self._index.topics_named(topic.pool, topic.spec.topic_name)
            first = min((each for each in named if not each.is_going), key=rank, default=None)
            if first is None or first.uid == topic.metadata.uid:
                return None
            found = await self._store.get(TOPIC, first.key.namespace, first.key.name)
            if found is not None and self._index.topic(first.key) == first:
                return first.key.name

    async def kept(self, namespace: str, topic_id: TopicId) -> tuple[SliceOwner, ...]:
        """Return the slices of a topic id that exist, read one by one."""
        keys = [entry.key for entry in self._index.slices_with_id(topic_id)]
        names = [name for found_in, name in keys if found_in == namespace]
        found = [await self._store.get(PARTITION_SLICE, namespace, name) for name in names]
        return tuple(
            kept
            for kept in retained_topics(item for item in found if item is not None)
            if kept.topic_id == topic_id  # of that name there may be another topic's by now
        )

    async def is_abandoned(self, kept: SliceOwner, *, besides: Topic | None = None) -> bool:
        """Return whether no Topic object has, or will adopt, this data.

        `besides` is the Topic that asks: it has the name, so only one that has the data already
        comes before it.
        """
        namespace = kept.pool.partition("/")[0]
        entries = self._index.topics_with_id(kept.topic_id)
        if besides is None:
            entries += self._index.topics_named(kept.pool, kept.topic_name)
        names = [entry.key.name for entry in entries if entry.key.namespace == namespace]
        for name in dict.fromkeys((*names, kept.object_name)):
            item = await self._store.get(TOPIC, namespace, name)
            if item is None:
                continue
            entry = topic_entry(item)
            if besides is None and entry.claims(kept):
                return False
            if besides is not None and kept.topic_id in entry.topic_ids:
                return False
        return True
