"""Run `tidemark dev`: the operator without Kubernetes.

One process has the SQLite store, the controller and the reconcilers; the brokers are its children.
Ctrl-C (or SIGTERM) stops the brokers in order first, while the controller still serves them.

Before anything begins the ports are checked, and the process that uses one is named.
"""

import asyncio
import io
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import uvloop
from aiohttp import web
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.local_profile import remove_profile
from tidemark_protocol.loop_lag import LoopLag

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import BROKER_POOL, TOPIC, ResourceKind
from tidemark_operator.broker_runtime.free_ports import is_free, taken_sentence
from tidemark_operator.broker_runtime.processes import (
    ProcessesRuntime,
    ProcessSettings,
    ProcessTls,
    last_words,
)
from tidemark_operator.controller import http_api
from tidemark_operator.controller.access_reviews import AccessReviews, access_calls
from tidemark_operator.controller.broker_call import BrokerCall
from tidemark_operator.controller.client_reviews import ClientReviews, review_calls
from tidemark_operator.controller.clock import LeaseSystemClock, MonotonicClock, wall_clock_ms
from tidemark_operator.controller.probe import HttpProbe
from tidemark_operator.controller.service import (
    ControllerService,
    ControllerSettings,
    StateChange,
)
from tidemark_operator.manager import json_log
from tidemark_operator.manager.garbage import check_retained_once
from tidemark_operator.manager.leadership import BrokerFailure, LeadershipRunner
from tidemark_operator.manager.local.api import add_local_routes
from tidemark_operator.manager.local.apply import NAMESPACE, ManifestRejected, apply_manifests
from tidemark_operator.manager.local.local_tls import LocalTls, write_local_profile
from tidemark_operator.manager.local.readiness import notify_when_ready, readiness_of
from tidemark_operator.manager.loop_lag import LoopLagCollector
from tidemark_operator.manager.rejections import RejectionsCollector
from tidemark_operator.manager.web.actions import add_action_routes
from tidemark_operator.manager.web.broker_reads import BrokerReads
from tidemark_operator.manager.web.live_pools import LivePools
from tidemark_operator.manager.web.routes import PAGE_PATH, add_web_routes
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.reconcile.metrics import ReconcileCollector
from tidemark_operator.reconcile.reconciler import Reconciler
from tidemark_operator.reconcile.settings import ReconcilerSettings
from tidemark_operator.reconcile.work_queue import WorkKey, WorkQueue
from tidemark_operator.security.authentication import authenticated
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.security.guarded_site import ConnectionGuard
from tidemark_operator.security.local_roles import LocalRoles, create_roles
from tidemark_operator.security.local_secret import ByLocalSecret, LocalSecret
from tidemark_operator.security.local_users import (
    FIRST_USERS,
    TOKENS_DIRECTORY,
    USERS_FILE,
    LocalUsers,
    create_users,
    read_users,
    salt_key_of,
)
from tidemark_operator.security.operator_token import OperatorTokens
from tidemark_operator.security.plan_certificates import Lives
from tidemark_operator.security.rejections import RejectionLog
from tidemark_operator.security.subject_access_review import SubjectAccessReviews
from tidemark_operator.store.lease import ControllerLease, LeaseSettings
from tidemark_operator.store.object_store import StoreError
from tidemark_operator.store.sqlite import SqliteStore, StoredChange
from tidemark_operator.topic_admin.field_managers import request_of
from tidemark_operator.topic_admin.service import TopicAdmin, topic_calls

READ_SECONDS = 0.1
PROCESSES = Path("/proc")
BROKER_MODULE = b"tidemark_broker.main"


async def until_free(
    host: str,
    ports: Sequence[int],
    *,
    seconds: float,
    ending: Callable[[], Sequence[int]] = tuple,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Wait for brokers of an earlier run that are ending. Raises OSError.

    `ending`: their process ids. Without any a taken port is refused at once."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + seconds
    reported = False
    for port in ports:
        while not is_free(host, port):
            pids = ending()
            if not pids or loop.time() >= ends_s:
                raise OSError(taken_sentence(host, port, pids))
            if not reported:
                reported = True
                tell(
                    f"waiting up to {seconds:g} s for brokers of an earlier run to stop"
                    f" (processes {', '.join(map(str, pids))})"
                )
            await asyncio.sleep(READ_SECONDS)


def earlier_brokers(data_dir: Path, *, processes: Path = PROCESSES) -> tuple[int, ...]:
    """Return ids of broker processes of this data directory whose `tidemark dev` is gone."""
    found = []
    below = os.fsencode(data_dir) + b"/"
    for entry in processes.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        is_ours = any(a == b"--data-dir" and b.startswith(below) for a, b in pairwise(words))
        if BROKER_MODULE in words and is_ours:
            found.append(int(entry.name))
    return tuple(sorted(found))


HOST = "127.0.0.1"
EXIT_FAILED = 1
EXIT_USAGE = 2
PORTS_FREE_SECONDS = 30.0  # brokers without their controller take 10 s to end in order
WATCHED = {kind.kind: kind for kind in (TOPIC, BROKER_POOL)}
SWITCH_INTERVAL_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class LocalSettings:
    brokers: int
    data_dir: Path
    http_port: int
    kafka_port: int
    controller_port: int
    manifests: tuple[Path, ...]
    replication_port: int = 0  # of broker 0; 0: without TLS
    certificate_life_s: int = 0  # 0: the default
    has_actions: bool = False  # on the live page
    authenticates: bool = False  # clients have to say who they are


class LocalCluster:
    def __init__(
        self,
        settings: LocalSettings,
        store: SqliteStore,
        *,
        more_arguments: Callable[[BrokerId], Sequence[str]] = lambda _: (),
    ) -> None:
        """Create it; `more_arguments` returns further flags of each broker."""
        self._settings = settings
        self._store = store
        self._indexed = IndexedStore(store)
        self._stop = asyncio.Event()
        self._exit_code = 0
        self._queue = WorkQueue()
        controller_settings = ControllerSettings()
        self._address = f"{HOST}:{settings.controller_port}"
        self._trust = trust = BrokerTrust()
        self._tls: LocalTls | None = None
        if settings.replication_port:
            self._tls = LocalTls(
                store,
                settings.data_dir,
                lives=Lives(certificate_s=settings.certificate_life_s)
                if settings.certificate_life_s
                else Lives(),
                wall_clock_s=time.time,
                is_leading=lambda: self.controller.is_leading,
                trust=trust,
            )
        self._url = f"{'http' if self._tls is None else 'https'}://{self._address}"
        self.controller = ControllerService(
            self._indexed,
            settings=controller_settings,
            clock=MonotonicClock(),
            wall_clock_ms=wall_clock_ms,
            probe=HttpProbe(controller_settings.probe_timeout_ms, trust),
            on_change=self._on_change,
        )
        self._secret = LocalSecret(settings.data_dir)
        self._rejections = RejectionLog(time.monotonic)
        self._access_reviews = AccessReviews(
            SubjectAccessReviews(
                LocalRoles(settings.data_dir).review, now_ms=MonotonicClock().now_ms
            ),
            self.controller,
        )
        self._operator_tokens = OperatorTokens(time.time)
        self._live_pools = LivePools(
            self.controller,
            wall_clock_ms=wall_clock_ms,
            reads=BrokerReads(trust, self._operator_tokens.authorization),
        )
        self.runtime = ProcessesRuntime(
            ProcessSettings(
                settings.data_dir,
                settings.http_port,
                settings.kafka_port,
                self._address,
                self._secret.write_token_file,
                more_arguments=more_arguments,
                tls=self._process_tls(),
                authenticates=settings.authenticates,
            ),
            on_exit=self._broker_exited,
            on_due=self._check_pool,
            tell=say,
        )
        self._reconciler = Reconciler(
            self._indexed,
            self.controller,
            self.runtime,
            settings=ReconcilerSettings(
                default_pool_spec={"replicas": settings.brokers}, sets_security=False
            ),
            add=self._queue.add,
        )
        self._leading = LeadershipRunner(
            self.controller, self._reconciler, self._queue, on_crash=self._crashed
        )
        self._lease = ControllerLease(
            store,
            "local",
            self._address,
            leader=self._leading,
            clock=LeaseSystemClock(),
            # The store's file is locked for the life of this process: no other can lead, so a
            # late renewal is harmless.
            settings=LeaseSettings(NAMESPACE, sit_out_ms=0, give_up_after_ms=24 * 3_600_000),
        )

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        await until_free(
            HOST,
            self._ports(),
            seconds=PORTS_FREE_SECONDS,
            ending=lambda: earlier_brokers(self._settings.data_dir),
            tell=say,
        )
        authenticates = self._settings.authenticates
        if authenticates:
            self._create_users()
        say(f"live page: {self._url}{PAGE_PATH}")
        await self._apply_files()
        if self._tls is not None:
            users = read_users(self._settings.data_dir / USERS_FILE) if authenticates else ()
            await self._tls.start(tuple(user.name for user in users))
        write_local_profile(self._settings.controller_port, self._tls)
        lag, rejections = LoopLag(), self._rejections.connections
        with socket.create_server((HOST, self._settings.controller_port)) as listening:
            runner = await http_api.serve(
                self.controller,
                listening,
                pid_of=self.runtime.pid,
                more_calls=self._more_calls(),
                more_metrics=(
                    LoopLagCollector(lag),
                    ReconcileCollector(self._queue),
                    RejectionsCollector(rejections),
                ),
                add_routes=self._add_routes,
                middlewares=[authenticated(ByLocalSecret(self._secret), self._rejections)],
                guard=ConnectionGuard(
                    rejections, "controller", None if self._tls is None else self._tls.context
                ),
            )
            try:
                async with asyncio.TaskGroup() as tasks:
                    lease = tasks.create_task(self._lease.run(), name="lease")
                    changes = tasks.create_task(self._follow_changes(), name="changes")
                    beats = tasks.create_task(lag.run(), name="loop lag")
                    renewing = tasks.create_task(self._renew_certificates(), name="certificates")
                    say(f"starting; data and logs are in {self._settings.data_dir}")
                    ready = tasks.create_task(self._notify_when_ready(), name="ready")
                    await self._stop.wait()
                    say("stopping the brokers")
                    await self.runtime.stop_all()
                    for task in (ready, changes, lease, beats, renewing):
                        task.cancel()
            finally:
                await self._live_pools.close()
                await runner.cleanup()
                if self._tls is not None:
                    remove_profile(self._settings.controller_port)
        return self._exit_code

    async def _renew_certificates(self) -> None:
        if self._tls is not None:
            await self._tls.run()

    def _process_tls(self) -> ProcessTls | None:
        if self._tls is None:
            return None
        return ProcessTls(
            self._tls.controller_ca_file, self._tls.client_ca_file, self._settings.replication_port
        )

    def _more_calls(self) -> dict[str, BrokerCall]:
        data_dir = self._settings.data_dir
        users = LocalUsers(data_dir)
        reviews = ClientReviews(
            self.controller, users, self._operator_tokens, salt_key=salt_key_of(data_dir)
        )
        admin = TopicAdmin(self._indexed, self.controller)
        certificates = {} if self._tls is None else self._tls.calls()
        return {
            **topic_calls(admin),
            **review_calls(reviews),
            **access_calls(self._access_reviews),
            **certificates,
        }

    def _create_users(self) -> None:
        data_dir = self._settings.data_dir
        names = ", ".join(user.name for user in create_users(data_dir))
        create_roles(data_dir)
        say(f"users: {names}; their tokens are in {data_dir / TOKENS_DIRECTORY}")
        if self._tls is not None:
            say(f"certificates and keys of users are in {self._tls.users_directory}")

    async def _notify_when_ready(self) -> None:
        await notify_when_ready(
            lambda: readiness_of(self._store, self.controller, self._trust),
            say,
            controller_url=self._url,
            data_dir=self._settings.data_dir,
            ca_file=None if self._tls is None else self._tls.ca_file,
            token_file=self._admin_token if self._settings.authenticates else None,
        )

    def _ports(self) -> list[int]:
        settings = self._settings
        of_brokers = [settings.http_port, settings.kafka_port]
        if settings.replication_port:
            of_brokers.append(settings.replication_port)
        each = [first + number for first in of_brokers for number in range(settings.brokers)]
        return [settings.controller_port, *each]

    def _add_routes(self, app: web.Application) -> None:
        add_local_routes(app, self._store, secret_file=self._secret.path)
        has_actions = self._settings.has_actions
        kills = "process" if has_actions else ""
        add_web_routes(app, self.controller, self._live_pools, kills=kills)
        if has_actions:
            add_action_routes(app, self.controller, self._store, self.runtime)

    @property
    def _admin_token(self) -> Path:
        return self._settings.data_dir / TOKENS_DIRECTORY / FIRST_USERS[0]

    async def _apply_files(self) -> None:
        """Apply the manifests of the command line, and the pool they need unless they have it."""
        text = "\n---\n".join(map(_text, self._settings.manifests))
        if text.strip():
            for applied in await apply_manifests(self._store, text):
                say(f"{applied.kind.lower()}/{applied.name} {applied.action}")
        if await self._store.get(BROKER_POOL, NAMESPACE, "default") is None:
            pool = (
                "{apiVersion: tidemark.dev/v1alpha1, kind: BrokerPool, metadata: {name: default},"
                f" spec: {{replicas: {self._settings.brokers}}}}}"
            )
            await apply_manifests(self._store, pool)

    async def _follow_changes(self) -> None:
        """Follow the store's own changes, as kopf does on Kubernetes."""
        version = self._store.resource_version()
        while True:
            await self._store.wait_for_change(version)
            newest = self._store.resource_version()
            for change in self._store.changes_after(version, kinds=tuple(WATCHED.values())):
                newest = max(newest, change.resource_version)
                self._notify(WATCHED[change.kind], change)
            version = newest

    def _notify(self, kind: ResourceKind, change: StoredChange) -> None:
        key = self._reconciler.on_event(kind, change.item, is_deleted=change.is_deleted)
        if key is not None:
            self._leading.on_key(key, request_of(change.item))

    def _on_change(self, change: StateChange) -> None:
        self._reconciler.on_change(change)
        self._live_pools.on_change(change)

    def _broker_exited(self, pool: BrokerPool, broker_id: BrokerId) -> None:
        log_path = self.runtime.log_path(pool.pool, broker_id)
        words = last_words(log_path)
        why = f" ({words})" if words else ""
        then = f"and is restarted; log: {log_path}"
        say(f"broker {broker_id} of {pool.name} ended{why} {then}")
        self._leading.on_trouble(BrokerFailure(pool.pool, broker_id, "ProcessEnded"))

    def _check_pool(self, pool: BrokerPool) -> None:
        self._leading.on_key(WorkKey(BROKER_POOL.kind, pool.namespace, pool.name))

    def _crashed(self, error: BaseException) -> None:
        say(f"internal error in the operator, stopping: {type(error).__name__}: {error}")
        self._exit_code = EXIT_FAILED
        self._stop.set()


def _text(manifest: Path) -> str:
    try:
        return manifest.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ManifestRejected([f"{manifest}: expected UTF-8, found {error}"]) from error


def say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


def run_local(settings: LocalSettings, *, proxy_port: int | None = None) -> int:
    """Run until Ctrl-C; return the exit code.

    `proxy_port`: of proxies between controller and brokers (`_proxied`); None: there are none.
    """
    settings = replace(settings, data_dir=settings.data_dir.resolve())
    log_path = settings.data_dir / "logs" / "operator.log"
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what a full disk refused is not tried again when the file is closed.
        with log_path.open("ab", buffering=0) as raw:
            json_log.set_up("info", file=io.TextIOWrapper(raw, write_through=True))
            check_retained_once()
            # The loop has its turn again soon while the store's thread works.
            sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
            return uvloop.run(_run(settings, proxy_port))
    except ManifestRejected as rejected:
        say("\n".join(["error: manifests rejected; nothing was started:", *rejected.problems]))
        return EXIT_USAGE
    except (StoreError, OSError) as error:
        say(f"error: {_plain(error)}")
        return EXIT_FAILED


def _plain(error: StoreError | OSError) -> str:
    """Return one sentence, without an error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _proxied(settings: LocalSettings, proxy_port: int | None) -> Callable[[BrokerId], list[str]]:
    """Return the flags of each broker that dials, and is dialled by its peers, through proxies.

    The ports in front of the controller come first, one for each broker, then those in front of the
    brokers' HTTP ports, then those of their Kafka ports. Clients dial brokers directly.
    """

    def arguments(broker_id: BrokerId) -> list[str]:
        if proxy_port is None:
            return []
        first = proxy_port + broker_id
        return [
            *("--controllers", f"{HOST}:{first}"),
            *("--advertised-http-port", str(first + settings.brokers)),
            *("--advertised-kafka-port", str(first + 2 * settings.brokers)),
            *_proxied_replication(settings, first),
        ]

    return arguments


def _proxied_replication(settings: LocalSettings, first: int) -> list[str]:
    """Return the flag of a broker with TLS: what peers dial by the Kafka port else."""
    if not settings.replication_port:
        return []
    return ["--advertised-replication-port", str(first + 2 * settings.brokers)]


def _hide(database: Path) -> None:
    """Let the user alone read the file, before keys of authorities are in it, and files beside it.

    SQLite gives its log the permissions of the database.
    """
    database.touch(mode=0o600)
    for path in (database, *database.parent.glob(f"{database.name}-*")):
        path.chmod(0o600)


async def _run(settings: LocalSettings, proxy_port: int | None) -> int:
    database = settings.data_dir / "tidemark.sqlite"
    if settings.replication_port:
        _hide(database)
    store = SqliteStore(database)
    try:
        flags = _proxied(settings, proxy_port)
        return await LocalCluster(settings, store, more_arguments=flags).run()
    finally:
        store.close()
