"""A plain pool is closed broker by broker, under load of plain clients and of those that moved."""

import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from tidemark_protocol.local_tokens import SECRET_FILE, person_token

from tests.support.kafka_cluster import librdkafka_settings
from tests.support.local_cluster import ORDERS, LocalCluster, running
from tests.support.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.cluster

POOL = """
apiVersion: tidemark.dev/v1alpha1
kind: BrokerPool
metadata: {name: default}
spec: {replicas: 3, security: {tls: {mode: Disabled}, authentication: none}}
---
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with running(
        tmp_path / "data", is_tls=True, manifest=POOL + ORDERS, environment=environment
    ) as started:
        started.wait_until_in_sync()
        yield started


def settings_of(cluster: LocalCluster, *, has_tls: bool) -> dict[str, Any]:
    if not has_tls:
        return {"security.protocol": "PLAINTEXT"}
    return {"security.protocol": "SSL", "ssl.ca.location": str(cluster.ca_file)}


class Load:
    """An idempotent producer that writes until it is stopped."""

    def __init__(self, cluster: LocalCluster, *, has_tls: bool) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[str] = []
        self._prefix = b"%d-" % time.monotonic_ns()
        more = {"acks": "all", "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer(
            librdkafka_settings(
                cluster,
                **settings_of(cluster, has_tls=has_tls),
                **more,
                **{"delivery.timeout.ms": 60_000},
            )
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.goes_on()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = self._prefix + b"%d" % number
            self._producer.produce("orders", value, on_delivery=self._on_delivery)
            number += 1
            self._producer.poll(0.005)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged.append(message.value() or b"")

    def goes_on(self) -> None:
        enough = len(self.acknowledged) + 100
        wait_for("more records", lambda: len(self.acknowledged) > enough)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(HANG_SECONDS)
        assert self._producer.flush(HANG_SECONDS) == 0
        assert self.failures == []


def read_all(cluster: LocalCluster, count: int, *, has_tls: bool) -> list[bytes]:
    settings = {"group.id": f"g{time.monotonic_ns()}", "auto.offset.reset": "earliest"}
    consumer = Consumer(
        librdkafka_settings(cluster, **settings_of(cluster, has_tls=has_tls), **settings)
    )
    consumer.subscribe(["orders"])
    found: list[bytes] = []

    def has_all() -> bool:
        messages = consumer.consume(5000, 0.5)
        found.extend(each.value() or b"" for each in messages if each.error() is None)
        return len(found) >= count and not messages

    try:
        wait_for(f"{count} records", has_all)
    finally:
        consumer.close()
    return found


def set_security(cluster: LocalCluster, security: dict[str, Any]) -> None:
    secret = cluster.data_dir / SECRET_FILE
    request = urllib.request.Request(
        f"{cluster.controller_url}/v1/brokerpools/default",
        data=json.dumps({"spec": {"security": security}}).encode(),
        headers={
            "content-type": "application/merge-patch+json",
            "authorization": f"Bearer {person_token(secret.read_bytes().strip())}",
        },
        method="PATCH",
    )
    with urllib.request.urlopen(request, timeout=10, context=cluster.context()) as response:
        assert response.status == 200


def roll(cluster: LocalCluster, *loads: Load) -> None:
    """Local mode replaces no brokers by itself, so each is stopped, and comes back changed."""
    for broker_id in range(3):
        previous = cluster.broker(broker_id)["brokerEpoch"]
        cluster.kill(broker_id, signal.SIGTERM)
        wait_for(
            f"broker {broker_id} is back",
            lambda number=broker_id, epoch=previous: cluster.broker(number)["brokerEpoch"] > epoch,
        )
        cluster.wait_until_in_sync()
        for load in loads:
            load.goes_on()


def test_pool_is_closed_and_opened_again_broker_by_broker(cluster: LocalCluster) -> None:
    plain = Load(cluster, has_tls=False)
    set_security(cluster, {"tls": {"mode": "Optional"}})
    roll(cluster, plain)
    moved = Load(cluster, has_tls=True)
    plain.goes_on()  # at the same ports
    plain.stop()
    set_security(cluster, {"tls": {"mode": "Required"}})
    roll(cluster, moved)
    set_security(cluster, {"tls": {"mode": "Optional"}})
    roll(cluster, moved)
    moved.stop()
    set_security(cluster, {"tls": {"mode": "Disabled"}})
    again = Load(cluster, has_tls=False)
    roll(cluster, again)
    again.stop()
    written = [each for load in (plain, moved, again) for each in load.acknowledged]
    read = read_all(cluster, len(written), has_tls=False)
    assert set(written) <= set(read)
    assert len(read) == len(set(read))  # none twice
