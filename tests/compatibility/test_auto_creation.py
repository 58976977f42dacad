"""In a pool that wants it the topics that clients ask for are made as Topic objects."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from tests.support.kafka_cluster import LIMIT_SECONDS, bootstrap, librdkafka_settings
from tests.support.local_cluster import ORDERS, running

pytestmark = pytest.mark.cluster

POOL = """
---
apiVersion: tidemark.dev/v1alpha1
kind: BrokerPool
metadata: {name: default}
spec: {replicas: 3, storage: {size: 1Gi}, autoCreateTopics: true}
"""


def test_what_clients_write_to_is_made_and_what_they_only_look_for_is_as_they_wish(
    tmp_path: Path,
) -> None:
    with running(tmp_path, manifest=ORDERS + POOL) as cluster:
        cluster.wait_until_in_sync()
        kafka_python = KafkaProducer(bootstrap_servers=bootstrap(cluster))
        written = kafka_python.send("Made_By.python", b"a").get(LIMIT_SECONDS)
        assert (written.partition, written.offset) == (0, 0)
        kafka_python.close()
        librdkafka = Producer(librdkafka_settings(cluster))
        said = []
        librdkafka.produce(
            "made-by-librdkafka", b"b", on_delivery=lambda error, _: said.append(error)
        )
        assert librdkafka.flush(LIMIT_SECONDS) == 0
        assert said == [None]
        shy = Consumer(librdkafka_settings(cluster, **{"group.id": "shy"}))  # by its default
        shy.subscribe(["nobody-writes"])
        shy.poll(1)
        shy.close()
        names = {topic["topic"] for topic in cluster.pool()["topics"]}
    assert {"Made_By.python", "made-by-librdkafka"} <= names
    assert "nobody-writes" not in names
