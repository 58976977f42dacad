"""Run brokers of local mode as child processes of this one.

Storage is a directory under the data directory and is never removed here. A process that ended is
started again, immediately after a long run and with a growing delay after short ones; until then it
is reported as starting, so that no plan starts it twice. Children end with this process (Linux
parent-death signal: SIGTERM, so that they still write their clean shutdown file). A port that
another process uses is reported in one sentence, and the broker starts when it is free.

`last_words` returns why a broker process ended, by the last line of its log.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import IO

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import GROUP_SETTINGS, BrokerPool
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
    PoolAction,
    StartBroker,
    StopBroker,
)
from tidemark_operator.broker_runtime.free_ports import is_free, taken_sentence

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
TLS_VALUES = {"Disabled": "false", "Optional": "optional", "Required": "true"}
LONG_LIFE_S = 3.0  # it opened its logs and served: not a crash loop
FIRST_RESTART_DELAY_S = 0.2
MAX_RESTART_DELAY_S = 10.0
PORTS_PER_POOL = 100
EXIT_WITHOUT_PARENT = 1
# No process, memory or file to spare; the second is what `preexec_fn` failed with.
CANNOT_SPAWN = (OSError, SubprocessError)

_libc = ctypes.CDLL(None)


def _die_with(parent: int) -> None:
    """End this child with its parent. Called in the child, before its program.

    A parent that died before this call sends no signal.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(EXIT_WITHOUT_PARENT)


def _no_arguments(_: BrokerId) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class ProcessTls:
    controller_ca_file: Path
    client_ca_file: Path  # of clients' certificates
    replication_port: int  # of broker 0 of the pool default


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    data_dir: Path
    http_port: int  # of broker 0 of the pool default; broker i has the i-th after it
    kafka_port: int
    controller_address: str  # host:port
    token_file: Callable[[str, BrokerId], Path]  # of a pool's broker, for the controller
    host: str = "127.0.0.1"
    stop_timeout_s: float = 15.0
    authenticates: bool = False  # clients have to say who they are
    # More flags for a broker, after ours and so above them: local mode behind port mappings.
    more_arguments: Callable[[BrokerId], Sequence[str]] = _no_arguments
    tls: ProcessTls | None = None
    # What a pod's UID is to a pod: brokers that this process starts all have their volumes by the
    # same mount, as it keeps files of that tree open itself (S7). Another run may have another.
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(slots=True)
class _Child:
    process: asyncio.subprocess.Process | None = None  # None: waiting for its restart delay
    watcher: asyncio.Task[None] | None = None
    short_sessions: int = 0


class ProcessesRuntime:
    def __init__(
        self,
        settings: ProcessSettings,
        *,
        on_exit: Callable[[BrokerPool, BrokerId], None],
        on_due: Callable[[BrokerPool], None],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create a runtime without processes.

        `on_exit` is called when a broker's process ended (suspect it), `on_due` to reconcile the
        pool again, `tell` with a sentence for the user, once.
        """
        self._settings = settings
        self._on_exit = on_exit
        self._on_due = on_due
        self._notify = tell
        self._pools: dict[str, BrokerPool] = {}  # as observed last
        self._reported: dict[tuple[str, BrokerId], str] = {}
        self._children: dict[tuple[str, BrokerId], _Child] = {}
        self._pool_offsets: dict[str, int] = {"default/default": 0}
        self._is_stopping = False

    def pid(self, pool: str, broker_id: BrokerId) -> int | None:
        child = self._children.get((pool, broker_id))
        return child.process.pid if child is not None and child.process is not None else None

    async def kill(self, pool: str, broker_id: BrokerId) -> bool:
        """Send SIGKILL to the broker's process; return whether there is one."""
        child = self._children.get((pool, broker_id))
        if child is None or child.process is None or child.process.returncode is not None:
            return False
        child.process.kill()
        return True

    async def observe(self, pool: BrokerPool) -> ObservedPool:
        self._pools[pool.pool] = pool
        ids = set(range(pool.spec.replicas)) | {
            broker_id for owner, broker_id in self._children if owner == pool.pool
        }
        return ObservedPool(
            brokers=tuple(self._observe_broker(pool, BrokerId(number)) for number in sorted(ids))
        )

    async def apply(self, pool: BrokerPool, action: PoolAction) -> None:
        match action:
            case StartBroker(broker_id):
                await self._start(pool, broker_id)
            case StopBroker(broker_id):
                child = self._children.pop((pool.pool, broker_id), None)
                if child is not None:
                    await self._stop(child)
            case _:
                # Directories and ports need no making; observe reports all parts as present.
                return

    async def on_pool_gone(self, namespace: str, name: str) -> None:
        pool = f"{namespace}/{name}"
        gone = [key for key in self._children if key[0] == pool]
        await asyncio.gather(*(self._stop(self._children.pop(key)) for key in gone))

    async def stop_all(self) -> None:
        """Send SIGTERM to all at once, and kill those that are left after the limit."""
        self._is_stopping = True
        children = list(self._children.values())
        self._children.clear()
        await asyncio.gather(*(self._stop(child) for child in children))

    def _observe_broker(self, pool: BrokerPool, broker_id: BrokerId) -> ObservedBroker:
        child = self._children.get((pool.pool, broker_id))
        if child is None:
            return ObservedBroker(
                broker_id, BrokerProcess.ABSENT, storage_policy=pool.spec.deletion_policy
            )
        state = BrokerProcess.STARTING if child.process is None else BrokerProcess.RUNNING
        instance = "" if child.process is None else str(child.process.pid)
        return ObservedBroker(
            broker_id, state, instance=instance, storage_policy=pool.spec.deletion_policy
        )

    async def _start(self, pool: BrokerPool, broker_id: BrokerId) -> None:
        key = (pool.pool, broker_id)
        if self._is_stopping or key in self._children:
            return
        child = self._children[key] = _Child()
        try:
            await self._spawn(pool, broker_id, child)
        except CANNOT_SPAWN as error:
            self._notify_once(pool, broker_id, error)
            if self._children.get(key) is child:
                del self._children[key]  # else it would be about to start for ever
            raise

    async def _spawn(self, pool: BrokerPool, broker_id: BrokerId, child: _Child) -> None:
        offset = self._pool_offset(pool.pool) + broker_id
        directory = self._directory(pool.pool, broker_id)
        directory.mkdir(parents=True, exist_ok=True)
        host = self._settings.host
        http_port, kafka_port = (
            self._settings.http_port + offset,
            self._settings.kafka_port + offset,
        )
        tls = self._settings.tls
        if tls is None and pool.spec.security.has_tls:
            raise OSError(f"pool {pool.name} has spec.security.tls: start `tidemark dev --tls`")
        ports = [http_port, kafka_port]
        if tls is not None:
            ports.append(tls.replication_port + offset)
        for port in ports:
            if not is_free(host, port):
                raise OSError(taken_sentence(host, port))
        token_file = self._settings.token_file(pool.pool, broker_id)
        with self._log_file(pool.pool, broker_id) as log_file:
            child.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tidemark_broker.main"),
                *("--broker-id", str(broker_id), "--pool", pool.pool),
                *("--rack", f"rack-{broker_id}"),  # each process stands for a machine
                *("--data-dir", str(directory), "--host", host, "--advertised-host", host),
                *(
                    "--advertised-http-url",
                    f"{_client_scheme(tls, pool)}://{host}:{http_port}",
                ),
                *("--http-port", str(http_port)),
                *("--kafka-port", str(kafka_port)),
                *("--controllers", self._settings.controller_address),
                *("--controller-token-file", str(token_file)),
                *("--metrics-profile", pool.spec.metrics_profile),
                *(f"--{GROUP_SETTINGS[name]}={value}" for name, value in pool.spec.groups.items()),
                f"--auto-create-topics-enable={str(pool.spec.creates_topics).lower()}",
                f"--num-partitions={pool.spec.default_partitions}",
                *self._authentication(pool),
                *_tls_arguments(tls, offset, pool),
                *self._settings.more_arguments(broker_id),
                *("--pod-uid", self._settings.run_id),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                # Ctrl-C in the terminal is for this process, which stops its children in order.
                start_new_session=True,
                preexec_fn=partial(_die_with, os.getpid()),
            )
        self._reported.pop((pool.pool, broker_id), None)
        log.info(
            "broker process started",
            extra={"pool": pool.pool, "broker_id": broker_id, "pid": child.process.pid},
        )
        child.watcher = asyncio.create_task(
            self._watch(pool, broker_id, child), name=f"broker-{pool.pool}-{broker_id}"
        )

    def _authentication(self, pool: BrokerPool) -> list[str]:
        wanted = pool.spec.security.authentication
        if not wanted and self._settings.authenticates:
            wanted = "kubernetes"
        if wanted in ("", "none"):
            return []
        return [f"--authentication={wanted}", "--replication-port=0"]

    async def _watch(self, pool: BrokerPool, broker_id: BrokerId, child: _Child) -> None:
        process = child.process
        assert process is not None
        loop = asyncio.get_running_loop()
        born = loop.time()
        code = await process.wait()
        child.process = None
        if self._is_stopping or self._children.get((pool.pool, broker_id)) is not child:
            return
        child.short_sessions = 0 if loop.time() - born >= LONG_LIFE_S else child.short_sessions + 1
        delay_s = min(FIRST_RESTART_DELAY_S * 2**child.short_sessions, MAX_RESTART_DELAY_S)
        log.warning(
            "broker process ended, starting it again",
            extra={
                "pool": pool.pool,
                "broker_id": broker_id,
                "exit_code": code,
                "delay_ms": round(delay_s * 1000),
                "log_file": str(self.log_path(pool.pool, broker_id)),
            },
        )
        self._on_exit(pool, broker_id)
        await self._start_again(pool, broker_id, child, delay_s)

    async def _start_again(
        self, pool: BrokerPool, broker_id: BrokerId, child: _Child, delay_s: float
    ) -> None:
        """However long the machine has no process, memory or file to spare."""
        while True:
            await asyncio.sleep(delay_s)
            if self._is_stopping or self._children.get((pool.pool, broker_id)) is not child:
                return
            try:
                await self._spawn(self._pools.get(pool.pool, pool), broker_id, child)
            except CANNOT_SPAWN as error:
                self._notify_once(pool, broker_id, error)
                delay_s = min(2 * delay_s, MAX_RESTART_DELAY_S)
                log.error(
                    "broker process not started, retrying",
                    extra={
                        "pool": pool.pool,
                        "broker_id": broker_id,
                        "delay_ms": round(delay_s * 1000),
                        "error": str(error),
                    },
                )
                continue
            self._on_due(pool)
            return

    async def _stop(self, child: _Child) -> None:
        process, watcher = child.process, child.watcher
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self._settings.stop_timeout_s):
                    await process.wait()
            except TimeoutError:
                log.error(
                    "broker process not stopped in time, killing it", extra={"pid": process.pid}
                )
                process.kill()
                await process.wait()
        if watcher is not None and watcher is not asyncio.current_task():
            watcher.cancel()

    def _notify_once(self, pool: BrokerPool, broker_id: BrokerId, error: Exception) -> None:
        """Report a failed start once for each reason; it is retried again and again."""
        sentence = f"broker {broker_id} of {pool.name} cannot be started, retrying: {error}"
        if self._reported.get((pool.pool, broker_id)) != sentence:
            self._reported[pool.pool, broker_id] = sentence
            self._notify(sentence)

    def _pool_offset(self, pool: str) -> int:
        if pool not in self._pool_offsets:
            self._pool_offsets[pool] = PORTS_PER_POOL * len(self._pool_offsets)
        return self._pool_offsets[pool]

    def _directory(self, pool: str, broker_id: BrokerId) -> Path:
        return self._settings.data_dir / "brokers" / pool.replace("/", ".") / str(broker_id)

    def log_path(self, pool: str, broker_id: BrokerId) -> Path:
        name = f"{pool.replace('/', '.')}-{broker_id}.log"
        return self._settings.data_dir / "logs" / name

    def _log_file(self, pool: str, broker_id: BrokerId) -> IO[bytes]:
        path = self.log_path(pool, broker_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "ab")


def _client_scheme(tls: ProcessTls | None, pool: BrokerPool) -> str:
    is_plain = tls is None or pool.spec.security.tls.mode in ("Disabled", "Optional")
    return "http" if is_plain else "https"


def _tls_arguments(tls: ProcessTls | None, offset: int, pool: BrokerPool) -> list[str]:
    if tls is None:
        return []
    return [
        *("--tls", TLS_VALUES[pool.spec.security.tls.mode or "Required"]),
        *("--ca-file", str(tls.controller_ca_file)),
        *("--client-ca-file", str(tls.client_ca_file)),
        *("--replication-port", str(tls.replication_port + offset)),
    ]


TAIL_BYTES = 16_384


def last_words(log_path: Path) -> str:
    """`message: reason` of an error; "" of anything else, as of a process that was killed."""
    try:
        with log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - TAIL_BYTES))
            lines = log.read().splitlines()
        found = json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return ""
    if not isinstance(found, dict) or found.get("level") != "error":
        return ""
    return ": ".join(str(found[key]) for key in ("message", "reason") if found.get(key))
