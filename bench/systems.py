"""The two systems, each as three brokers of this machine with the same defaults: replication 3,
min.insync.replicas 2, nothing synced before it is acknowledged.

Kafka as three combined KRaft nodes with the JVM options of its own start script, but for -Xms: its
memory grows with its need. Tidemark as `tidemark dev`. Only one of them runs at a time. Processes
end with the benchmark, data directories are removed when a system stops.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

HOST = "127.0.0.1"
BROKERS = 3
REPLICAS = 3
START_LIMIT_SECONDS = 90.0
STOP_LIMIT_SECONDS = 30.0
CREATE_LIMIT_SECONDS = 120.0
LOOK_SECONDS = 0.02
JVM_OPTIONS = (  # of kafka-run-class.sh and kafka-server-start.sh
    *("-server", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)


class System(Protocol):
    name: str
    brokers: int
    bootstrap: str

    def prepare(self) -> None:
        """What is done once in the life of a cluster, before it is first started."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def create_topics(self, topics: dict[str, int]) -> None:
        """Name to partitions; returns when all replicas are in sync."""

    def broker_pids(self) -> list[int]: ...
    def all_pids(self) -> list[int]:
        """Controllers of their own too."""

    def controller_pid(self) -> int:
        """The process that leads the cluster; with Kafka's combined nodes one of the brokers."""

    def signal_broker(self, broker_id: int, number: int) -> None: ...
    def bring_back(self, broker_id: int) -> None:
        """After a kill: start it again, unless that is the system's own business."""

    def is_in_sync(self, topic: str) -> bool:
        """All replicas, in the present life of their brokers."""


class BenchFailed(Exception):
    """A system or a tool did not do what is measured; says what to look at."""


def wait_for(
    what: str, is_true: Callable[[], bool], *, seconds: float, pause: float = 0.02
) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException, OSError):
            if is_true():
                return
        time.sleep(LOOK_SECONDS)
    raise BenchFailed(f"waited {seconds:.0f} s for {what}")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as sockets:
        found = []
        for _ in range(count):
            listener = sockets.enter_context(socket.socket())
            listener.bind((HOST, 0))
            found.append(int(listener.getsockname()[1]))
        return found


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise BenchFailed(f"process {pid} is gone")


def cpu_seconds(pids: Sequence[int]) -> float:
    """That these processes have spent so far, in user and kernel mode."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def metadata(bootstrap: str, *, timeout_seconds: float = 2.0) -> Any:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return client.list_topics(timeout=timeout_seconds)


def _gauge(url: str, name: str) -> float:
    """The one sample of that name, a regular expression."""
    with urllib.request.urlopen(url, timeout=30) as response:
        text = response.read().decode()
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    if found is None:
        raise BenchFailed(f"{url} has no {name}")
    return float(found[1])


def wait_until_serving(system: System) -> None:
    def is_serving() -> bool:
        return len(metadata(system.bootstrap).brokers) == system.brokers

    wait_for(f"{system.name} to serve", is_serving, seconds=START_LIMIT_SECONDS)


def leader_of(system: System, topic: str) -> int:
    return int(metadata(system.bootstrap).topics[topic].partitions[0].leader)


class KafkaSystem:
    name = "kafka"

    def __init__(
        self,
        directory: Path,
        jars: Path,
        broker_options: Sequence[Sequence[str]] = (),
        *,
        brokers: int = BROKERS,
    ) -> None:
        """`broker_options`: of Java, for each broker."""
        self.brokers = brokers
        self._directory = directory
        self._jars = jars
        self._broker_options = broker_options or ((),) * brokers
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: list[int] = []
        self.bootstrap = ""

    def prepare(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._ports = free_ports(2 * self.brokers)
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in self._ports[: self.brokers])
        cluster_id = uuid.uuid4().hex[:22]
        for broker_id in range(self.brokers):
            settings = self._directory / f"{broker_id}.properties"
            settings.write_text(self._settings(broker_id))
        formatting = [
            self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", settings)
            for settings in sorted(self._directory.glob("*.properties"))
        ]
        for process in formatting:
            if process.wait(START_LIMIT_SECONDS) != 0:
                raise BenchFailed(f"kafka: format failed, see {self._directory}/*.log")

    def start(self) -> None:
        for broker_id in range(self.brokers):
            self.bring_back(broker_id)

    def stop(self) -> None:
        end_processes(list(self._processes.values()))
        self._processes.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def create_topics(self, topics: dict[str, int]) -> None:
        create_topics(self, topics)

    def broker_pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    all_pids = broker_pids

    def controller_pid(self) -> int:
        return self._processes[0].pid

    def signal_broker(self, broker_id: int, number: int) -> None:
        self._processes[broker_id].send_signal(number)

    def bring_back(self, broker_id: int) -> None:
        previous = self._processes.get(broker_id)
        if previous is not None:
            previous.wait(STOP_LIMIT_SECONDS)
        self._processes[broker_id] = self._java(
            "kafka.Kafka",
            self._directory / f"{broker_id}.properties",
            options=self._broker_options[broker_id],
        )

    def is_in_sync(self, topic: str) -> bool:
        """The ISR of a broker away for longer than its session is short."""
        return _is_in_sync(self, topic)

    def _java(
        self, main: str, *arguments: str | Path, options: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        java = ("java", *JVM_OPTIONS, *options, "-cp", f"{self._jars}/*")
        with (self._directory / f"{main}.{len(arguments)}.log").open("ab") as log:
            return subprocess.Popen(
                [*java, main, *arguments],
                stdout=log,
                stderr=log,
                # As Tidemark's brokers: Linux shares the processor between sessions first.
                start_new_session=True,
            )

    def _settings(self, broker_id: int) -> str:
        voters = ",".join(
            f"{number}@{HOST}:{port}" for number, port in enumerate(self._ports[self.brokers :])
        )
        client_port, controller_port = self._ports[broker_id], self._ports[self.brokers + broker_id]
        return "\n".join(
            (
                "process.roles=broker,controller",
                f"node.id={broker_id}",
                f"controller.quorum.voters={voters}",
                f"listeners=PLAINTEXT://{HOST}:{client_port},CONTROLLER://{HOST}:{controller_port}",
                f"advertised.listeners=PLAINTEXT://{HOST}:{client_port}",
                "controller.listener.names=CONTROLLER",
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                f"log.dirs={self._directory}/data-{broker_id}",
                "default.replication.factor=3",
                "min.insync.replicas=2",
                "offsets.topic.replication.factor=3",
                "transaction.state.log.replication.factor=3",
                "",
            )
        )


def compile_as_in_images() -> None:
    """Bytecode of all that brokers and operator import: images have it, and without it each process
    compiles every module that it loads, which is half of its start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    processes = "tidemark_cli.main, tidemark_operator.manager.local.main, tidemark_broker.main"
    late = "tidemark_broker.http.openapi"  # loaded once a broker serves
    subprocess.run([sys.executable, "-c", f"import {processes}, {late}"], check=True)


class TidemarkSystem:
    name = "tidemark"

    def __init__(self, directory: Path, *, brokers: int = BROKERS) -> None:
        self.brokers = brokers
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.controller_url = ""
        self._previous_epochs: dict[int, int] = {}  # of brokers that got a signal
        self.bootstrap = ""

    def prepare(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)

    def start(self) -> None:
        first = neighbouring_ports(2 * self.brokers + 1)
        self.bootstrap = ",".join(f"{HOST}:{first + number}" for number in range(self.brokers))
        self.controller_url = f"http://{HOST}:{first + 2 * self.brokers}"
        with (self._directory / "dev.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tidemark_cli.main", "dev"),
                    *("--brokers", str(self.brokers), "--data-dir", str(self._directory)),
                    *("--kafka-port", str(first), "--http-port", str(first + self.brokers)),
                    *("--controller-port", str(first + 2 * self.brokers)),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        if self._process is not None:
            end_processes([self._process], signal.SIGINT)
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def create_topics(self, topics: dict[str, int]) -> None:
        create_topics(self, topics)

    def command(self, *arguments: str) -> str:
        """The output of a `tidemark` command against this cluster."""
        done = subprocess.run(
            [sys.executable, "-m", "tidemark_cli.main", *arguments],
            env={**os.environ, "TIDEMARK_SERVER": self.controller_url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise BenchFailed(f"tidemark {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def broker_pids(self) -> list[int]:
        return [int(broker["pid"]) for broker in self._pool()["brokers"]]

    def all_pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid, *self.broker_pids()]

    def controller_pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def operator_log(self) -> list[dict[str, Any]]:
        """What the operator logged until now."""
        lines = (self._directory / "logs" / "operator.log").read_bytes().splitlines()
        return [msgspec.json.decode(line) for line in lines if line.endswith(b"}")]

    def longest_turns(self) -> dict[str, float]:
        """Seconds, of the last minute at least, by the loop's own gauge: operator and brokers."""
        ports = [int(each.rpartition(":")[2]) + self.brokers for each in self.bootstrap.split(",")]
        urls = {f"broker {number}": f"http://{HOST}:{port}" for number, port in enumerate(ports)}
        return {
            name: _gauge(f"{url}/metrics", r"tidemark_\w+_loop_lag_max_seconds")
            for name, url in {"operator": self.controller_url, **urls}.items()
        }

    def signal_broker(self, broker_id: int, number: int) -> None:
        found = self._broker(broker_id)
        self._previous_epochs[broker_id] = int(found["brokerEpoch"])
        os.kill(int(found["pid"]), number)

    def bring_back(self, broker_id: int) -> None:
        """Local mode starts it, 0.2 s after the end: that counts. Returns when it has registered,
        as what is known of its former life would look in sync."""
        previous = self._previous_epochs[broker_id]
        wait_for(
            f"another life of broker {broker_id}",
            lambda: int(self._broker(broker_id)["brokerEpoch"]) > previous,
            seconds=START_LIMIT_SECONDS,
        )

    def is_in_sync(self, topic: str) -> bool:
        pool = self._pool()
        present = {broker["brokerId"]: broker["brokerEpoch"] for broker in pool["brokers"]}
        found = [entry for entry in pool["topics"] if entry["topic"] == topic]
        return bool(found) and all(
            partition["leader"] >= 0
            and len(partition["isr"]) == len(partition["replicas"])
            and all(present[member["id"]] == member["epoch"] for member in partition["isr"])
            for partition in found[0]["partitions"]
        )

    def _broker(self, broker_id: int) -> Any:
        return next(b for b in self._pool()["brokers"] if b["brokerId"] == broker_id)

    def _pool(self) -> Any:
        with urllib.request.urlopen(f"{self.controller_url}/v1/status", timeout=5) as response:
            pools = msgspec.json.decode(response.read())["pools"]
        return next(pool for pool in pools if pool["pool"] == "default/default")


def create_topics(system: System, topics: dict[str, int]) -> None:
    client = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    requested = client.create_topics(
        [NewTopic(name, partitions, REPLICAS) for name, partitions in topics.items()],
        request_timeout=CREATE_LIMIT_SECONDS,
        operation_timeout=CREATE_LIMIT_SECONDS,
    )
    for future in requested.values():
        future.result(CREATE_LIMIT_SECONDS)
    wait_for(
        "new topics in sync",
        lambda: all(system.is_in_sync(topic) for topic in topics),
        seconds=CREATE_LIMIT_SECONDS,
    )


def _is_in_sync(system: System, topic: str) -> bool:
    found = metadata(system.bootstrap)
    entry = found.topics.get(topic)
    return (
        len(found.brokers) == system.brokers
        and entry is not None
        and bool(entry.partitions)
        and all(
            partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
            for partition in entry.partitions.values()
        )
    )


def neighbouring_ports(count: int) -> int:
    for first in range(24000 + os.getpid() % 500 * 20, 60000, count):
        with contextlib.ExitStack() as sockets:
            try:
                for port in range(first, first + count):
                    listener = sockets.enter_context(socket.socket())
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    listener.bind((HOST, port))
            except OSError:
                continue
            return first
    raise BenchFailed(f"no {count} neighbouring free ports on this machine")


def end_processes(
    processes: Sequence[subprocess.Popen[bytes]], number: int = signal.SIGTERM
) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)
    deadline = time.monotonic() + STOP_LIMIT_SECONDS
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def running(system: System) -> Iterator[float]:
    """Gives the seconds from the first process until all brokers are in the metadata."""
    try:
        system.prepare()
        started = time.monotonic()
        system.start()
        wait_until_serving(system)
        yield time.monotonic() - started
    finally:
        system.stop()
