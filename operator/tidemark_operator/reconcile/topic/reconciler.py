"""Reconcile one Topic: observe, plan, apply, and write its status."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import BROKER_POOL, TOPIC
from tidemark_operator.api.objects import Invalid
from tidemark_operator.api.topic import Topic, TopicStatus
from tidemark_operator.controller.core.reassignment import CannotReassign
from tidemark_operator.controller.service import (
    ControllerService,
    NoLiveReplica,
    NotController,
    SliceMissing,
    TopicUnknown,
    TopicView,
)
from tidemark_operator.reconcile.conditions import Condition, invalid_condition
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.object_index import TopicEntry
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.status import StatusWriter
from tidemark_operator.reconcile.topic.apply import TopicApplier
from tidemark_operator.reconcile.topic.conditions import ready_conditions, status_fields
from tidemark_operator.reconcile.topic.deleted_topics import DeletedTopics, TopicNames
from tidemark_operator.reconcile.topic.observe import TopicObserver
from tidemark_operator.reconcile.topic.orphaned_topics import OrphanedTopics
from tidemark_operator.reconcile.topic.plan import (
    AddPartitions,
    CreateTopic,
    RecordTopicId,
    TopicAction,
    TopicPlan,
    plan_topic,
)
from tidemark_operator.reconcile.topic.purges import RetainedPurges
from tidemark_operator.reconcile.topic.slice_owners import SliceOwner
from tidemark_operator.reconcile.turns import Turn, Turns
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.store.object_store import (
    AlreadyExists,
    NamespaceTerminating,
    Rejected,
    StoreError,
)
from tidemark_operator.store.typed_store import TypedStore

log = logging.getLogger(__name__)

# Actions of one turn; a Topic needs four at most (pool, forget, adopt, create). More means that
# an action does not do what its plan expects: come back later rather than spin.
MAX_ACTIONS_PER_TURN = 6
MAX_ACTION_CHARACTERS = 1000  # of a line in the log: one may place thousands of partitions


class TopicReconciler:
    def __init__(
        self,
        store: IndexedStore,
        controller: ControllerService,
        *,
        statuses: StatusWriter,
        turns: Turns,
        settings: ReconcilerSettings,
        add: Callable[[WorkKey], None],
    ) -> None:
        self._store = store
        self._objects = TypedStore(store)
        self._controller = controller
        self._statuses = statuses
        self._turns = turns
        self._settings = settings
        self._add = add
        self._observer = TopicObserver(store, controller)
        self._names = TopicNames()
        self._deleted = DeletedTopics(store, controller, self._observer, self._names)
        self.purges = RetainedPurges(store, controller, self._observer, self._names)
        self._orphaned = OrphanedTopics(store, controller)
        self._applier = TopicApplier(
            store, controller, default_pool_spec=settings.default_pool_spec
        )
        self._waiting: dict[WorkKey, str] = {}  # Topics that wait, and the pool they wait for
        self._pools: dict[str, tuple[str, int]] = {}  # as last read: UID and generation
        self._keys: dict[TopicId, WorkKey] = {}
        self._name_taken: set[WorkKey] = set()  # by slices of another topic, found in this turn

    @property
    def leaving(self) -> dict[str, frozenset[BrokerId]]:
        """Return, by pool, the leaving brokers that its last pass found."""
        return self._observer.leaving

    def key_of_change(self, namespace: str, name: str) -> WorkKey:
        """Return the key of a controller's change, which names a topic id or a Topic object."""
        return self._keys.get(TopicId(name)) or WorkKey(TOPIC.kind, namespace, name)

    async def reconcile(self, key: WorkKey, turn: Turn) -> int | None:
        previous = self._store.index.topic(key)
        topic = await self._objects.get(Topic, key.namespace, key.name)
        await self._orphaned.forget_deleted(key, None if topic is None else topic.metadata.uid)
        if topic is None:
            self._turns.record_gone(key)
            self._waiting.pop(key, None)
            await self._forget_deleted(key)
            turn.has_changed = False  # by that
            self.wake_namesakes(previous)
            return None
        self._turns.record_seen(TOPIC, topic.metadata)
        if topic.metadata.is_going:
            return None  # somebody else's finalizer holds it: it is not gone
        if isinstance(topic, Invalid):
            faults = [invalid_condition(topic.sentences)]
            return await self._statuses.write(topic, TopicStatus(), faults)
        async with self._names.hold((topic.pool, topic.spec.topic_name)):
            wait_ms = await self._drive_topic(key, topic, turn)
        if key in self._name_taken or self._has_formers_data(key, topic):
            # Of a Topic object of this name, with another topicName or pool, whose end nobody saw:
            # its data goes as that one said, and the names of its slices are free after that.
            self._name_taken.discard(key)
            await self._forget_deleted(key)
        return wait_ms

    def _has_formers_data(self, key: WorkKey, topic: Topic) -> bool:
        ids = self._store.index.served_ids_of_owner(key)
        return any(not topic.has_id(topic_id) for topic_id in ids)

    async def _drive_topic(self, key: WorkKey, topic: Topic, turn: Turn) -> int | None:
        for _ in range(MAX_ACTIONS_PER_TURN):
            turn.has_changed = False
            observed = await self._observer.observe(topic)
            self._orphaned.note(key, observed)
            self._keys[observed.topic_id] = key
            plan = plan_topic(observed)
            if plan.action is None:
                self._record_waiting(key, topic, observed.view, plan)
                return await self._write_topic_status(topic, observed.view, plan)
            action = repr(plan.action)[:MAX_ACTION_CHARACTERS]
            log.info("topic action", extra={"topic": topic.spec.topic_name, "action": action})
            failed = await self._apply(topic, plan)
            if failed is not None:
                self._waiting[key] = topic.pool
                if failed.type == "Ready":
                    wait_ms = await self._statuses.write(topic, TopicStatus(), [failed])
                else:  # it is served as ever: one impossible move makes no other word stale
                    shown = replace(plan, conditions=(*plan.conditions, failed))
                    wait_ms = await self._write_topic_status(topic, observed.view, shown)
                return wait_ms or self._waiting_ms()
        return self._waiting_ms()

    def _waiting_ms(self) -> int:
        of_all = 1000 * len(self._waiting) // self._settings.waiting_turns_per_second
        return max(self._settings.waiting_interval_ms, of_all)

    async def _apply(self, topic: Topic, plan: TopicPlan) -> Condition | None:
        """Apply the action; return a condition if the controller rejected it permanently."""
        action = plan.action
        assert action is not None
        if isinstance(action, RecordTopicId):
            fields = TopicStatus(topic_id=action.topic_id)
            await self._statuses.write(topic, fields, plan.conditions, at_once=True)
            return None
        try:
            await self._apply_and_notify(topic, action)
        except (SliceMissing, TopicUnknown) as error:
            return Condition("Ready", False, "SliceMissing", str(error))
        except CannotReassign as error:  # it changed since it was looked at
            return Condition("Placed", False, "Waiting", str(error))
        except NoLiveReplica as error:
            return Condition("Ready", False, "WaitingForBrokers", str(error))
        except AlreadyExists as error:
            self._name_taken.add(WorkKey(TOPIC.kind, topic.namespace, topic.name))
            return Condition("Ready", False, "SliceNameTaken", _name_taken(topic.name, error))
        except NamespaceTerminating:
            raise
        except Rejected as error:  # by the API server: only the user can change that
            return Condition("Ready", False, "Refused", str(error))
        if isinstance(action, CreateTopic) and action.had_slices:
            self._wake_pool(topic.pool)  # retained data is served again
        return None

    async def _apply_and_notify(self, topic: Topic, action: TopicAction) -> None:
        """Apply the action; while thousands of partitions are created the status shows progress."""
        if not isinstance(action, CreateTopic | AddPartitions):
            await self._applier.apply(topic, action)
            return
        is_applied = asyncio.Event()
        telling = asyncio.create_task(
            self._notify_progress(topic, is_applied), name=f"progress {topic.spec.topic_name}"
        )
        try:
            await self._applier.apply(topic, action)
        except asyncio.CancelledError:
            telling.cancel()  # who steps down waits for no status
            raise
        finally:
            is_applied.set()
            await telling  # a write of the same status goes before the next one

    async def _notify_progress(self, topic: Topic, is_applied: asyncio.Event) -> None:
        topic_id = topic.topic_id
        while True:
            with suppress(TimeoutError):
                interval_ms = self._settings.status_interval_ms
                await asyncio.wait_for(is_applied.wait(), interval_ms / 1000)
                return
            # What this write meets, the one at the end of the turn meets again.
            with suppress(StoreError, OSError, NotController):
                view = self._controller.topic(topic.pool, topic_id)
                if view is not None and not view.is_retained:
                    conditions = ready_conditions(view, wanted=topic.spec.partitions)
                    await self._statuses.write(topic, status_fields(view), conditions)

    async def _write_topic_status(
        self, topic: Topic, view: TopicView | None, plan: TopicPlan
    ) -> int | None:
        fields = TopicStatus() if view is None or view.is_retained else status_fields(view)
        wait_ms = await self._statuses.write(topic, fields, plan.conditions)
        is_whole = view is not None and not view.is_retained and not view.missing_slices
        is_led = view is not None and all(state.has_leader for state in view.partitions)
        if wait_ms is None and not (is_whole and is_led):  # what is advised changes with time
            return self._waiting_ms()
        return wait_ms

    async def _forget_deleted(self, key: WorkKey) -> None:
        """Handle the data of a Topic object that a live read did not find."""
        for kept in await self._deleted.forget(key):
            self._keys.pop(kept.topic_id, None)
            self.wake_namesakes(kept)
            if kept.deletion_policy != "Delete":
                self._wake_pool(kept.pool)

    def _record_waiting(
        self, key: WorkKey, topic: Topic, view: TopicView | None, plan: TopicPlan
    ) -> None:
        # What Attention says depends on who is active.
        if plan.is_waiting or view is None or view.notices:
            self._waiting[key] = topic.pool
        else:
            self._waiting.pop(key, None)

    def wake_namesakes(self, gone: TopicEntry | SliceOwner | None) -> None:
        if gone is not None:
            for entry in self._store.index.topics_named(gone.pool, gone.topic_name):
                if entry.key in self._waiting:
                    self._add(entry.key)

    def wake_waiting(self, pool: str) -> None:
        for key, wanted_pool in self._waiting.items():
            if wanted_pool == pool:
                self._add(key)

    def _wake_pool(self, pool: str) -> None:
        """Reconcile the pool, whose conditions name retained data."""
        namespace, _, name = pool.partition("/")
        self._add(WorkKey(BROKER_POOL.kind, namespace, name))

    def pool_is_read(self, pool: BrokerPool) -> None:
        """Record a pool that its pass has read; Topics may wait for what is new in it."""
        known = (pool.metadata.uid, pool.metadata.generation)
        if self._pools.get(pool.pool) != known:
            self._pools[pool.pool] = known
            self.wake_waiting(pool.pool)


def _name_taken(name: str, error: AlreadyExists) -> str:
    return (
        f"PartitionSlices named {name}-<number> hold the data of another topic: give this "
        f"Topic object another metadata.name ({error})"
    )
