"""Run a cluster and a workload on this machine: `tidemark dev` and `tidemark load` as children."""

import asyncio
import contextlib
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import msgspec
from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import CommandFailed
from tidemark_client.http_session import HttpSession
from tidemark_client.manifests import apply_at_controller, read_manifests
from tidemark_client.metadata import TopicView
from tidemark_client.targets import controller_status
from tidemark_client.waiting import until

from tidemark_chaos.environments import child_processes
from tidemark_chaos.environments.chaos_environment import Notify
from tidemark_chaos.verification import VerifyReport
from tidemark_chaos.workload_log import WorkloadLog, add_to_workload_log

HOST = "127.0.0.1"
FIRST_PORT, LAST_PORT = 21000, 29000  # below what Linux gives to outgoing connections


class PortRange:
    """`first` and those after it, until `close`.

    The sockets are bound and do not listen: another search for free ports finds them taken, while a
    server that allows reuse of its address (SO_REUSEADDR, as servers do) can listen at them.
    """

    def __init__(self, count: int) -> None:
        """Reserve neighbouring ports.

        Raises CommandFailed.
        """
        for first in range(FIRST_PORT, LAST_PORT - count, count):
            with contextlib.ExitStack() as sockets:
                try:
                    for port in range(first, first + count):
                        _take(sockets.enter_context(socket.socket()), port)
                except OSError:
                    continue
                self.first = first
                self._taken = sockets.pop_all()
                return
        raise CommandFailed(
            expected=f"{count} free neighbouring ports from {FIRST_PORT} to {LAST_PORT}",
            found="none",
            to_do="stop the processes that listen there",
        )

    def __enter__(self) -> "PortRange":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._taken.close()


def _take(held: socket.socket, port: int) -> None:
    held.bind((HOST, port))  # fails if the port is bound, also by a socket that does not listen
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


BROKERS = 3
START_SECONDS = 60.0
LOAD_STOP_SECONDS = 100.0  # a record's timeout, then the end of a consumer group
VERIFY_SECONDS = 60.0
VERIFIED_BYTES_PER_SECOND = 500_000  # of the events: less than a busy machine does
POLL_SECONDS = 0.05
ENOUGH_RECORDS = 100  # acknowledged before the first blow
RECORD_TIMEOUT_MS = 60_000  # longer than any round: no outcome stays unknown
REST_SECONDS = 4.5  # of a struck broker: its start, and a life that is no crash loop


class ProcessesEnvironment:
    name = "local"  # of its files next to the events
    ports = 1 + 2 * BROKERS

    def __init__(
        self,
        *,
        topic: str,
        manifest: str,
        events: Path,
        interval_ms: float,
        directory: Path | None = None,
    ) -> None:
        """Create it; without a `directory` its data is in a temporary one."""
        self.topic_name = topic
        self._manifest = manifest
        self._events = events
        self._interval_ms = interval_ms
        self._directory = directory or Path(tempfile.mkdtemp(prefix="tidemark-local-"))
        self._cluster: asyncio.subprocess.Process | None = None
        self._load: asyncio.subprocess.Process | None = None
        self._controller_url = ""
        self._session: HttpSession | None = None
        self._port_range: PortRange | None = None
        self._struck_at: dict[int, float] = {}  # broker id -> when, in the loop's time
        self._workload_log = WorkloadLog()
        self._read_to_byte = 0

    async def set_up(self, tell: Notify) -> None:
        self._port_range = PortRange(self.ports)
        base = self._port_range.first
        self._controller_url = f"http://127.0.0.1:{base}"
        tell(f"starting the controller and {BROKERS} brokers")
        await self._start_cluster()
        await self.until(self._is_answering, "a response of the controller")
        tell(f"applying the topic {self.topic_name}")
        await apply_at_controller(self._controller_url, read_manifests(self._manifest))
        tell("waiting until every partition has a leader and all replicas in sync")
        await self.until(self._is_in_sync, f"{self.topic_name} to be led and in sync")

    async def _start_cluster(self) -> None:
        assert self._port_range is not None
        self._cluster = await child_processes.start(
            self.cluster_command(self._port_range.first, self._directory / "data"),
            log=self._log("cluster"),
        )

    def cluster_command(self, first_port: int, data: Path) -> list[str]:
        """Return the command of the cluster.

        The controller takes the first port, then come the brokers' HTTP ports, then their Kafka
        ports.
        """
        return [
            *(sys.executable, "-m", "tidemark_cli.main", "dev", "--brokers", str(BROKERS)),
            *("--data-dir", str(data), "--controller-port", str(first_port)),
            *("--http-port", str(first_port + 1), "--kafka-port", str(first_port + 1 + BROKERS)),
        ]

    async def start_workload(self) -> None:
        self._events.parent.mkdir(parents=True, exist_ok=True)
        self._events.unlink(missing_ok=True)
        self._load = await child_processes.start(self.load_command(), log=self._log("load"))
        await self.until(self._is_acknowledged, "the load to be acknowledged")

    def load_command(self) -> list[str]:
        """Return the command of the workload: it writes events until SIGTERM, then ends."""
        return [
            *(sys.executable, "-m", "tidemark_cli.main", "load", self.topic_name),
            *("--server", self._controller_url, "--interval-ms", str(self._interval_ms)),
            *("--out", str(self._events), *self.load_options()),
        ]

    def load_options(self) -> list[str]:
        """Return the options of `tidemark load` that say which clients there are."""
        return ["--rack", "rack-1", "--idempotent", "--timeout-ms", str(RECORD_TIMEOUT_MS)]

    async def topic(self) -> TopicView | None:
        status = await self.status()
        return None if status is None else status.topic(self.topic_name)

    async def workload_log(self) -> WorkloadLog:
        """Read what was written since the last call: a long run asks often."""

        def read_on() -> None:
            if not self._events.exists():
                return
            with self._events.open("rb") as file:
                file.seek(self._read_to_byte)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            add_to_workload_log(self._workload_log, data[:whole].splitlines())
            self._read_to_byte += whole

        await asyncio.to_thread(read_on)
        return self._workload_log

    async def stop_workload(self) -> None:
        assert self._load is not None
        if self._load.returncode is None:
            self._load.terminate()
        try:
            async with asyncio.timeout(LOAD_STOP_SECONDS):
                await self._load.wait()
        except TimeoutError as late:
            raise CommandFailed(
                expected=f"the load to end within {LOAD_STOP_SECONDS:g} s",
                found="it did not",
                to_do=f"read {self._log('load')}",
            ) from late

    async def verify(self) -> VerifyReport:
        """Read all records and compare all replicas: a long run takes longer."""
        more_seconds = self._events.stat().st_size / VERIFIED_BYTES_PER_SECOND
        ended = await child_processes.run(
            [
                *(sys.executable, "-m", "tidemark_cli.main", "verify", "-o", "json"),
                *("--load", str(self._events), "--server", self._controller_url),
                *("--within-seconds", f"{VERIFY_SECONDS + more_seconds:.0f}"),
            ],
            within_seconds=2 * (VERIFY_SECONDS + more_seconds),
        )
        return read_report(ended)

    async def worn_brokers(self) -> frozenset[int]:
        """Local mode holds back the second restart of what lived for less than three seconds."""
        now = asyncio.get_running_loop().time()
        return frozenset(
            broker_id for broker_id, at in self._struck_at.items() if now - at < REST_SECONDS
        )

    async def renew(self, broker_id: int) -> None:
        rest = self._struck_at[broker_id] + REST_SECONDS - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, rest))

    async def tear_down(self) -> None:
        if self._session is not None:
            await self._session.close()
        await child_processes.stop(self._load)
        await child_processes.stop(self._cluster)
        if self._port_range is not None:
            self._port_range.close()
        await asyncio.to_thread(self._keep_logs)
        await asyncio.to_thread(self._remove_data)

    def _remove_data(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    async def status(self) -> ClusterStatus | None:
        """Over one connection: it is asked often while brokers need the processors."""
        if self._session is None:
            self._session = HttpSession()
        return await controller_status(self._controller_url, self._session)

    async def pid_of(self, broker_id: int) -> int | None:
        """Return a broker's process id, from the controller's status or else the process table."""
        status = await self.status()
        row = None if status is None else status.broker(broker_id)
        if row is not None and row.pid is not None and child_processes.command_line(row.pid):
            return row.pid
        assert self._cluster is not None
        for pid in child_processes.descendants(self._cluster.pid):
            words = child_processes.command_line(pid)
            if ("--broker-id", str(broker_id)) in pairwise(words):
                return pid
        return None

    def _log(self, name: str) -> Path:
        """Beside the events, so that it survives the temporary directory."""
        self._events.parent.mkdir(parents=True, exist_ok=True)
        return self._events.parent / f"{self.name}-{name}.log"

    def _keep_logs(self) -> None:
        kept = self._events.parent / f"{self.name}-logs"
        shutil.rmtree(kept, ignore_errors=True)
        if (logs := self._directory / "data" / "logs").is_dir():
            shutil.copytree(logs, kept)

    def _check_cluster(self) -> None:
        if self._cluster is not None and self._cluster.returncode is not None:
            raise self._ended("a running `tidemark dev`", "cluster")

    def _ended(self, expected: str, log: str) -> CommandFailed:
        tail = self._log(log).read_bytes()[-1500:].decode(errors="replace").strip()
        return CommandFailed(
            expected=expected,
            found=f"it ended: {tail or 'without output'}",
            to_do=f"read {self._log(log)}",
        )

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until a condition holds; fail early if `tidemark dev` ends."""

        async def checked() -> bool:
            self._check_cluster()
            return await is_so()

        await until(
            checked,
            what,
            within_seconds=START_SECONDS,
            every_seconds=POLL_SECONDS,
            to_do=f"read {self._log('cluster')}",
        )

    async def _is_answering(self) -> bool:
        return await self.status() is not None

    async def _is_in_sync(self) -> bool:
        view = await self.topic()
        return view is not None and view.is_fully_in_sync

    async def _is_acknowledged(self) -> bool:
        if self._load is not None and self._load.returncode is not None:
            raise self._ended("a running load", "load")
        return (await self.workload_log()).acknowledged_count >= ENOUGH_RECORDS


def read_report(ended: child_processes.Terminated) -> VerifyReport:
    """Read the JSON of `tidemark verify -o json`, whichever its verdict."""
    try:
        return msgspec.json.decode(ended.stdout, type=VerifyReport)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CommandFailed(
            expected="a verdict of `tidemark verify`",
            found=(ended.stdout[-700:] + ended.stderr[-700:]).decode(errors="replace"),
            to_do="run `tidemark status`: every partition needs a leader",
        ) from error
