"""Idempotent producers that were quiet for longer than producer.id.expiration.ms.

The leader refuses their next batch once (docs/decisions/0011), with the log's start: by that they
ask for a new epoch and send the batch again, and nobody has to know.
"""

import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import UnknownProducerIdError

from tests.compatibility.client_programs import ClientPrograms
from tests.compatibility.programs.java_program import java
from tests.support.kafka_cluster import LIMIT_SECONDS, bootstrap, librdkafka_settings
from tests.support.local_cluster import LocalCluster, get_json
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster
DELIVERY_TIMEOUT_MS = 10_000


class QuietTopic:
    """One partition that forgets a producer after a second."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        wanted = NewTopic(name, 1, 3, config={"producer.id.expiration.ms": "1000"})
        admin = AdminClient(librdkafka_settings(cluster))
        admin.create_topics([wanted])[name].result(LIMIT_SECONDS)
        cluster.wait_until_in_sync(name)
        self._leader_url = cluster.broker_url(cluster.partition(0, name)["leader"])

    def wait_until_forgotten(self, *, record_count: int) -> None:
        wait_for(f"{record_count} records", lambda: len(self.values()) == record_count)
        known = re.compile(rf'^tidemark_replica_producer_ids{{topic="{self.name}".*}} (\d+)$', re.M)

        def is_removed() -> bool:
            with urllib.request.urlopen(self._leader_url + "/metrics") as response:
                return known.findall(response.read().decode()) == ["0"]

        wait_for("the producer forgotten", is_removed)

    def values(self) -> list[Any]:
        records = f"{self._leader_url}/topics/{self.name}/partitions/0/records?offset=0"
        return [record["value"] for record in get_json(records)]


def test_java_goes_on_with_a_new_epoch(
    programs: ClientPrograms,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = QuietTopic(cluster, "quiet-java")
    monkeypatch.setenv("TIDEMARK_KAFKA_JARS", programs.kafka_jars)
    settings = tmp_path / "producer.properties"
    settings.write_text(
        "enable.idempotence=true\nacks=all\nretries=2147483647\nlinger.ms=0\n"
        f"request.timeout.ms=5000\ndelivery.timeout.ms={DELIVERY_TIMEOUT_MS}\n"
    )
    where = ["--bootstrap-server", ",".join(bootstrap(cluster)), "--topic", topic.name, "--sync"]
    command = java("ConsoleProducer", *where, "--command-config", str(settings))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write("first\n")
            process.stdin.flush()
            topic.wait_until_forgotten(record_count=1)
            said, _ = process.communicate("second\nthird\n", LIMIT_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert len(topic.values()) == 3, said


def test_librdkafka_goes_on_with_a_new_epoch(cluster: LocalCluster) -> None:
    topic = QuietTopic(cluster, "quiet-librdkafka")
    timeout = {"delivery.timeout.ms": DELIVERY_TIMEOUT_MS}
    producer = Producer(
        librdkafka_settings(cluster, **{"enable.idempotence": True, "linger.ms": 0, **timeout})
    )
    failed: list[object] = []

    def send(value: bytes) -> None:
        producer.produce(
            topic.name,
            value,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert producer.flush(LIMIT_SECONDS) == 0

    send(b"first")
    topic.wait_until_forgotten(record_count=1)
    send(b"second")
    send(b"third")
    assert failed == []
    assert len(topic.values()) == 3


def test_kafka_python_tells_its_caller_and_goes_on(cluster: LocalCluster) -> None:
    """It bumps its epoch too, but fails the batch: the caller sends it again."""
    topic = QuietTopic(cluster, "quiet-kafka-python")
    producer = KafkaProducer(
        bootstrap_servers=bootstrap(cluster),
        enable_idempotence=True,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        request_timeout_ms=5000,
    )
    producer.send(topic.name, b"first").get(LIMIT_SECONDS)
    topic.wait_until_forgotten(record_count=1)
    with pytest.raises(UnknownProducerIdError):
        producer.send(topic.name, b"second").get(LIMIT_SECONDS)
    producer.send(topic.name, b"second").get(LIMIT_SECONDS)
    producer.send(topic.name, b"third").get(LIMIT_SECONDS)
    producer.close()
    assert len(topic.values()) == 3
