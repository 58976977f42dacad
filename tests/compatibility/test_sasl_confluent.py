"""librdkafka against a cluster whose clients authenticate: OAUTHBEARER, PLAIN and SCRAM."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.support.kafka_cluster import LIMIT_SECONDS, librdkafka_settings
from tests.support.local_cluster import LocalCluster, running

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("closed"), options=("--auth",)) as cluster:
        cluster.wait_until_in_sync()
        yield cluster


def settings(cluster: LocalCluster, user: str = "admin", **more: Any) -> dict[str, Any]:
    token = (cluster.data_dir / "tokens" / user).read_text()

    def oauth(_: str) -> tuple[str, float]:
        return token, time.time() + 3600

    return librdkafka_settings(
        cluster,
        **{
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": oauth,
            **more,
        },
    )


def test_oauthbearer_produces_and_consumes(closed: LocalCluster) -> None:
    failed: list[KafkaError] = []
    producer = Producer(settings(closed, acks="all"))
    for number in range(100):
        producer.produce(
            "orders",
            b"%d" % number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(LIMIT_SECONDS) == 0
    assert failed == []
    consumer = Consumer(settings(closed, **{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["orders"])
    found: set[bytes] = set()
    ends = time.monotonic() + LIMIT_SECONDS
    while len(found) < 100 and time.monotonic() < ends:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.add(message.value())
    consumer.close()
    assert len(found) == 100
