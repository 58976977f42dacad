"""A `tidemark dev` of its own for a test: free ports, a directory that pytest removes, an end.

Everything here is a real process on loopback; nothing sleeps for luck, every wait has a limit and
says what it waited for.
"""

import contextlib
import gc
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_chaos.environments.processes import PortRange

from tests.support.waiting import HANG_SECONDS, wait_for

ORDERS = """
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {partitions: 3, replicationFactor: 3, config: {min.insync.replicas: "2"}}
"""


@dataclass
class LocalCluster:
    data_dir: Path
    manifest: str = ORDERS
    brokers: int = 3
    process: subprocess.Popen[bytes] | None = None
    ports: PortRange = field(default_factory=lambda: PortRange(15))
    environment: dict[str, str] = field(default_factory=dict)  # of brokers, too
    is_tls: bool = False
    arguments: tuple[str, ...] = ()  # more of `tidemark dev`

    @property
    def first_port(self) -> int:
        return self.ports.first

    @property
    def controller_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.first_port + 11}"

    @property
    def scheme(self) -> str:
        return "https" if self.is_tls else "http"

    @property
    def ca_file(self) -> Path:
        return self.data_dir / "tls" / "ca.crt"

    def context(self) -> ssl.SSLContext | None:
        if not self.is_tls:
            return None
        if not self.ca_file.is_file():
            raise ConnectionError("the authorities are not written yet")
        return ssl.create_default_context(cafile=str(self.ca_file))

    def broker_url(self, broker_id: int) -> str:
        return f"{self.scheme}://127.0.0.1:{self.first_port + broker_id}"

    def token_file(self, broker_id: int) -> Path:
        """The token by which the controller knows the broker."""
        return self.data_dir / "tokens" / f"default.default-{broker_id}"

    @property
    def broker_urls(self) -> list[str]:
        return [self.broker_url(number) for number in range(self.brokers)]

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        manifest = self.data_dir / "manifest.yaml"
        manifest.write_text(self.manifest)
        with (self.data_dir / "dev.log").open("ab") as log_file:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tidemark_cli.main", "dev"),
                    *("--brokers", str(self.brokers), "--data-dir", str(self.data_dir)),
                    *("--http-port", str(self.first_port)),
                    *("--kafka-port", str(self.first_port + 5)),
                    *("--controller-port", str(self.first_port + 11)),
                    *("-f", str(manifest)),
                    *self._tls_arguments(),
                    *self.arguments,
                ],
                env=os.environ | self.environment,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )

    def _tls_arguments(self) -> tuple[str, ...]:
        port = str(self.first_port + 12)
        return ("--tls", "--replication-port", port) if self.is_tls else ()

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self.process = None
        return code

    def log_text(self) -> str:
        logs = [self.data_dir / "dev.log", *sorted(self.data_dir.glob("logs/*.log"))]
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in logs
            if path.is_file()
        )

    def tracebacks(self) -> list[str]:
        """Lines of brokers' logs that tell of what nobody foresaw: whoever asked got no answer."""
        return [
            line
            for path in sorted(self.data_dir.glob("logs/*.log"))
            for line in path.read_text(errors="replace").splitlines()
            if '"exception": ' in line or line.startswith("Traceback")
        ]

    def pool(self) -> dict[str, Any]:
        """Brokers and topics of the pool `default`, as /v1/status has them."""
        pools = get_json(self.controller_url + "/v1/status", context=self.context())["pools"]
        found: dict[str, Any] | None = next(
            (pool for pool in pools if pool["pool"] == "default/default"), None
        )
        if found is None:
            raise ConnectionError("the controller knows no pool yet")
        return found

    def broker(self, broker_id: int) -> dict[str, Any]:
        brokers: list[dict[str, Any]] = self.pool()["brokers"]
        return next(broker for broker in brokers if broker["brokerId"] == broker_id)

    def partition(self, partition: int, topic: str = "orders") -> dict[str, Any]:
        topics = self.pool()["topics"]
        found = next(entry for entry in topics if entry["topic"] == topic)
        return next(entry for entry in found["partitions"] if entry["partition"] == partition)

    def wait_until_in_sync(self, topic: str = "orders", *, seconds: float = HANG_SECONDS) -> None:
        """Leaders everywhere, and every replica in sync in a life that is the broker's present
        one: an entry of a killed broker does not count although nobody noticed yet. And every
        broker has heard of its leaders: where a topic begins its ISR is full before that."""

        def all_in_sync() -> bool:
            pool = self.pool()
            present = {broker["brokerId"]: broker["brokerEpoch"] for broker in pool["brokers"]}
            found = [entry for entry in pool["topics"] if entry["topic"] == topic]
            is_in_sync = bool(found) and all(
                partition["leader"] >= 0
                and len(partition["isr"]) == len(partition["replicas"])
                and all(present[member["id"]] == member["epoch"] for member in partition["isr"])
                for partition in found[0]["partitions"]
            )
            return is_in_sync and all(
                knows_leaders(
                    broker["advertisedHttpUrl"], topic, self.token("admin"), self.context()
                )
                for broker in pool["brokers"]
                if broker["state"] == "Active"
            )

        wait_for(f"all replicas of {topic} in sync", all_in_sync, seconds=seconds)

    def token(self, user: str) -> str:
        """Of a user; "" where clients do not authenticate."""
        path = self.data_dir / "tokens" / user
        return path.read_text() if path.is_file() else ""

    def kill(self, broker_id: int, signal_number: int = signal.SIGKILL) -> int:
        """Returns the process id that got the signal."""
        pid = int(self.broker(broker_id)["pid"])
        os.kill(pid, signal_number)
        return pid


@contextlib.contextmanager
def running(data_dir: Path, **settings: Any) -> Iterator[LocalCluster]:
    cluster = LocalCluster(data_dir, **settings)
    cluster.start()
    try:
        yield cluster
        if cluster.process is not None:
            cluster.stop()
        if found := cluster.tracebacks():
            raise AssertionError("tracebacks in the brokers' logs:\n" + "\n".join(found[:5]))
    except BaseException as error:
        error.add_note(cluster.log_text())
        raise
    finally:
        if cluster.process is not None:
            cluster.stop()
        # A Kafka client that only its own callbacks refer to is closed so. One that goes on asks
        # whoever listens on these ports next: a later test's brokers.
        gc.collect()
        cluster.ports.close()


def knows_leaders(
    broker_url: str, topic: str, token: str = "", context: ssl.SSLContext | None = None
) -> bool:
    """Of every partition: the topic's name may be known before that."""
    found = get_json(f"{broker_url}/topics/{topic}", token=token, context=context)
    leaders = [partition["leader"] for partition in found["partitions"]]
    return len(leaders) == found["partition_count"] and min(leaders) >= 0


def get_json(
    url: str,
    *,
    timeout_seconds: float = 5.0,
    token: str = "",
    context: ssl.SSLContext | None = None,
) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=timeout_seconds, context=context) as response:
        return json.loads(response.read())


def run_command(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The `tidemark` command against this cluster."""
    return subprocess.run(
        [sys.executable, "-m", "tidemark_cli.main", *arguments],
        env={**os.environ, **cluster.environment, "TIDEMARK_SERVER": cluster.controller_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
