"""Reconcile one BrokerPool: its brokers' processes and what belongs to them."""

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from msgspec import UNSET, UnsetType
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import (
    BrokerPool,
    CertificatesStatus,
    ListenerStatus,
    PoolStatus,
)
from tidemark_operator.api.kinds import BROKER_POOL, TOPIC
from tidemark_operator.api.objects import Invalid
from tidemark_operator.api.pool_security import SecurityStatus, status_of
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    BrokerRuntime,
    ObservedPool,
    PoolAction,
)
from tidemark_operator.controller.core.reassignment import CannotReassign
from tidemark_operator.controller.core.views import PoolSettings
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.conditions import Condition, invalid_condition
from tidemark_operator.reconcile.pool.plan import plan_pool, pool_conditions
from tidemark_operator.reconcile.pool.plan_drain import Drain, plan_drain
from tidemark_operator.reconcile.pool.plan_listeners import bootstrap_servers, listener_addresses
from tidemark_operator.reconcile.pool.plan_retained import RetainedMoves, plan_retained_moves
from tidemark_operator.reconcile.pool.plan_rolling_update import (
    RollingUpdate,
    plan_rolling_update,
    roll_step,
    rolling_update_condition,
)
from tidemark_operator.reconcile.pool.plan_security import (
    PoolSecurity,
    plan_security,
    security_conditions,
)
from tidemark_operator.reconcile.pool_membership import active_broker_ids, leaving_brokers
from tidemark_operator.reconcile.retained_data import retained_condition, retained_replicas
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.status import StatusWriter
from tidemark_operator.reconcile.topic.plan_placement import (
    BrokerPlacement,
    replica_counts,
    unknown_topics,
)
from tidemark_operator.reconcile.topic.purges import Purges, read_purges
from tidemark_operator.reconcile.topic.reconciler import TopicReconciler
from tidemark_operator.reconcile.turns import Turns
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.names import pool_selector
from tidemark_operator.store.object_store import (
    NamespaceTerminating,
    ObjectStore,
    Rejected,
    StoreError,
)
from tidemark_operator.store.typed_store import TypedStore

log = logging.getLogger(__name__)

# Of a pool's actions that were not answered: each takes as long as the store's limit is.
MAX_FAILURES_PER_TURN = 3


class PoolReconciler:
    def __init__(
        self,
        store: ObjectStore,
        controller: ControllerService,
        runtime: BrokerRuntime,
        *,
        topics: TopicReconciler,
        statuses: StatusWriter,
        turns: Turns,
        settings: ReconcilerSettings,
        add: Callable[[WorkKey], None],
    ) -> None:
        self._store = store
        self._objects = TypedStore(store)
        self._controller = controller
        self._runtime = runtime
        self._topics = topics
        self._statuses = statuses
        self._turns = turns
        self._settings = settings
        self._add = add

    async def reconcile(self, key: WorkKey) -> int | None:
        pool = await self._objects.get(BrokerPool, key.namespace, key.name)
        if pool is None:
            self._turns.record_gone(key)
            await self._runtime.on_pool_gone(key.namespace, key.name)
            return None
        self._turns.record_seen(BROKER_POOL, pool.metadata)
        if pool.metadata.is_going:
            return None  # the collector takes its pods
        if isinstance(pool, Invalid):
            faults = [invalid_condition(pool.sentences)]
            return await self._statuses.write(pool, PoolStatus(), faults)
        observed, security = await self._runtime.observe(pool), None
        if self._settings.sets_security:
            security, observed_for = plan_security(pool, observed), pool
            try:
                pool = await self._set_security(pool, security)
            except Rejected as error:
                if security.is_new:  # such as a listener at a port that a closed pool needs
                    return await self._statuses.write(pool, PoolStatus(), _rejections([error]))
                log.error(
                    "pool security not written", extra={"pool": pool.pool, "error": str(error)}
                )
                pool = pool.with_security(security.wanted)
            pool = pool.with_security(security.in_force)
            # Pods were compared with the template by the security of the spec.
            if pool.spec.security != observed_for.spec.security:
                observed = await self._runtime.observe(pool)
        failures = await self._apply_each(pool, plan_pool(pool, observed))
        self._topics.pool_is_read(pool)
        self._record_leaving(pool)
        addresses = listener_addresses(pool, observed)
        settings = PoolSettings(pool.spec.move_bytes_per_second, pool.spec.quotas, addresses)
        await self._controller.set_settings(pool.pool, settings)
        purges = await self._purge(pool, failures)
        retained = await self._move_retained(pool, failures)
        drain = await self._drain(pool, observed, failures, retained)
        active = active_broker_ids(self._controller, pool.pool)
        rolling_update = plan_rolling_update(
            pool, observed, active, self._controller.topics(pool.pool)
        )
        if not rolling_update.is_over:
            self._controller.record_roll_step(pool.pool, roll_step(rolling_update))
        if rolling_update.stop is not None:
            failures += await self._apply_each(pool, (rolling_update.stop,))
        conditions = (
            *_rejections(failures),
            *pool_conditions(pool, observed, active),
            rolling_update_condition(rolling_update),
            *drain.conditions,
            *retained_condition(self._controller.topics(pool.pool)),
            *purges.conditions(),
            *(() if security is None else security_conditions(security)),
        )
        in_force = UNSET if security is None else status_of(security.in_force)
        fields = self._status_fields(pool, observed, rolling_update, purges, in_force)
        # At once: until a purge is recorded, it would also take a later topic of that name, and a
        # spec without its security is completed by the one that is recorded.
        at_once = purges.has_change or pool.status.security != in_force
        wait_ms = await self._statuses.write(pool, fields, conditions, at_once=at_once)
        for failure in failures:
            if not isinstance(failure, Rejected):
                raise failure  # the queue comes back, more slowly each time
        if not (rolling_update.is_over and drain.is_over):
            return self._settings.roll_interval_ms
        listeners = (
            len(addresses) < pool.spec.replicas * len(pool.spec.listeners)
            and observed.listeners is not None
        )
        is_waiting = listeners or bool(failures) or bool(purges.waiting)
        return wait_ms or (self._settings.waiting_interval_ms if is_waiting else None)

    async def _set_security(self, pool: BrokerPool, security: PoolSecurity) -> BrokerPool:
        """Write the fields of spec.security that are absent, and return the pool with them.

        They are written before a broker is made by them: a pool's security does not change with
        the defaults of a later release.
        """
        if pool.spec.security.is_said:
            return pool
        log.info(
            "pool security set",
            extra={
                "pool": pool.pool,
                "tls": security.wanted.tls.mode,
                "authentication": security.wanted.authentication,
            },
        )
        said = pool.stored["spec"].get("security", {})
        tls = {**said.get("tls", {}), "mode": security.wanted.tls.mode}
        wanted = {**said, "authentication": security.wanted.authentication, "tls": tls}
        spec = {**pool.stored["spec"], "security": wanted}
        stored = await self._store.replace(BROKER_POOL, {**pool.stored, "spec": spec})
        pool = pool.with_security(security.wanted)
        pool.record_written(stored)
        return pool

    async def _apply_each(
        self, pool: BrokerPool, actions: Iterable[PoolAction]
    ) -> list[StoreError | OSError]:
        """Apply each action and return the errors.

        An error of one action keeps no other from being done: a rejected Service no broker from its
        start.
        """
        failures: list[StoreError | OSError] = []
        for action in actions:
            log.info("pool action", extra={"pool": pool.pool, "action": repr(action)})
            try:
                await self._runtime.apply(pool, action)
            except NamespaceTerminating:
                raise
            except (StoreError, OSError) as error:
                failures.append(error)
            slow = sum(not isinstance(each, Rejected) for each in failures)
            if slow == MAX_FAILURES_PER_TURN:
                break
        return failures

    async def _purge(self, pool: BrokerPool, failures: list[StoreError | OSError]) -> Purges:
        purges = read_purges(pool)
        try:
            await self._topics.purges.carry_out(pool, purges)
        except NamespaceTerminating:
            raise
        except (StoreError, OSError) as error:
            failures.append(error)  # brokers do not wait for that
        return purges

    async def _move_retained(
        self, pool: BrokerPool, failures: list[StoreError | OSError]
    ) -> RetainedMoves:
        """Move retained data off leaving brokers: there is no Topic whose pass would do it."""
        leaving = self._topics.leaving.get(pool.pool, frozenset())
        if not leaving:
            return RetainedMoves()
        numbers = map(BrokerId, range(pool.spec.replicas))
        places = BrokerPlacement(
            tuple(number for number in numbers if number not in leaving),
            leaving,
            active_broker_ids(self._controller, pool.pool),
            {each.broker_id: each.rack for each in self._controller.brokers(pool.pool)},
        )
        moves = plan_retained_moves(self._controller.topics(pool.pool), places)
        problems = []
        for topic, targets in moves.targets:
            try:
                await self._controller.reassign(pool.pool, topic.topic_id, targets)
            except CannotReassign as error:
                problems.append(f"deleted topic {topic.topic}, {error}")
            except NamespaceTerminating:
                raise
            except (StoreError, OSError) as error:
                failures.append(error)  # the brokers do not wait for that
                break
        if not moves.targets:
            return moves
        new_partitions = plan_retained_moves(self._controller.topics(pool.pool), places)
        return new_partitions.and_waiting(problems)

    async def _drain(
        self,
        pool: BrokerPool,
        observed: ObservedPool,
        failures: list[StoreError | OSError],
        retained: RetainedMoves,
    ) -> Drain:
        views = self._controller.topics(pool.pool)
        drain = plan_drain(
            pool,
            observed,
            self._controller.brokers(pool.pool),
            replica_counts(views),
            retained_replicas(views),
            unknown_topics(views),
            retained,
        )
        failures += await self._apply_each(pool, drain.actions)
        for broker_id in drain.retire:
            await self._controller.retire_broker(pool.pool, broker_id)
        return drain

    def _record_leaving(self, pool: BrokerPool) -> None:
        """Record the leaving brokers; Topics check their placement again when they change."""
        known = (broker.broker_id for broker in self._controller.brokers(pool.pool))
        leaving = leaving_brokers(pool.spec, known)
        if leaving == self._topics.leaving.get(pool.pool, frozenset()):
            return
        self._topics.leaving[pool.pool] = leaving
        for view in self._controller.topics(pool.pool):
            if not view.is_retained:
                self._add(WorkKey(TOPIC.kind, pool.namespace, view.object_name))

    def _status_fields(
        self,
        pool: BrokerPool,
        observed: ObservedPool,
        rolling_update: RollingUpdate,
        purges: Purges,
        in_force: SecurityStatus | UnsetType,
    ) -> PoolStatus:
        running = sum(broker.process is not BrokerProcess.ABSENT for broker in observed.brokers)
        selector = sorted(pool_selector(pool.name).items())
        return PoolStatus(
            replicas=running,
            active_brokers=len(active_broker_ids(self._controller, pool.pool)),
            updated_brokers=pool.spec.replicas - len(rolling_update.outdated),
            listeners=tuple(
                ListenerStatus(name=each.name, bootstrap=bootstrap_servers(each, observed))
                for each in pool.spec.listeners
            ),
            selector=",".join(f"{name}={value}" for name, value in selector),
            purge_retained=purges.status if purges.has_change else UNSET,
            security=in_force,
            certificates=_certificates(observed),
        )


def _certificates(observed: ObservedPool) -> CertificatesStatus | UnsetType:
    found = observed.certificates
    if found is None or not found.issuer:
        return UNSET
    return CertificatesStatus(
        authority=found.issuer,
        authority_expires=datetime.fromtimestamp(found.ends_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        trusted_authorities=found.trusted,
        secret_name=found.secret_name or UNSET,
        next_authority=found.newest if found.newest != found.issuer else UNSET,
    )


def _rejections(failures: Iterable[Exception]) -> Iterator[Condition]:
    """Yield a condition for rejections by the API server, which only the user can change."""
    sentences = dict.fromkeys(str(each) for each in failures if isinstance(each, Rejected))
    if sentences:
        yield Condition("Ready", False, "Refused", "; ".join(sentences))
