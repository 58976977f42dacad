"""A small world for reconciler tests: the real SQLite store, counted; a controller and a runtime
that keep what they are told."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import BROKER_POOL, PARTITION_SLICE, TOPIC, Object, ResourceKind
from tidemark_operator.api.schemas import apply_defaults
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    CreateBootstrapService,
    CreateBrokerService,
    CreateDisruptionBudget,
    CreateVolumeClaim,
    LabelVolumeClaim,
    ObservedBroker,
    ObservedPool,
    PoolAction,
    StartBroker,
    StopBroker,
)
from tidemark_operator.controller.core.reassignment import CannotReassign
from tidemark_operator.controller.core.timeline import RollStep
from tidemark_operator.controller.core.views import PoolSettings
from tidemark_operator.controller.service import BrokerView, ControllerService, TopicView
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.reconciler import Reconciler
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.store.object_store import ObjectStore
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

NAMESPACE = "shop"
POOL = f"{NAMESPACE}/default"


class CountingStore(SqliteStore):
    writes = 0

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        self.writes += 1
        return await super().create(kind, item)

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        self.writes += 1
        return await super().replace(kind, item)

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        self.writes += 1
        return await super().replace_status(kind, item)

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        self.writes += 1
        await super().delete(kind, namespace, name, uid=uid, resource_version=resource_version)


def partition_state(number: int, replicas: tuple[BrokerId, ...], in_sync: int) -> PartitionState:
    members = tuple(Member(broker_id, BrokerEpoch(1)) for broker_id in replicas[:in_sync])
    return PartitionState(
        partition=number,
        replicas=replicas,
        leader=replicas[0],
        leader_broker_epoch=BrokerEpoch(1),
        leader_epoch=LeaderEpoch(0),
        in_sync_replicas=members,
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(0),
        min_insync_replicas=min(2, len(replicas)),
    )


class KeepingController:
    """What reconcilers ask of the controller, over slices in the same store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.active: set[int] = set()
        self.views: dict[TopicId, TopicView] = {}
        self.calls: list[str] = []
        self.cannot_reassign = ""
        self.erased: list[tuple[str, TopicId, str]] = []  # without a slice

    def pools(self) -> tuple[str, ...]:
        return (POOL,)

    def brokers(self, pool: str) -> tuple[BrokerView, ...]:
        endpoints = Endpoints("127.0.0.1", 9092, 8080, "http://127.0.0.1:8080")
        return tuple(
            BrokerView(BrokerId(each), BrokerEpoch(1), "Active", endpoints, "", "incarnation")
            for each in sorted(self.active)
        )

    def topic(self, pool: str, topic_id: TopicId) -> TopicView | None:
        return self.views.get(topic_id)

    def topics(self, pool: str) -> tuple[TopicView, ...]:
        return tuple(self.views.values())

    def topics_named(self, pool: str, topic: str) -> tuple[TopicView, ...]:
        return tuple(view for view in self.views.values() if view.topic.topic == topic)

    def record_roll_step(self, pool: str, step: RollStep) -> None:
        """Nobody reads the event log here."""

    async def set_settings(self, pool: str, settings: PoolSettings) -> None:
        self.settings = settings

    async def retire_broker(self, pool: str, broker_id: BrokerId) -> None:
        self.calls.append(f"retire {broker_id}")

    async def reassign(
        self, pool: str, topic_id: TopicId, targets: Mapping[int, tuple[BrokerId, ...]]
    ) -> None:
        self.calls.append(f"reassign {dict(targets)}")
        if self.cannot_reassign:
            raise CannotReassign(self.cannot_reassign)
        view = self.views[topic_id]
        self.views[topic_id] = replace(
            view,
            partitions=tuple(
                replace(state, replicas=targets.get(state.partition, state.replicas))
                for state in view.partitions
            ),
        )

    async def find_slices(self, pool: str, topic_id: TopicId) -> None:
        return None

    async def create_topic(
        self,
        pool: str,
        topic: TopicState,
        assignments: tuple[tuple[BrokerId, ...], ...],
        *,
        object_name: str = "",
        deletion_policy: str = "Retain",
        had_slices: bool = False,
    ) -> None:
        self.calls.append(f"create {topic.topic}")
        adopted = self.views.get(topic.topic_id)
        if adopted is not None:
            self.views[topic.topic_id] = replace(
                adopted,
                is_retained=False,
                deletion_policy=deletion_policy,
                object_name=object_name,
            )
            await self._mark(
                topic.topic_id,
                retained=False,
                deletionPolicy=deletion_policy,
                topicObject=object_name,
            )
            return
        item: dict[str, Any] = {
            "metadata": {"name": f"{object_name}-0", "namespace": NAMESPACE},
            "pool": pool,
            "topicName": topic.topic,
            "topicId": topic.topic_id,
            "deletionPolicy": deletion_policy,
            "retained": False,
        }
        await self.store.create(PARTITION_SLICE, item)
        partitions = tuple(
            partition_state(number, replicas, len(replicas))
            for number, replicas in enumerate(assignments)
        )
        self.views[topic.topic_id] = TopicView(
            topic,
            partitions,
            is_retained=False,
            object_name=object_name,
            deletion_policy=deletion_policy,
        )

    async def update_topic(
        self, pool: str, topic: TopicState, *, deletion_policy: str | None = None
    ) -> None:
        self.calls.append(f"update {topic.topic}")
        self.views[topic.topic_id] = replace(self.views[topic.topic_id], topic=topic)
        if deletion_policy is not None:
            view = self.views[topic.topic_id]
            self.views[topic.topic_id] = replace(view, deletion_policy=deletion_policy)
            await self._mark(topic.topic_id, deletionPolicy=deletion_policy)

    async def add_partitions(
        self,
        pool: str,
        topic_id: TopicId,
        assignments: tuple[tuple[BrokerId, ...], ...],
        *,
        first: int,
    ) -> None:
        view = self.views[topic_id]
        assert first == view.topic.partition_count
        self.calls.append(f"add {[list(each) for each in assignments]} at {first}")
        added = tuple(
            partition_state(first + index, replicas, len(replicas))
            for index, replicas in enumerate(assignments)
        )
        topic = replace(view.topic, partition_count=first + len(added))
        self.views[topic_id] = replace(view, topic=topic, partitions=view.partitions + added)

    async def delete_topic(
        self, pool: str, topic_id: TopicId, *, retain: bool, topic: str = ""
    ) -> None:
        self.calls.append(f"delete {topic_id} retain={retain}")
        if topic_id not in self.views:
            self.erased.append((pool, topic_id, topic))
            return
        if retain:
            self.views[topic_id] = replace(self.views[topic_id], is_retained=True)
            await self._mark(topic_id, retained=True)
            return
        del self.views[topic_id]
        for item in await self._slices_of(topic_id):
            await self.store.delete(PARTITION_SLICE, NAMESPACE, item["metadata"]["name"])

    async def _mark(self, topic_id: TopicId, **fields: Any) -> None:
        for item in await self._slices_of(topic_id):
            if item != {**item, **fields}:
                await self.store.replace(PARTITION_SLICE, {**item, **fields})

    async def _slices_of(self, topic_id: TopicId) -> list[Object]:
        slices = await self.store.list(PARTITION_SLICE, NAMESPACE)
        return [item for item in slices if item["topicId"] == topic_id]


@dataclass
class KeepingRuntime:
    brokers: dict[int, ObservedBroker] = field(default_factory=dict)
    has_bootstrap: bool = False
    has_budget: bool = False
    actions: list[PoolAction] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    async def observe(self, pool: BrokerPool) -> ObservedPool:
        brokers = tuple(self.brokers[key] for key in sorted(self.brokers))
        return ObservedPool(brokers, self.has_bootstrap, self.has_budget)

    async def apply(self, pool: BrokerPool, action: PoolAction) -> None:
        self.actions.append(action)
        match action:
            case CreateBootstrapService():
                self.has_bootstrap = True
            case CreateDisruptionBudget():
                self.has_budget = True
            case CreateVolumeClaim(broker_id):
                self._set(broker_id, has_storage=True, storage_policy=pool.spec.deletion_policy)
            case LabelVolumeClaim(broker_id):
                self._set(broker_id, storage_policy=pool.spec.deletion_policy)
            case CreateBrokerService(broker_id):
                self._set(broker_id, has_endpoint=True)
            case StartBroker(broker_id):
                self._set(broker_id, process=BrokerProcess.RUNNING)
            case StopBroker(broker_id):
                self._set(broker_id, process=BrokerProcess.ABSENT)

    async def on_pool_gone(self, namespace: str, name: str) -> None:
        self.gone.append(f"{namespace}/{name}")

    def _set(self, broker_id: BrokerId, **fields: Any) -> None:
        absent = ObservedBroker(
            broker_id, BrokerProcess.ABSENT, has_storage=False, has_endpoint=False
        )
        self.brokers[broker_id] = replace(self.brokers.get(broker_id, absent), **fields)


Experiment = Callable[["Cluster"], Coroutine[Any, Any, None]]


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.store = CountingStore(directory / "objects.db")
        self.controller = KeepingController(self.store)
        self.runtime = KeepingRuntime()
        self.added: list[WorkKey] = []
        self.time_ms = 0
        self.reconciler = self.new_reconciler()

    def new_reconciler(self) -> Reconciler:
        """As after a restart of the operator."""
        self.controller.store = self.indexed = IndexedStore(self.store)
        return Reconciler(
            self.indexed,
            cast(ControllerService, self.controller),
            self.runtime,
            settings=ReconcilerSettings(default_pool_spec={"replicas": 3}),
            add=self.added.append,
            now_ms=lambda: self.time_ms,
            now_text=lambda: f"2026-01-01T00:00:{self.time_ms // 1000 % 60:02d}Z",
        )

    async def apply(self, kind: ResourceKind, name: str, **spec: Any) -> Object:
        item = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        stored = await self.store.get(kind, NAMESPACE, name)
        item = apply_defaults(item)
        if stored is None:
            return await self.store.create(kind, item)
        return await self.store.replace(kind, {**stored, "spec": item["spec"]})

    async def topic(self, name: str = "orders", **spec: Any) -> Object:
        return await self.apply(TOPIC, name, **spec)

    async def pass_topic(self, name: str = "orders") -> int | None:
        return await self.reconciler.reconcile(WorkKey("Topic", NAMESPACE, name))

    async def pass_pool(self, name: str = "default") -> int | None:
        return await self.reconciler.reconcile(WorkKey("BrokerPool", NAMESPACE, name))

    async def ready_topic(self, name: str = "orders", **spec: Any) -> Object:
        """On a pool whose brokers are all active."""
        await self.topic(name, **spec)
        await self.pass_topic(name)
        await self.pass_pool()
        self.controller.active = {0, 1, 2}
        await self.pass_topic(name)
        await self.pass_pool()
        return await self.stored(TOPIC, name)

    async def stored(self, kind: ResourceKind, name: str) -> Object:
        item = await self.store.get(kind, NAMESPACE, name)
        assert item is not None
        return item

    async def condition(
        self, kind: ResourceKind = TOPIC, name: str = "orders", type_: str = "Ready"
    ) -> Mapping[str, str]:
        status = (await self.stored(kind, name)).get("status", {})
        for condition in status.get("conditions", ()):
            if condition["type"] == type_:
                found: dict[str, str] = condition
                return found
        return {}

    async def evaluate(self) -> None:
        """Passes over everything until nothing is written."""
        for _ in range(10):
            before = self.store.writes
            for key in await self.reconciler.all_keys(None):
                await self.reconciler.reconcile(key)
            if self.store.writes == before:
                return
        raise AssertionError("ten passes and still writing")


ALL_KINDS = (TOPIC, BROKER_POOL, PARTITION_SLICE)
