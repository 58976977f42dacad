"""Apply the actions that `plan_topic` decided: one call each, idempotent, without decisions.

The pool `default` is created when the first Topic needs it.
"""

from typing import assert_never

from tidemark_operator.api.broker_pool import DEFAULT_POOL
from tidemark_operator.api.kinds import BROKER_POOL, Object
from tidemark_operator.api.topic import Topic
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.topic.plan import (
    AddPartitions,
    ChooseLeaders,
    CreatePool,
    CreateTopic,
    DeleteTopic,
    Reassign,
    RecordTopicId,
    TopicAction,
    UpdateTopic,
)
from tidemark_operator.store.object_store import AlreadyExists, ObjectStore


def default_pool_manifest(namespace: str, spec: Object, *, at_least_replicas: int) -> Object:
    """Return the pool of the installation's `spec`, with more brokers if the Topic needs them."""
    replicas = max(spec.get("replicas", 0), at_least_replicas)
    return {
        "apiVersion": BROKER_POOL.api_version,
        "kind": BROKER_POOL.kind,
        "metadata": {
            "name": DEFAULT_POOL,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "tidemark-operator"},
        },
        "spec": {**spec, "replicas": replicas},
    }


class TopicApplier:
    def __init__(
        self,
        store: ObjectStore,
        controller: ControllerService,
        *,
        default_pool_spec: Object,
    ) -> None:
        self._store = store
        self._controller = controller
        self._default_pool_spec = default_pool_spec

    async def apply(self, topic: Topic, action: TopicAction) -> None:
        """Apply an action; the reconciler itself handles RecordTopicId, which writes the status."""
        pool, policy = topic.pool, topic.spec.deletion_policy
        match action:
            case CreatePool(at_least_replicas):
                await self._make_pool(topic.namespace, at_least_replicas)
            case CreateTopic(state, assignments, had_slices):
                await self._controller.create_topic(
                    pool,
                    state,
                    assignments,
                    object_name=topic.name,
                    deletion_policy=policy,
                    had_slices=had_slices,
                )
            case AddPartitions(topic_id, first, assignments):
                await self._controller.add_partitions(pool, topic_id, assignments, first=first)
            case UpdateTopic(state):
                await self._controller.update_topic(pool, state, deletion_policy=policy)
            case DeleteTopic(topic_id, retain):
                await self._controller.delete_topic(pool, topic_id, retain=retain)
            case ChooseLeaders(topic_id, choices):
                await self._controller.choose_leaders(pool, topic_id, choices)
            case Reassign(topic_id, targets):
                await self._controller.reassign(pool, topic_id, targets)
            case RecordTopicId():
                raise AssertionError("RecordTopicId is a status write")
            case _:
                assert_never(action)

    async def _make_pool(self, namespace: str, at_least_replicas: int) -> None:
        manifest = default_pool_manifest(
            namespace, self._default_pool_spec, at_least_replicas=at_least_replicas
        )
        try:
            await self._store.create(BROKER_POOL, manifest)
        except AlreadyExists:
            return  # another Topic's pass was first
