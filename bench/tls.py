"""`python -m bench.tls`: what TLS costs. A local cluster without and with it, in turns.

Produce (1 KiB, acks=all, three replicas), consume, latency at a steady rate, a follower that
catches up, handshakes, memory of an idle connection, and processor time of brokers and client.

The client encrypts too, and on a small machine takes processors from brokers: throughput is a lower
bound, processor time is not. Writes build/bench-tls.json.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition
from tidemark_chaos.environments.processes import PortRange

ROOT = Path(__file__).parent.parent
RECORD = os.urandom(1024)
TOPIC = """
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: bench}
spec: {partitions: 3, replicationFactor: 3, config: {min.insync.replicas: "2"}}
"""
BROKERS = 3
CONNECTIONS = 500
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

Figures = dict[str, float]


@dataclass
class Cluster:
    data: Path
    first: int
    has_tls: bool

    @property
    def ca_file(self) -> Path:
        return self.data / "tls" / "ca.crt"

    def context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=str(self.ca_file)) if self.has_tls else None

    def status(self) -> Any:
        return self.read(self.first + 11, "/v1/status")

    def read(self, port: int, path: str) -> Any:
        """Return the JSON that a broker or the controller answers. Raises OSError."""
        scheme = "https" if self.has_tls else "http"
        url = f"{scheme}://127.0.0.1:{port}{path}"
        with urlopen(url, timeout=5, context=self.context()) as response:
            return json.loads(response.read())

    def knows_leaders(self, broker: int) -> bool:
        """Return whether a broker knows a leader of each partition of the topic."""
        partitions = self.read(self.first + broker, "/topics/bench")["partitions"]
        return all(each["leader"] >= 0 for each in partitions)

    def settings(self) -> dict[str, Any]:
        servers = ",".join(f"127.0.0.1:{self.first + 5 + each}" for each in range(BROKERS))
        found: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 2}
        if self.has_tls:
            found |= {"security.protocol": "SSL", "ssl.ca.location": str(self.ca_file)}
        return found

    def pids(self) -> list[int]:
        return [int(each["pid"]) for each in self.status()["pools"][0]["brokers"]]

    def cpu_seconds(self) -> float:
        return sum(_cpu_seconds(pid) for pid in self.pids())


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def _rss_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


@contextmanager
def cluster(*, has_tls: bool) -> Iterator[Cluster]:
    data = ROOT / "build" / "bench-tls"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    manifest = data / "topic.yaml"
    manifest.write_text(TOPIC)
    with PortRange(15) as ports:
        found = Cluster(data, ports.first, has_tls)
        tls = ["--tls", "--replication-port", str(ports.first + 12)] if has_tls else []
        with (data / "dev.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tidemark_cli.main", "dev", "--data-dir", str(data)),
                    *("--http-port", str(ports.first), "--kafka-port", str(ports.first + 5)),
                    *("--controller-port", str(ports.first + 11), "-f", str(manifest), *tls),
                ],
                env=os.environ | {"XDG_STATE_HOME": str(data / "state")},
                stdout=log,
                stderr=log,
            )
        try:
            _until_ready(found)
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            shutil.rmtree(data, ignore_errors=True)


def _until_ready(found: Cluster) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            topics = found.status()["pools"][0]["topics"]
            parts = next(each for each in topics if each["topic"] == "bench")["partitions"]
            if all(len(each["isr"]) == BROKERS and each["leader"] >= 0 for each in parts) and all(
                found.knows_leaders(broker) for broker in range(BROKERS)
            ):
                return
        except (OSError, LookupError, StopIteration):
            pass
        time.sleep(0.2)
    raise TimeoutError("the cluster is not ready")


def produce(found: Cluster, seconds: float) -> Figures:
    began, cpu, client = time.monotonic(), found.cpu_seconds(), time.process_time()
    mib = _produced_mib(found, seconds)
    return {
        "produce_mib_s": mib / (time.monotonic() - began),
        "produce_cpu_ms_per_mib": 1000 * (found.cpu_seconds() - cpu) / mib,
        "produce_client_ms_per_mib": 1000 * (time.process_time() - client) / mib,
    }


def _produced_mib(found: Cluster, seconds: float) -> float:
    producer = Producer(found.settings() | {"acks": "all", "linger.ms": 5})
    acknowledged = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal acknowledged
        if error is not None:
            raise RuntimeError(str(error))
        acknowledged += 1

    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            producer.produce("bench", RECORD, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.flush(60)
    return acknowledged / 1024


def consume(found: Cluster) -> Figures:
    consumer = Consumer(found.settings() | {"group.id": "bench", "fetch.queue.backoff.ms": 10})
    consumer.assign([TopicPartition("bench", number, 0) for number in range(3)])
    ends = [consumer.get_watermark_offsets(TopicPartition("bench", n))[1] for n in range(3)]
    wanted, read = sum(ends), 0
    began, cpu, client = time.monotonic(), found.cpu_seconds(), time.process_time()
    while read < wanted and time.monotonic() < began + 60:
        read += len(consumer.consume(10_000, 1))
    took = time.monotonic() - began
    consumer.close()
    mib = read / 1024
    return {
        "consume_mib_s": mib / took,
        "consume_cpu_ms_per_mib": 1000 * (found.cpu_seconds() - cpu) / mib,
        "consume_client_ms_per_mib": 1000 * (time.process_time() - client) / mib,
    }


def catch_up(found: Cluster, seconds: float) -> Figures:
    """Stop a broker while records are written, let it go on, and wait until it is in sync."""
    pid = found.pids()[-1]
    os.kill(pid, signal.SIGSTOP)
    try:
        mib = _produced_mib(found, seconds)
    finally:
        os.kill(pid, signal.SIGCONT)
    began, cpu = time.monotonic(), found.cpu_seconds()
    _until_ready(found)
    return {
        "catch_up_mib_s": mib / (time.monotonic() - began),
        "catch_up_cpu_ms_per_mib": 1000 * (found.cpu_seconds() - cpu) / mib,
    }


def latency(found: Cluster, seconds: float, rate: int = 200) -> Figures:
    producer = Producer(found.settings() | {"acks": "all", "linger.ms": 0})
    took_ms: list[float] = []
    for number in range(int(seconds * rate)):
        sent = time.monotonic()

        def on_delivery(error: object, _: object, sent: float = sent) -> None:
            if error is None:
                took_ms.append(1000 * (time.monotonic() - sent))

        producer.produce("bench", RECORD, partition=number % 3, on_delivery=on_delivery)
        while time.monotonic() < sent + 1 / rate:
            producer.poll(0.001)
    producer.flush(30)
    took_ms = sorted(took_ms[rate:])  # without the first second
    return {
        "p50_ms": statistics.median(took_ms),
        "p99_ms": took_ms[int(len(took_ms) * 0.99)],
    }


def connections(found: Cluster, seconds: float) -> Figures:
    """Connect to one broker again and again; then hold many connections."""
    port = found.first + 5
    context = found.context()
    pid = next(
        each["pid"] for each in found.status()["pools"][0]["brokers"] if each["brokerId"] == 0
    )
    ends = time.monotonic() + seconds
    cpu = _cpu_seconds(pid)
    counts = []

    def run() -> None:
        count = 0
        while time.monotonic() < ends:
            _connected(port, context).close()
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(counts)
    used_ms = 1000 * (_cpu_seconds(pid) - cpu)
    before = _rss_kib(pid)
    held = [_connected(port, context) for _ in range(CONNECTIONS)]
    time.sleep(1)
    after = _rss_kib(pid)
    for each in held:
        each.close()
    return {
        "connects_per_s": total / seconds,
        "connect_cpu_ms": used_ms / total,
        "kib_per_connection": (after - before) / CONNECTIONS,
    }


def _connected(port: int, context: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    if context is None:
        return plain
    return context.wrap_socket(plain, server_hostname="localhost")


def measure(*, has_tls: bool, seconds: float) -> Figures:
    with cluster(has_tls=has_tls) as found:
        figures = latency(found, seconds)
        figures |= produce(found, seconds)
        figures |= consume(found)
        figures |= catch_up(found, seconds)
        figures |= connections(found, seconds / 2)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load, default 8")
    arguments = parser.parse_args()
    rounds: list[dict[str, Figures]] = []
    for number in range(arguments.rounds):
        order = (False, True) if number % 2 == 0 else (True, False)
        found = {
            "tls" if each else "plain": measure(has_tls=each, seconds=arguments.seconds)
            for each in order
        }
        rounds.append(found)
        print(json.dumps(found), flush=True)
    names = list(rounds[0]["plain"])
    print(f"{'':28}{'plain':>10}{'TLS':>10}{'ratio':>8}   (medians of {len(rounds)} rounds)")
    for name in names:
        plain, tls = (
            statistics.median(each[kind][name] for each in rounds) for kind in ("plain", "tls")
        )
        ratio = statistics.median(each["tls"][name] / (each["plain"][name] or 1) for each in rounds)
        print(f"{name:28}{plain:10.2f}{tls:10.2f}{ratio:8.2f}")
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench-tls.json").write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
