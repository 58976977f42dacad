"""Wire up `tidemark-operator` with settings from the environment, read and checked once.

Threads: kopf has its own with its own loop (watch.py), and so has the Lease (lease_thread.py);
everything else is on the main loop. The Lease decides who leads; losing it means standing by, not
an end. The process ends by SIGTERM (the Lease is released first), by the end of the watch, without
which it would miss changes, and when it gets rights in a namespace that was left out without them.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web
from tidemark_protocol.loop_lag import LoopLag

from tidemark_operator.api.kinds import BROKER_POOL, SECRET, TOPIC, Object
from tidemark_operator.api.schemas import load_schema
from tidemark_operator.broker_runtime.node_racks import NodeRacks
from tidemark_operator.broker_runtime.pods import PodRuntime
from tidemark_operator.controller.access_reviews import AccessReviews, access_calls
from tidemark_operator.controller.client_reviews import ClientReviews, review_calls
from tidemark_operator.controller.clock import LeaseSystemClock, MonotonicClock, wall_clock_ms
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.controller.http_api import serve
from tidemark_operator.controller.probe import HttpProbe
from tidemark_operator.controller.service import ControllerService, StateChange
from tidemark_operator.manager.certificate_metrics import CertificateCollector
from tidemark_operator.manager.cluster_security import ClusterSecurity, SecuritySettings
from tidemark_operator.manager.event_recorder import EventRecorder
from tidemark_operator.manager.forbidden_namespaces import find_forbidden, wait_until_open
from tidemark_operator.manager.garbage import check_retained_once
from tidemark_operator.manager.health import create_health_app, create_people_app
from tidemark_operator.manager.json_log import set_up
from tidemark_operator.manager.leadership import BrokerFailure, LeadershipRunner, is_pod_terminated
from tidemark_operator.manager.lease_thread import LeaseThread
from tidemark_operator.manager.loop_lag import LoopLagCollector
from tidemark_operator.manager.operator_tls import OperatorTls
from tidemark_operator.manager.rejections import RejectionsCollector
from tidemark_operator.manager.watch import ClusterWatch, ObjectEvent
from tidemark_operator.manager.web.actions import add_action_routes
from tidemark_operator.manager.web.broker_reads import BrokerReads
from tidemark_operator.manager.web.forward import ForwardToLeader
from tidemark_operator.manager.web.live_pools import LivePools
from tidemark_operator.manager.web.routes import add_web_routes
from tidemark_operator.reconcile.audit.metrics import AuditCollector
from tidemark_operator.reconcile.audit.reconciler import AuditReconciler
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.metrics import ReconcileCollector
from tidemark_operator.reconcile.reconciler import Reconciler, WithAudits
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.work_queue import WorkKey, WorkQueue
from tidemark_operator.resources.broker_pod import PodSettings
from tidemark_operator.resources.pod_template import USER_ID
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.security.credentials import CREDENTIALS_LABEL, CredentialSecrets
from tidemark_operator.security.guarded_site import ConnectionGuard
from tidemark_operator.security.kubernetes_clients import KubernetesClients
from tidemark_operator.security.operator_token import OperatorTokens
from tidemark_operator.security.subject_access_review import (
    SubjectAccessReviews,
    kubernetes_review,
)
from tidemark_operator.store import kubernetes
from tidemark_operator.store.kubernetes import KubernetesStore
from tidemark_operator.store.lease import ControllerLease, Leader, LeaseSettings
from tidemark_operator.topic_admin.field_managers import request_of
from tidemark_operator.topic_admin.service import TopicAdmin, topic_calls

log = logging.getLogger(__name__)


ALL_NAMESPACES = "*"


class SettingsError(Exception):
    """A setting that cannot be; the text says which, and what was expected."""


class OperatorEnded(Exception):
    """The watch or the worker ended: nothing would be heard, or done, any more."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    namespace: str  # where the operator and its Lease are
    pod_name: str
    pod_uid: str
    pod_ip: str
    controllers: str  # what brokers are told: host:port of the headless Service
    watch_namespaces: tuple[str, ...] = ()  # empty: all
    default_pool_spec: Object = field(default_factory=dict)
    controllers_with_tls: str = ""  # for brokers of pools with TLS; "": the same host, its TLS port
    controller_port: int = 8070
    controller_tls_port: int = 8443
    health_port: int = 8080
    people_port: int = 8081  # on loopback only
    security: SecuritySettings = SecuritySettings()
    log_level: str = "info"
    has_web_actions: bool = False  # on the live page
    pod_user_id: int | None = USER_ID  # of brokers and audits; None: the platform assigns one
    kubeconfig: str | None = None  # outside of a pod

    @property
    def tls_controllers(self) -> str:
        host = self.controllers.rpartition(":")[0]
        return self.controllers_with_tls or f"{host}:{self.controller_tls_port}"

    @property
    def identity(self) -> str:
        return f"{self.pod_name}/{self.pod_uid}"

    @property
    def address(self) -> str:
        host = f"[{self.pod_ip}]" if ":" in self.pod_ip else self.pod_ip
        return f"{host}:{self.controller_port}"


def read_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Read the settings of the pod's environment.

    Raises SettingsError.
    """
    names = ("POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_IP")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise SettingsError(f"{', '.join(missing)}: expected a value (downward API), found none")
    namespace = environment["POD_NAMESPACE"]
    return OperatorSettings(
        namespace=namespace,
        pod_name=environment["POD_NAME"],
        pod_uid=environment["POD_UID"],
        pod_ip=environment["POD_IP"],
        controllers=environment.get(
            "TIDEMARK_CONTROLLERS", f"tidemark-operator.{namespace}.svc:8070"
        ),
        watch_namespaces=_watched(environment.get("TIDEMARK_WATCH_NAMESPACES", "")),
        default_pool_spec=_pool_spec(environment.get("TIDEMARK_DEFAULT_POOL", "{}")),
        log_level=_log_level(environment.get("TIDEMARK_LOG_LEVEL", "info")),
        has_web_actions=_is_on(environment, "TIDEMARK_WEB_ACTIONS"),
        pod_user_id=_user_id(environment.get("TIDEMARK_POD_USER_ID", str(USER_ID))),
        kubeconfig=environment.get("KUBECONFIG"),
        security=_security(environment, namespace),
    )


def _watched(text: str) -> tuple[str, ...]:
    """Return the namespaces; none for all, which the chart of this release writes as `*`."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return () if ALL_NAMESPACES in names else names


def _security(environment: Mapping[str, str], namespace: str) -> SecuritySettings:
    account = environment.get("POD_SERVICE_ACCOUNT", "")
    token_file = environment.get("TIDEMARK_CONTROLLER_TOKEN_FILE", "")
    return SecuritySettings(
        peer=f"system:serviceaccount:{namespace}:{account}" if account else "",
        token_file=Path(token_file) if token_file else None,
        accepts_old_brokers=_flag(environment, "TIDEMARK_ACCEPT_OLD_BROKERS"),
        metrics_need_token=_flag(environment, "TIDEMARK_METRICS_NEED_TOKEN"),
    )


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "false")
    if text not in ("true", "false"):
        raise SettingsError(f"{name}: expected true or false, found {text[:80]}")
    return text == "true"


def _pool_spec(text: str) -> Object:
    try:
        spec = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"TIDEMARK_DEFAULT_POOL: expected JSON: {error}") from error
    if not isinstance(spec, dict):
        raise SettingsError(f"TIDEMARK_DEFAULT_POOL: expected an object, found {text[:80]}")
    return spec


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "false")
    if text not in ("true", "false"):
        raise SettingsError(f"{name}: expected true or false, found {text[:80]!r}")
    return text == "true"


def _user_id(text: str) -> int | None:
    if text and not (text.isdecimal() and int(text)):
        raise SettingsError(f"TIDEMARK_POD_USER_ID: expected a number above 0, found {text[:80]!r}")
    return int(text) if text else None


def _log_level(text: str) -> str:
    if text not in ("debug", "info", "warning", "error"):
        raise SettingsError(f"TIDEMARK_LOG_LEVEL: expected debug|info|warning|error, found {text}")
    return text


class Operator:
    """All parts of one process, connected."""

    def __init__(self, settings: OperatorSettings, store: KubernetesStore) -> None:
        controller_settings = ControllerSettings(
            advertised_address=settings.address, installation=settings.namespace
        )
        self.store = IndexedStore(store)
        trust = BrokerTrust()
        self.tls = OperatorTls(
            store,
            settings.namespace,
            wall_clock_s=time.time,
            is_leading=lambda: self.controller.is_leading,
            trust=trust,
            on_change=lambda pool: self._queue.add(
                WorkKey(BROKER_POOL.kind, pool.namespace, pool.name)
            ),
        )
        self.controller = ControllerService(
            self.store,
            settings=controller_settings,
            clock=MonotonicClock(),
            wall_clock_ms=wall_clock_ms,
            probe=HttpProbe(controller_settings.probe_timeout_ms, trust),
            on_change=self._on_change,
            rack_of=NodeRacks(store),
        )
        self.security = ClusterSecurity(store, settings.security)
        self.access_reviews = AccessReviews(
            SubjectAccessReviews(kubernetes_review(store), now_ms=MonotonicClock().now_ms),
            self.controller,
        )
        self.operator_tokens = OperatorTokens(time.time)
        self.live_pools = LivePools(
            self.controller,
            wall_clock_ms=wall_clock_ms,
            reads=BrokerReads(trust, self.operator_tokens.authorization),
        )
        self.events = EventRecorder(store, self.controller, now_ms=wall_clock_ms)
        self._queue = WorkQueue()
        self.reconcile_metrics = ReconcileCollector(self._queue)
        self.runtime = PodRuntime(
            store,
            PodSettings(
                controllers=settings.controllers,
                controllers_with_tls=settings.tls_controllers,
                keeps_pods_without_token=settings.security.accepts_old_brokers,
                user_id=settings.pod_user_id,
            ),
            ensure_trust=self.tls.ensure_trust,
            certificates_of=self.tls.certificates_of,
        )
        self._reconciler = Reconciler(
            self.store,
            self.controller,
            self.runtime,
            settings=ReconcilerSettings(default_pool_spec=settings.default_pool_spec),
            add=self._queue.add,
        )
        self.ended: asyncio.Future[BaseException | None] = (
            asyncio.get_running_loop().create_future()
        )
        audits = AuditReconciler(store, user_id=settings.pod_user_id)
        self.audit_metrics = AuditCollector(audits.statuses, audits.schedules)
        self.leading = LeadershipRunner(
            self.controller,
            WithAudits(self._reconciler, audits),
            self._queue,
            on_crash=self.end,
        )
        self.loop_lag = LoopLag()
        self.lease = LeaseThread(
            self.leading, lambda leader: open_lease(settings, leader), self.loop_lag
        )

    def on_object(self, event: ObjectEvent) -> None:
        key = self._reconciler.on_event(event.kind, event.item, is_deleted=event.is_deleted)
        if key is not None:
            self.leading.on_key(key, request_of(event.item))

    def end(self, error: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    def _on_change(self, change: StateChange) -> None:
        self._reconciler.on_change(change)
        self.live_pools.on_change(change)


@contextlib.asynccontextmanager
async def open_lease(settings: OperatorSettings, leader: Leader) -> AsyncIterator[ControllerLease]:
    """Open the Lease on the loop that renews it, with connections of its own.

    A new holder's epoch is above all stored ones: those of the watched namespaces can be read.
    """
    store = await kubernetes.connect(
        kubeconfig=settings.kubeconfig, namespaces=settings.watch_namespaces
    )
    try:
        yield ControllerLease(
            store,
            settings.identity,
            settings.address,
            leader=leader,
            clock=LeaseSystemClock(),
            settings=LeaseSettings(namespace=settings.namespace),
            is_holder_terminated=lambda identity: is_pod_terminated(
                store, settings.namespace, identity
            ),
        )
    finally:
        await store.close()


@dataclass(frozen=True, slots=True)
class Stores:
    whole: KubernetesStore
    open: KubernetesStore  # without namespaces in which there are no rights
    closed: frozenset[str]
    watched: tuple[str, ...]


async def connect_stores(kubeconfig: str | None, namespaces: tuple[str, ...]) -> Stores:
    """Connect to the API server, for the namespaces that this operator may read.

    Raises OperatorEnded if it may read none, and StoreError if there is no API server.
    """
    whole = await kubernetes.connect(kubeconfig=kubeconfig, namespaces=namespaces)
    closed = await find_forbidden(whole, namespaces)
    if closed and closed == set(namespaces):
        await whole.close()
        raise OperatorEnded("no permissions in any namespace of watchNamespaces")
    watched = tuple(each for each in namespaces if each not in closed)
    return Stores(whole, whole.without(closed), closed, watched)


async def run(settings: OperatorSettings) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises OperatorEnded, and StoreError when there is no API server.
    """
    stores = await connect_stores(settings.kubeconfig, settings.watch_namespaces)
    settings = replace(settings, watch_namespaces=stores.watched)
    operator = Operator(settings, stores.open)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watch = _watch(settings, operator, loop)
    calls = {
        **topic_calls(TopicAdmin(operator.store, operator.controller)),
        **review_calls(_client_reviews(settings, operator, stores.open)),
        **access_calls(operator.access_reviews),
    }
    middlewares, rejections = [operator.security.on_network], operator.security.rejections
    api = await serve(
        operator.controller,
        _listen(settings.controller_port),
        more_calls=calls,
        middlewares=middlewares,
        guard=ConnectionGuard(rejections, "controller"),
    )
    tls_api = await serve(
        operator.controller,
        _listen(settings.controller_tls_port),
        more_calls=calls | operator.tls.calls(),
        middlewares=middlewares,
        guard=ConnectionGuard(rejections, "controller-tls", operator.tls.context),
    )
    health = await _serve_health(operator, settings)
    people = await _serve_people(operator, settings)
    watch.start()
    log.info("operator started", extra={"identity": settings.identity, "address": settings.address})
    try:
        await _until_stopped(operator, stop, wait_until_open(stores.whole, stores.closed))
    finally:
        await asyncio.to_thread(watch.stop)
        await operator.live_pools.close()
        for runner in (people, health, tls_api, api):
            await runner.cleanup()
        await operator.security.close()
        await stores.open.close()


def _client_reviews(
    settings: OperatorSettings, operator: Operator, store: KubernetesStore
) -> ClientReviews:
    credentials = CredentialSecrets(
        lambda namespace: store.list(SECRET, namespace, {CREDENTIALS_LABEL: "true"}),
        monotonic_s=time.monotonic,
    )
    salt_key = hashlib.sha256(f"tidemark {settings.namespace}".encode()).digest()
    clients = KubernetesClients(operator.security.tokens, credentials)
    return ClientReviews(operator.controller, clients, operator.operator_tokens, salt_key=salt_key)


async def _until_stopped(
    operator: Operator, stop: asyncio.Event, opening: Coroutine[Any, Any, Exception]
) -> None:
    """Leaving cancels the Lease's task, which steps down and releases."""

    def tell(task: asyncio.Task[Exception]) -> None:
        if not task.cancelled():
            operator.end(task.result())

    async with asyncio.TaskGroup() as tasks:
        opened = tasks.create_task(opening, name="closed namespaces")
        opened.add_done_callback(tell)
        lease = tasks.create_task(operator.lease.run(), name="lease")
        lag = tasks.create_task(operator.loop_lag.run(), name="loop lag")
        events = tasks.create_task(operator.events.run(), name="Kubernetes Events")
        sweeps = tasks.create_task(operator.leading.sweep_forever(random.Random()), name="sweeps")
        certificates = tasks.create_task(operator.tls.run(), name="certificates")
        stopping = tasks.create_task(stop.wait(), name="stop")
        await asyncio.wait((stopping, operator.ended), return_when=asyncio.FIRST_COMPLETED)
        for task in (lease, lag, sweeps, events, stopping, opened, certificates):
            task.cancel()
    if operator.ended.done() and not stop.is_set():
        raise OperatorEnded("the watch or the worker ended") from operator.ended.result()


def _watch(
    settings: OperatorSettings,
    operator: Operator,
    loop: asyncio.AbstractEventLoop,
) -> ClusterWatch:
    def from_thread(act: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are ending
            loop.call_soon_threadsafe(act, value)

    def on_object(event: ObjectEvent) -> None:
        from_thread(operator.on_object, event)

    def on_pod(event: ObjectEvent) -> None:
        from_thread(operator.security.on_pod, event)

    def on_key(key: WorkKey) -> None:
        from_thread(operator.leading.on_key, key)

    def on_trouble(trouble: BrokerFailure) -> None:
        from_thread(operator.leading.on_trouble, trouble)

    return ClusterWatch(
        namespaces=settings.watch_namespaces,
        on_object=on_object,
        on_pod=on_pod,
        on_key=on_key,
        on_trouble=on_trouble,
        on_end=lambda error: from_thread(operator.end, error),
    )


async def _serve_health(operator: Operator, settings: OperatorSettings) -> web.AppRunner:
    app = create_health_app(
        operator.controller,
        operator.audit_metrics,
        LoopLagCollector(operator.loop_lag),
        operator.reconcile_metrics,
        RejectionsCollector(operator.security.rejections),
        CertificateCollector(lambda: operator.tls.controller_ends_s, lambda: operator.tls.pools),
        middlewares=[operator.security.on_network],
    )
    return await _serve_page(app, operator, settings, _listen(settings.health_port), "health")


async def _serve_people(operator: Operator, settings: OperatorSettings) -> web.AppRunner:
    middlewares = [operator.security.on_loopback]
    app = create_people_app(operator.controller, middlewares=middlewares)
    listening = socket.create_server(("127.0.0.1", settings.people_port))
    return await _serve_page(app, operator, settings, listening, "people")


async def _serve_page(
    app: web.Application,
    operator: Operator,
    settings: OperatorSettings,
    listening: socket.socket,
    listener: str,
) -> web.AppRunner:
    controller = operator.controller
    forward = ForwardToLeader(
        lambda: controller.leader_address, settings.health_port, operator.security.own_token
    )
    kills = "pod" if settings.has_web_actions else ""
    add_web_routes(app, controller, operator.live_pools, forward=forward, kills=kills)
    if settings.has_web_actions:
        add_action_routes(app, controller, operator.store, operator.runtime, forward=forward)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await ConnectionGuard(operator.security.rejections, listener).site(runner, listening).start()
    return runner


def _listen(port: int) -> socket.socket:
    """Both families where the machine has them."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def main() -> None:
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        sys.exit(f"tidemark-operator: {error}")
    set_up(settings.log_level)
    load_schema(TOPIC.kind)  # of all kinds: the loop must not wait for that
    check_retained_once()
    try:
        uvloop.run(run(settings))
    except OperatorEnded as error:
        cause = error.__cause__ or error
        log.error("operator stopped, the kubelet restarts it", extra={"error": repr(cause)})
        sys.exit(1)


if __name__ == "__main__":
    main()
