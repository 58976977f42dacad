"""One pass over one object: observe, plan, apply. Level-triggered, idempotent; knows no kopf.

A pass over an unchanged cluster writes nothing (I21). What a pass remembers between turns only
saves work: everything that counts is in the store.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tidemark_protocol.ids import TopicId

from tidemark_operator.controller.reassignment import CannotReassign
from tidemark_operator.controller.service import (
    Change,
    ControllerService,
    NoLiveReplica,
    NotLeading,
    SliceMissing,
    TopicUnknown,
    TopicView,
)
from tidemark_operator.controller.views import PoolSettings
from tidemark_operator.manifests.names import pool_selector
from tidemark_operator.manifests.specs import PoolSpec, TopicSpec
from tidemark_operator.reconcile.apply import TopicApplier
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.reconcile.observe import (
    InvalidManifest,
    TopicObserver,
    active_broker_ids,
    leaving_brokers,
    read_pool,
    read_topic,
)
from tidemark_operator.reconcile.plan_doors import bootstrap_servers, listener_addresses
from tidemark_operator.reconcile.plan_drain import Drain, plan_drain
from tidemark_operator.reconcile.plan_moves import replica_counts
from tidemark_operator.reconcile.plan_pool import plan_pool, pool_conditions
from tidemark_operator.reconcile.plan_roll import Roll, plan_roll, roll_condition
from tidemark_operator.reconcile.plan_topic import (
    RecordTopicId,
    TopicPlan,
    plan_topic,
)
from tidemark_operator.reconcile.sliceless import SlicelessTopics
from tidemark_operator.reconcile.slices import kept_topics, topic_object_name, unlisted_topics
from tidemark_operator.reconcile.status import StatusWriter
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.runtimes.broker_runtime import (
    BrokerProcess,
    BrokerRuntime,
    ObservedPool,
    PoolAction,
)
from tidemark_operator.stores.object_store import (
    BROKER,
    BROKER_POOL,
    PARTITION_SLICE,
    TOPIC,
    AlreadyExists,
    NamespaceIsGoing,
    Object,
    ObjectStore,
    Refused,
    StoreError,
)

log = logging.getLogger(__name__)

# Actions of one turn; a Topic needs four at most (pool, forget, adopt, create). More means that
# an action does not do what its plan expects: come back later rather than spin.
MAX_ACTIONS_PER_TURN = 6
# Of a pool's actions that were not answered: each takes as long as the store's limit is.
MAX_FAILURES_PER_TURN = 3


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    # What the pool `default` is made with, when a Topic needs it: spec fields of a BrokerPool.
    default_pool_spec: dict[str, Any] = field(default_factory=dict)
    # At most one status write per object in this time (after a few at once).
    status_interval_ms: int = 1000
    # A Topic that waits for something looks again this often, should a change go unnoticed.
    waiting_interval_ms: int = 5000
    # While brokers are replaced one by one: how soon to see whether the next may go.
    roll_interval_ms: int = 500


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _utc_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Reconciler:
    def __init__(
        self,
        store: ObjectStore,
        controller: ControllerService,
        runtime: BrokerRuntime,
        *,
        settings: ReconcilerSettings,
        add: Callable[[WorkKey], None] | None = None,
        now_ms: Callable[[], int] = _monotonic_ms,
        now_text: Callable[[], str] = _utc_text,
    ) -> None:
        """`add` puts further keys into the work queue: Topics that a change lets go on."""
        self._store = store
        self._controller = controller
        self._runtime = runtime
        self._settings = settings
        self._add = add or (lambda key: None)
        self._observer = TopicObserver(store, controller)
        self._sliceless = SlicelessTopics(store, controller)
        self._applier = TopicApplier(
            store, controller, default_pool_spec=settings.default_pool_spec
        )
        self._statuses = StatusWriter(
            store,
            interval_ms=settings.status_interval_ms,
            now_ms=now_ms,
            now_text=now_text,
        )
        self._waiting: dict[WorkKey, str] = {}  # Topics that wait, and the pool they wait for
        self._keys: dict[TopicId, WorkKey] = {}

    async def reconcile(self, key: WorkKey) -> int | None:
        """Returns a delay in ms after which it wants the key again, None when nothing is left to
        wait for. Raises StoreError or OSError when the environment failed."""
        try:
            if key.kind == BROKER_POOL.kind:
                return await self._reconcile_pool(key)
            if key.kind == TOPIC.kind:
                return await self._reconcile_topic(key)
        except NotLeading:
            return None  # the next term begins with every key
        except NamespaceIsGoing:
            return None
        raise ValueError(f"work key: expected kind BrokerPool or Topic, found {key.kind}")

    def on_change(self, change: Change) -> None:
        """Of the controller: puts the keys that it concerns into the queue."""
        namespace, _, name = change.pool.partition("/")
        if change.kind == "topic":
            # A missing slice is told by the name of its Topic object.
            key = self._keys.get(TopicId(change.name))
            self._add(key or WorkKey(TOPIC.kind, namespace, change.name))
            return
        self._add(WorkKey(BROKER_POOL.kind, namespace, name))
        self._wake_waiting(change.pool)

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        """Every object there is something to do for: at the start of a term and in sweeps. Also
        Topics and pools that are gone, of which slices and Broker objects still tell. The turns of
        Topics with a slice that was not listed look for it."""
        pools, topics, slices, brokers = await asyncio.gather(
            self._store.list(BROKER_POOL, namespace),
            self._store.list(TOPIC, namespace),
            self._store.list(PARTITION_SLICE, namespace),
            self._store.list(BROKER, namespace),
        )
        self._observer.unlisted = self._unlisted(namespace, slices)
        keys = dict.fromkeys(_key(BROKER_POOL.kind, pool) for pool in pools)
        for broker in brokers:
            pool_namespace, _, name = broker["spec"]["pool"].rpartition("/")
            own_namespace = broker["metadata"]["namespace"]
            keys[WorkKey(BROKER_POOL.kind, pool_namespace or own_namespace, name)] = None
        keys |= dict.fromkeys(_key(TOPIC.kind, topic) for topic in topics)
        for item in slices:
            if not item.get("retained", False) and not item.get("deleted", False):
                name = topic_object_name(item)
                keys[WorkKey(TOPIC.kind, item["metadata"]["namespace"], name)] = None
        return tuple(keys)

    def _unlisted(self, namespace: str | None, slices: list[Object]) -> set[TopicId]:
        """Nothing writes to an idle slice, so nothing else would notice that it was deleted."""
        pools = self._controller.pools()
        if namespace is not None:
            pools = tuple(pool for pool in pools if pool.startswith(f"{namespace}/"))
        try:
            views = [view for pool in pools for view in self._controller.topics(pool)]
        except NotLeading:
            return set()  # the next term begins with every key
        return unlisted_topics(views, slices)

    # Pools

    async def _reconcile_pool(self, key: WorkKey) -> int | None:
        pool = await self._store.get(BROKER_POOL, key.namespace, key.name)
        if pool is None:
            await self._runtime.on_pool_gone(key.namespace, key.name)
            return None
        if "deletionTimestamp" in pool["metadata"]:
            return None  # the collector takes its pods
        spec = read_pool(pool)
        if isinstance(spec, InvalidManifest):
            return await self._statuses.write(BROKER_POOL, pool, {}, [_invalid(spec)])
        observed = await self._runtime.observe(spec)
        failures = await self._apply_each(spec, plan_pool(spec, observed))
        self._wake_waiting(spec.pool)
        self._note_leaving(spec, pool)
        addresses = listener_addresses(spec, observed)
        settings = PoolSettings(spec.move_bytes_per_second, spec.quotas, addresses)
        await self._controller.set_settings(spec.pool, settings)
        drain = await self._drain(spec, observed, failures)
        active = active_broker_ids(self._controller, spec.pool)
        roll = plan_roll(spec, observed, active, self._controller.topics(spec.pool))
        if roll.stop is not None:
            failures += await self._apply_each(spec, (roll.stop,))
        conditions = (
            *_refusals(failures),
            *pool_conditions(spec, observed, active),
            roll_condition(roll),
            *drain.conditions,
        )
        wait_ms = await self._write_pool_status(spec, observed, pool, roll, conditions)
        for failure in failures:
            if not isinstance(failure, Refused):
                raise failure  # the queue comes back, more slowly each time
        if not (roll.is_over and drain.is_over):
            return self._settings.roll_interval_ms
        doors = len(addresses) < spec.replicas * len(spec.listeners) and observed.doors is not None
        is_waiting = doors or bool(failures)
        return wait_ms or (self._settings.waiting_interval_ms if is_waiting else None)

    async def _apply_each(
        self, spec: PoolSpec, actions: Iterable[PoolAction]
    ) -> list[StoreError | OSError]:
        """What one action meets keeps no other from being done: a door that is refused, no broker
        from its start."""
        failures: list[StoreError | OSError] = []
        for action in actions:
            log.info("pool action", extra={"pool": spec.pool, "action": repr(action)})
            try:
                await self._runtime.apply(spec, action)
            except NamespaceIsGoing:
                raise
            except (StoreError, OSError) as error:
                failures.append(error)
            slow = sum(not isinstance(each, Refused) for each in failures)
            if slow == MAX_FAILURES_PER_TURN:
                break
        return failures

    async def _drain(
        self, spec: PoolSpec, observed: ObservedPool, failures: list[StoreError | OSError]
    ) -> Drain:
        drain = plan_drain(
            spec,
            observed,
            self._controller.brokers(spec.pool),
            replica_counts(self._controller.topics(spec.pool)),
        )
        failures += await self._apply_each(spec, drain.actions)
        for broker_id in drain.retire:
            await self._controller.retire_broker(spec.pool, broker_id)
        return drain

    def _note_leaving(self, spec: PoolSpec, pool: Object) -> None:
        """Topics look at their places again when other brokers are to be emptied."""
        known = (broker.broker_id for broker in self._controller.brokers(spec.pool))
        leaving = leaving_brokers(pool, known)
        if leaving == self._observer.leaving.get(spec.pool, frozenset()):
            return
        self._observer.leaving[spec.pool] = leaving
        for view in self._controller.topics(spec.pool):
            if not view.is_retained:
                self._add(WorkKey(TOPIC.kind, spec.namespace, view.object_name))

    async def _write_pool_status(
        self,
        spec: PoolSpec,
        observed: ObservedPool,
        pool: Object,
        roll: Roll,
        conditions: tuple[Condition, ...],
    ) -> int | None:
        running = sum(broker.process is not BrokerProcess.ABSENT for broker in observed.brokers)
        fields = {
            "replicas": running,
            "activeBrokers": len(active_broker_ids(self._controller, spec.pool)),
            "updatedBrokers": spec.replicas - len(roll.outdated),
            "listeners": [
                {"name": each.name, "bootstrap": bootstrap_servers(each, observed)}
                for each in spec.listeners
            ],
            "selector": ",".join(f"{k}={v}" for k, v in sorted(pool_selector(spec.name).items())),
        }
        return await self._statuses.write(BROKER_POOL, pool, fields, conditions)

    # Topics

    async def _reconcile_topic(self, key: WorkKey) -> int | None:
        topic = await self._store.get(TOPIC, key.namespace, key.name)
        await self._sliceless.forget_deleted(key, topic)
        if topic is None:
            self._waiting.pop(key, None)
            await self._forget_deleted(key)
            return None
        if "deletionTimestamp" in topic["metadata"]:
            return None  # somebody else's finalizer holds it: it is not gone
        spec = read_topic(topic)
        if isinstance(spec, InvalidManifest):
            return await self._statuses.write(TOPIC, topic, {}, [_invalid(spec)])
        return await self._drive_topic(key, spec, topic)

    async def _drive_topic(self, key: WorkKey, spec: TopicSpec, topic: Object) -> int | None:
        for _ in range(MAX_ACTIONS_PER_TURN):
            observed = await self._observer.observe(spec, topic)
            self._sliceless.note(key, observed)
            self._keys[observed.topic_id] = key
            plan = plan_topic(observed)
            if plan.action is None:
                self._note_waiting(key, spec, observed.view, plan)
                return await self._write_topic_status(topic, observed.view, plan)
            log.info("topic action", extra={"topic": spec.topic_name, "action": repr(plan.action)})
            failed = await self._apply(spec, plan, topic)
            if failed is not None:
                self._waiting[key] = spec.pool
                if failed.type == "Ready":
                    wait_ms = await self._statuses.write(TOPIC, topic, {}, [failed])
                else:  # it is served as ever: one impossible move makes no other word stale
                    shown = replace(plan, conditions=(*plan.conditions, failed))
                    wait_ms = await self._write_topic_status(topic, observed.view, shown)
                return wait_ms or self._settings.waiting_interval_ms
        return self._settings.waiting_interval_ms

    async def _apply(self, spec: TopicSpec, plan: TopicPlan, topic: Object) -> Condition | None:
        """The condition, where the controller refused for good."""
        action = plan.action
        assert action is not None
        if isinstance(action, RecordTopicId):
            fields = {"topicId": action.topic_id}
            await self._statuses.write(TOPIC, topic, fields, plan.conditions, at_once=True)
            return None
        try:
            await self._applier.apply(spec, action)
        except (SliceMissing, TopicUnknown) as error:
            return Condition("Ready", False, "SliceMissing", str(error))
        except CannotReassign as error:  # it changed since it was looked at
            return Condition("Placed", False, "Waiting", str(error))
        except NoLiveReplica as error:
            return Condition("Ready", False, "WaitingForBrokers", str(error))
        except AlreadyExists as error:
            # Maybe of a former Topic object of this name, with another topicName or pool, whose
            # end nobody saw: then its data goes as that one said, and the name is free after that.
            await self._forget_deleted(WorkKey(TOPIC.kind, spec.namespace, spec.name))
            return Condition("Ready", False, "SliceNameTaken", _name_taken(spec, error))
        except NamespaceIsGoing:
            raise
        except Refused as error:  # by the API server: only the user can change that
            return Condition("Ready", False, "Refused", str(error))
        return None

    async def _write_topic_status(
        self, topic: Object, view: TopicView | None, plan: TopicPlan
    ) -> int | None:
        fields = {} if view is None or view.is_retained else _topic_fields(view)
        wait_ms = await self._statuses.write(TOPIC, topic, fields, plan.conditions)
        is_whole = view is not None and not view.is_retained and not view.missing_slices
        is_led = view is not None and all(state.has_leader for state in view.partitions)
        if wait_ms is None and not (is_whole and is_led):  # what is advised changes with time
            return self._settings.waiting_interval_ms
        return wait_ms

    async def _forget_deleted(self, key: WorkKey) -> None:
        """The Topic object is gone by a live read. Its data follows the slices' own policy."""
        slices = await self._store.list(PARTITION_SLICE, key.namespace)
        mine = [
            kept
            for kept in kept_topics(slices)
            if kept.object_name == key.name and not kept.is_retained
        ]
        topics = await self._store.list(TOPIC, key.namespace) if mine else []
        for kept in mine:
            if not await self._observer.is_abandoned(kept, topics):
                continue
            retain = kept.deletion_policy != "Delete"
            log.info(
                "topic object is gone",
                extra={"topic": kept.topic_name, "topic_id": kept.topic_id, "retain": retain},
            )
            await self._controller.delete_topic(
                kept.pool, kept.topic_id, retain=retain, topic=kept.topic_name
            )
            self._keys.pop(kept.topic_id, None)
            self._wake_waiting(kept.pool)

    def _note_waiting(
        self, key: WorkKey, spec: TopicSpec, view: TopicView | None, plan: TopicPlan
    ) -> None:
        # What Attention says depends on who is active.
        if plan.is_waiting or view is None or view.notices:
            self._waiting[key] = spec.pool
        else:
            self._waiting.pop(key, None)

    def _wake_waiting(self, pool: str) -> None:
        for key, wanted_pool in self._waiting.items():
            if wanted_pool == pool:
                self._add(key)


def _topic_fields(view: TopicView) -> dict[str, Any]:
    replicas = sum(len(state.replicas) for state in view.partitions)
    in_sync = sum(len(state.in_sync_replicas) for state in view.partitions)
    behind = sum(len(state.in_sync_replicas) < len(state.replicas) for state in view.partitions)
    return {
        "topicId": view.topic.topic_id,
        "inSync": f"{in_sync}/{replicas}",
        "underReplicated": behind,
        "leaderless": sum(not state.has_leader for state in view.partitions),
    }


def _name_taken(spec: TopicSpec, error: AlreadyExists) -> str:
    return (
        f"PartitionSlices named {spec.name}-<number> hold the data of another topic: give this "
        f"Topic object another metadata.name ({error})"
    )


def _refusals(failures: Iterable[Exception]) -> Iterator[Condition]:
    """By the API server: only the user can change that."""
    sentences = dict.fromkeys(str(each) for each in failures if isinstance(each, Refused))
    if sentences:
        yield Condition("Ready", False, "Refused", "; ".join(sentences))


def _invalid(manifest: InvalidManifest) -> Condition:
    return Condition("Ready", False, "InvalidSpec", "; ".join(manifest.sentences))


def _key(kind: str, item: Object) -> WorkKey:
    return WorkKey(kind, item["metadata"]["namespace"], item["metadata"]["name"])
