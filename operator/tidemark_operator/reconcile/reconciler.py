"""Run passes over objects, and share what they must know of each other. It knows no kopf.

Level-triggered and idempotent: a pass over an unchanged cluster writes nothing (I21). What a pass
remembers between turns only saves work: everything that counts is in the store. Passes over several
Topics run concurrently, each object in one of them; a topicName's data is given and taken by one at
a time.

`WithAudits` adds audits: one queue serves all kinds.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tidemark_operator.api.kinds import (
    BROKER,
    BROKER_POOL,
    PARTITION_SLICE,
    REPLICATION_AUDIT,
    TOPIC,
    Object,
    ResourceKind,
)
from tidemark_operator.api.objects import read_metadata
from tidemark_operator.broker_runtime.broker_runtime import BrokerRuntime
from tidemark_operator.controller.service import ControllerService, NotController, StateChange
from tidemark_operator.reconcile.audit.reconciler import AuditReconciler
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.pool.reconciler import PoolReconciler
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.status import StatusWriter
from tidemark_operator.reconcile.topic.reconciler import TopicReconciler
from tidemark_operator.reconcile.turns import Turn, Turns, key_of
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.store.object_store import NamespaceTerminating, NotFound


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _utc_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Reconciler:
    def __init__(
        self,
        store: IndexedStore,
        controller: ControllerService,
        runtime: BrokerRuntime,
        *,
        settings: ReconcilerSettings,
        add: Callable[[WorkKey], None] | None = None,
        now_ms: Callable[[], int] = _monotonic_ms,
        now_text: Callable[[], str] = _utc_text,
    ) -> None:
        """Create a reconciler; `add` puts keys of Topics that a change affects into the queue."""
        self._store = store
        self._add = add or (lambda key: None)
        self._turns = Turns()
        statuses = StatusWriter(
            store,
            interval_ms=settings.status_interval_ms,
            now_ms=now_ms,
            now_text=now_text,
            on_written=self._turns.record_seen,
        )
        self._topics = TopicReconciler(
            store,
            controller,
            statuses=statuses,
            turns=self._turns,
            settings=settings,
            add=self._add,
        )
        self._pools = PoolReconciler(
            store,
            controller,
            runtime,
            topics=self._topics,
            statuses=statuses,
            turns=self._turns,
            settings=settings,
            add=self._add,
        )

    async def reconcile(self, key: WorkKey) -> int | None:
        """Reconcile an object; return a delay in ms after which to come again, or None.

        Raises StoreError or OSError when the environment failed.
        """
        with self._turns.begin(key) as turn:
            try:
                return await self._reconcile(key, turn)
            except NotController:
                return None  # the next term begins with every key
            except NamespaceTerminating:
                return None
            finally:
                if self._turns.is_due_again(key, turn):
                    self._add(key)

    async def _reconcile(self, key: WorkKey, turn: Turn) -> int | None:
        if key.kind == BROKER_POOL.kind:
            return await self._pools.reconcile(key)
        if key.kind == TOPIC.kind:
            return await self._topics.reconcile(key, turn)
        raise ValueError(f"work key: expected kind BrokerPool or Topic, found {key.kind}")

    def on_event(self, kind: ResourceKind, item: Object, *, is_deleted: bool) -> WorkKey | None:
        """Return the key that a watch event puts into the queue.

        None for what turns already know, as most events are of their own status writes.
        """
        metadata, index = read_metadata(item), self._store.index
        key = key_of(kind, metadata)
        if is_deleted:
            previous = index.topic(key)
            index.record_gone(kind, key.namespace, key.name, uid=metadata.uid or None)
            self._topics.wake_namesakes(previous)
        else:
            index.note(kind, item)
        return key if self._turns.is_change(key, metadata, is_deleted=is_deleted) else None

    def on_change(self, change: StateChange) -> None:
        """Put the keys that a controller's change concerns into the queue."""
        namespace, _, name = change.pool.partition("/")
        if change.kind == "topic":
            key = self._topics.key_of_change(namespace, change.name)
            if not self._turns.record_change(key):
                self._add(key)
            return
        self._add(WorkKey(BROKER_POOL.kind, namespace, name))
        self._topics.wake_waiting(change.pool)

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        """Return each object with possible work, for the start of a term and for sweeps.

        Also Topics and pools that are gone, of which slices and Broker objects still exist. The
        turns of Topics with a slice that was not listed read it.
        """
        index, moment = self._store.index, self._store.index.moment()
        pools, _, _, brokers = await asyncio.gather(
            self._store.list(BROKER_POOL, namespace),
            self._store.scan(TOPIC, namespace),
            self._store.scan(PARTITION_SLICE, namespace),
            self._store.list(BROKER, namespace),
        )
        index.doubt_slices_unseen_since(moment, namespace)
        keys = dict.fromkeys(key_of(BROKER_POOL, read_metadata(pool)) for pool in pools)
        for broker in brokers:
            pool_namespace, _, name = broker["spec"]["pool"].rpartition("/")
            own_namespace = broker["metadata"]["namespace"]
            keys[WorkKey(BROKER_POOL.kind, pool_namespace or own_namespace, name)] = None
        keys |= dict.fromkeys((*index.topic_keys(namespace), *index.owners(namespace)))
        return tuple(keys)


log = logging.getLogger(__name__)


class WithAudits:
    """The `KeyReconciler` of the operator on Kubernetes."""

    def __init__(self, brokers: Reconciler, audits: AuditReconciler) -> None:
        self._brokers = brokers
        self._audits = audits

    async def reconcile(self, key: WorkKey) -> int | None:
        if key.kind == REPLICATION_AUDIT.kind:
            return await self._audits.reconcile(key)
        return await self._brokers.reconcile(key)

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        keys = await self._brokers.all_keys(namespace)
        try:
            return (*keys, *await self._audits.all_keys(namespace))
        except NotFound:
            # `helm upgrade` installs no CRDs: brokers are served all the same.
            log.warning(
                "CRD of ReplicationAudit not installed: kubectl apply -f"
                " crds/replicationaudits.yaml of the chart"
            )
            return keys
