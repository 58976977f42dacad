"""Real broker processes under `tidemark dev --tls`, with unmodified clients."""

import base64
import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from tidemark_protocol.local_tokens import SECRET_FILE, person_token

from tests.support.kafka_cluster import librdkafka_settings
from tests.support.local_cluster import LocalCluster, get_json, run_command, running
from tests.support.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.cluster

KEYS = (b"PRIVATE KEY", base64.b64encode(b"-----BEGIN PRIVATE KEY--"))
LIFE_S = 12  # of certificates; renewed after a third


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("tls")
    arguments = ("--certificate-life-seconds", str(LIFE_S))
    environment = {"XDG_STATE_HOME": str(path / "state")}
    with running(
        path / "data", is_tls=True, arguments=arguments, environment=environment
    ) as started:
        started.wait_until_in_sync()
        yield started


class Load:
    """A producer that goes on until it is stopped: what was acknowledged, what failed, and gaps."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[str] = []
        self.disconnects: dict[str, int] = {}
        self.longest_gap_s = 0.0
        self._last_s = 0.0
        self.prefix = b"%d-" % time.monotonic_ns()
        self._producer = Producer(
            librdkafka_settings(
                cluster,
                **{
                    "security.protocol": "SSL",
                    "ssl.ca.location": str(cluster.ca_file),
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": 0,
                    "delivery.timeout.ms": 60_000,
                    "statistics.interval.ms": 500,
                    "stats_cb": self._on_statistics,
                },
            )
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                "orders", self.prefix + b"%d" % number, on_delivery=self._on_delivery
            )
            number += 1
            self._producer.poll(0.005)

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"]
        self.disconnects = {name: each["disconnects"] for name, each in brokers.items()}

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        now_s = time.monotonic()
        if self._last_s:
            self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
        self._last_s = now_s
        self.acknowledged.append(message.value() or b"")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(HANG_SECONDS)
        assert self._producer.flush(HANG_SECONDS) == 0


def read_back(cluster: LocalCluster, load: Load) -> set[bytes]:
    count = len(load.acknowledged)
    settings = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(cluster.ca_file),
        "group.id": f"g{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(librdkafka_settings(cluster, **settings))
    consumer.subscribe(["orders"])
    found: set[bytes] = set()

    def has_all() -> bool:
        for message in consumer.consume(5000, 0.5):
            value = message.value() or b""
            if message.error() is None and value.startswith(load.prefix):
                found.add(value)
        return len(found) >= count

    try:
        wait_for(f"{count} records", has_all)
    finally:
        consumer.close()
    return found


def authorities(cluster: LocalCluster) -> int:
    return cluster.ca_file.read_text().count("BEGIN CERTIFICATE")


def test_certificates_and_authorities_are_replaced_under_load(cluster: LocalCluster) -> None:
    """Clients are started again while both authorities are trusted: they read the file once."""
    assert authorities(cluster) == 2, "of the pool and of the controller"
    before = cluster.ca_file.read_text()
    old = Load(cluster)
    wait_for("first records", lambda: len(old.acknowledged) > 100)
    ask_for_authorities(cluster)
    wait_for("the new authorities", lambda: authorities(cluster) == 4)
    load = Load(cluster)
    wait_for("first records", lambda: len(load.acknowledged) > 100)
    old.stop()
    wait_for("the end of the old ones", lambda: authorities(cluster) == 2)
    written = len(load.acknowledged)
    # A broker that was not renewed would have no valid certificate after this.
    wait_for("another life", lambda: len(load.acknowledged) > written + LIFE_S * 50)
    load.stop()
    assert not pieces(before) & pieces(cluster.ca_file.read_text())
    for each in (old, load):
        assert each.failures == []
        assert set(each.disconnects.values()) == {0}, "clients' connections live on"
        assert each.longest_gap_s < 3.0
        assert set(each.acknowledged) <= read_back(cluster, each)


def ask_for_authorities(cluster: LocalCluster) -> None:
    asked = datetime.now(UTC).isoformat(timespec="seconds")
    patch = {"metadata": {"annotations": {"tidemark.dev/renew-authority": asked}}}
    secret = cluster.data_dir / SECRET_FILE
    request = urllib.request.Request(
        f"{cluster.controller_url}/v1/brokerpools/default",
        data=json.dumps(patch).encode(),
        headers={
            "content-type": "application/merge-patch+json",
            "authorization": f"Bearer {person_token(secret.read_bytes().strip())}",
        },
        method="PATCH",
    )
    with urllib.request.urlopen(request, timeout=10, context=cluster.context()) as response:
        assert response.status == 200


def pieces(bundle: str) -> set[str]:
    return set(bundle.split("-----BEGIN")[1:])


def test_nothing_is_lost_when_a_leader_is_killed(cluster: LocalCluster) -> None:
    cluster.wait_until_in_sync()
    load = Load(cluster)
    wait_for("first records", lambda: len(load.acknowledged) > 100)
    cluster.kill(cluster.partition(0)["leader"])
    at = len(load.acknowledged)
    wait_for("more records", lambda: len(load.acknowledged) > at + 500)
    cluster.wait_until_in_sync()
    load.stop()
    assert load.failures == []
    assert set(load.acknowledged) <= read_back(cluster, load)


def test_commands_trust_the_cluster_of_this_machine(cluster: LocalCluster) -> None:
    address = cluster.controller_url.removeprefix("https://")
    for arguments in (
        ("produce", "orders", "hello", "--server", address),
        ("status", "--server", address),
        ("groups", "list", "--server", address),
        ("consume", "orders", "--from", "earliest", "--max", "1", "--server", address),
    ):
        done = run_command(cluster, *arguments)
        assert done.returncode == 0, done.stderr
    with_file = {**cluster.environment, "XDG_STATE_HOME": "/nowhere"}
    cluster_elsewhere = LocalCluster(cluster.data_dir, ports=cluster.ports, is_tls=True)
    cluster_elsewhere.environment = with_file
    done = run_command(cluster_elsewhere, "status", "--server", cluster.controller_url)
    assert done.returncode != 0, "nothing is trusted by chance"
    cluster_elsewhere.environment = {**with_file, "TIDEMARK_CA_FILE": str(cluster.ca_file)}
    done = run_command(cluster_elsewhere, "status", "--server", cluster.controller_url)
    assert done.returncode == 0, done.stderr


def test_ports_reject_plain_text(cluster: LocalCluster) -> None:
    url = cluster.broker_url(0)
    assert "orders" in get_json(f"{url}/topics", context=cluster.context())["topics"]
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        get_json(f"{url}/topics", context=ssl.create_default_context())
    for port in (5, 11, 12, 0):
        with socket.create_connection(("127.0.0.1", cluster.first_port + port), 10) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            plain.settimeout(20)
            try:
                received = plain.recv(100)
            except ConnectionResetError:
                received = b""
            assert not received.startswith(b"HTTP"), port


def test_keys_are_in_no_file_that_others_read(cluster: LocalCluster) -> None:
    for path in cluster.data_dir.rglob("*"):
        if path.is_file() and any(text in _content(path) for text in KEYS):
            assert path.stat().st_mode & 0o077 == 0, path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # a segment that was deleted meanwhile
        return b""
