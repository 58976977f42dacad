"""Reads what planners decide from: one frozen value for one object. I/O, no decisions.

That a Topic is gone is believed only of a live read that finds no such object, or one with another
UID, never of a list or an event (S12); of a slice likewise. Lists serve only to find a claim that
forbids something, and slices to look for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_operator.controller.service import ControllerService
from tidemark_operator.manifests.schemas import apply_defaults, effective, stored_faults
from tidemark_operator.manifests.specs import PoolSpec, TopicSpec, pool_spec, topic_spec
from tidemark_operator.reconcile.plan_moves import any_misplaced
from tidemark_operator.reconcile.plan_topic import FormerTopic, ObservedTopic
from tidemark_operator.reconcile.slices import KeptTopic, claims_topic, kept_topics
from tidemark_operator.stores.object_store import (
    BROKER_POOL,
    PARTITION_SLICE,
    TOPIC,
    Object,
    ObjectStore,
)


@dataclass(frozen=True, slots=True)
class InvalidManifest:
    sentences: tuple[str, ...]


def read_topic(topic: Object) -> TopicSpec | InvalidManifest:
    faults = stored_faults(topic)
    return InvalidManifest(tuple(faults)) if faults else topic_spec(effective(topic))


def read_pool(pool: Object) -> PoolSpec | InvalidManifest:
    faults = stored_faults(pool)
    return InvalidManifest(tuple(faults)) if faults else pool_spec(effective(pool))


class TopicObserver:
    def __init__(self, store: ObjectStore, controller: ControllerService) -> None:
        self._store = store
        self._controller = controller
        self.leaving: dict[str, frozenset[BrokerId]] = {}  # by pool, as its last pass saw it
        self.unlisted: set[TopicId] = set()  # by the last sweep: some slice may be gone

    async def observe(self, spec: TopicSpec, topic: Object) -> ObservedTopic:
        recorded = topic.get("status", {}).get("topicId")
        topic_id = TopicId(recorded) if recorded else spec.uid
        if topic_id in self.unlisted:
            await self._controller.confirm_slices(spec.pool, topic_id)
            self.unlisted.discard(topic_id)  # not before: what fails is tried again
        view = self._controller.topic(spec.pool, topic_id)
        if (view is None and recorded) or (view is not None and view.missing_slices):
            await self._controller.look_for_slices(spec.pool, topic_id)  # maybe restored
            view = self._controller.topic(spec.pool, topic_id)
        observed = ObservedTopic(
            spec=spec,
            recorded_topic_id=TopicId(recorded) if recorded else None,
            view=view,
        )
        serves = view is not None and not view.is_retained
        if view is not None and serves and spec.partitions <= view.topic.partition_count:
            if not any_misplaced(spec, view, self.leaving.get(spec.pool, frozenset())):
                return observed  # the steady state costs no further reads
            return await self._with_pool(observed)
        observed = await self._with_pool(observed)
        return observed if view is not None else await self._with_rivals(observed, topic_id)

    async def _with_pool(self, observed: ObservedTopic) -> ObservedTopic:
        spec = observed.spec
        pool = await self._store.get(BROKER_POOL, spec.namespace, spec.pool_name)
        if pool is None:
            return replace(observed, pool_replicas=None)
        brokers = self._controller.brokers(spec.pool)
        return replace(
            observed,
            pool_replicas=int(apply_defaults(pool)["spec"]["replicas"]),
            active_brokers=frozenset(broker.broker_id for broker in brokers if broker.is_active),
            racks={broker.broker_id: broker.rack for broker in brokers},
            pool_has_racks=bool(pool["spec"].get("rackKey")),
            leaving=leaving_brokers(pool, (broker.broker_id for broker in brokers)),
        )

    async def _with_rivals(self, observed: ObservedTopic, topic_id: TopicId) -> ObservedTopic:
        """Others that have the topicName: living Topics and data of Topics that are gone."""
        spec = observed.spec
        topics = await self._store.list(TOPIC, spec.namespace)
        slices = await self._store.list(PARTITION_SLICE, spec.namespace)
        same_name = [
            kept
            for kept in kept_topics(slices)
            if (kept.pool, kept.topic_name) == (spec.pool, spec.topic_name)
            and kept.topic_id != topic_id
        ]
        observed = replace(observed, older_namesake=_older_namesake(spec, topics, same_name))
        for kept in same_name:
            if kept.is_retained or await self.is_abandoned(kept, topics, besides=spec):
                former = self._controller.topic(spec.pool, kept.topic_id)
                if former is not None:
                    return replace(
                        observed,
                        former=FormerTopic(former.topic, kept.is_retained, kept.deletion_policy),
                    )
        return observed

    async def is_abandoned(
        self, kept: KeptTopic, topics: list[Object], *, besides: TopicSpec | None = None
    ) -> bool:
        """No Topic object has, or will take, this data. `besides` is the one that asks."""
        asks = None if besides is None else besides.uid
        others = [topic for topic in topics if topic["metadata"].get("uid") != asks]
        if any(claims_topic(topic, kept) for topic in others):
            return False
        namespace = kept.pool.partition("/")[0]
        living = await self._store.get(TOPIC, namespace, kept.object_name)
        if living is None:
            return True
        if besides is not None and living["metadata"].get("uid") == besides.uid:
            return bool(living.get("status", {}).get("topicId") != kept.topic_id)
        return not claims_topic(living, kept)


def _older_namesake(
    spec: TopicSpec, topics: list[Object], same_name: list[KeptTopic]
) -> str | None:
    """The Topic object that comes before this one: the oldest; of one second, the one that has
    data already; else by name."""
    with_data = {kept.topic_id for kept in same_name}

    def rank(topic: Object) -> tuple[str, bool, str]:
        metadata = topic["metadata"]
        ids = {metadata.get("uid"), topic.get("status", {}).get("topicId")}
        return (metadata.get("creationTimestamp", ""), not ids & with_data, metadata["name"])

    namesakes = [topic for topic in topics if _is_namesake(topic, spec)]
    if not namesakes:
        return None
    first = min(namesakes, key=rank)
    name: str = first["metadata"]["name"]
    return None if name == spec.name else name


def _is_namesake(topic: Object, spec: TopicSpec) -> bool:
    other = topic.get("spec", {})
    return (
        topic["metadata"].get("deletionTimestamp") is None
        and other.get("brokerPool", "default") == spec.pool_name
        and other.get("topicName", topic["metadata"]["name"]) == spec.topic_name
    )


def leaving_brokers(pool: Object, known: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """Those that the BrokerPool wants emptied: named in spec.drain, or above spec.replicas."""
    spec = apply_defaults(pool)["spec"]
    drained = {BrokerId(int(number)) for number in spec["drain"]}
    return frozenset(drained | {each for each in known if each >= spec["replicas"]})


def active_broker_ids(controller: ControllerService, pool: str) -> frozenset[BrokerId]:
    return frozenset(broker.broker_id for broker in controller.brokers(pool) if broker.is_active)
