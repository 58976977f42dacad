"""A `tidemark dev` for tests with real Kafka clients, and what they do to it."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.local_cluster import LocalCluster, running

PARTITIONS = 3
LIMIT_SECONDS = 30.0
NOT_YET = {
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


TOPIC = """
---
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {{name: {name}}}
spec: {{partitions: {partitions}, replicationFactor: 3, config: {{min.insync.replicas: "2"}}}}
"""


@contextlib.contextmanager
def kafka_cluster(data_dir: Path, **topics: int) -> Iterator[LocalCluster]:
    """With the topic `orders` of three partitions, and others of so many; all in sync."""
    wanted = {"orders": PARTITIONS, **topics}
    manifest = "".join(TOPIC.format(name=name, partitions=n) for name, n in wanted.items())
    with running(data_dir, manifest=manifest) as cluster:
        for name in wanted:
            cluster.wait_until_in_sync(name, seconds=2 * LIMIT_SECONDS)
        yield cluster


def bootstrap(cluster: LocalCluster) -> list[str]:
    return [f"127.0.0.1:{cluster.first_port + 5 + number}" for number in range(cluster.brokers)]


def librdkafka_settings(cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": ",".join(bootstrap(cluster)), "log_level": 2, **more}


class Sending:
    """A librdkafka producer that keeps what was acknowledged, and what failed."""

    def __init__(self, cluster: LocalCluster, **settings: Any) -> None:
        self._producer = Producer(librdkafka_settings(cluster, acks="all", **settings))
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []

    def send(self, values: Iterable[bytes], topic: str = "orders", **where: Any) -> None:
        for value in values:
            self._producer.produce(topic, value=value, on_delivery=self._on_delivery, **where)
            self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(LIMIT_SECONDS)
        assert left == 0, f"{left} records are neither acknowledged nor failed"

    def __len__(self) -> int:
        """Of records that are neither acknowledged nor failed yet."""
        return len(self._producer)

    def abandon(self) -> None:
        """What is still queued fails now: else it goes to whoever listens on these ports next."""
        self._producer.purge()
        self.flush()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append(error)


def read_all(cluster: LocalCluster, topic: str = "orders", **settings: Any) -> list[Message]:
    """From the beginning of every partition to the ends of now."""
    settings = {"group.id": "reader", "enable.auto.commit": False, **settings}
    consumer = Consumer(librdkafka_settings(cluster, **{"enable.partition.eof": True, **settings}))
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Message] = []
    at_end: set[int] = set()
    try:
        while len(at_end) < PARTITIONS:
            message = consumer.poll(LIMIT_SECONDS)
            assert message is not None, f"the ends of {topic} were not reached"
            error = message.error()
            if error is None:
                found.append(message)
                at_end.discard(message.partition())
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            at_end.add(message.partition())
    finally:
        consumer.close()
    return found


def log_ends(cluster: LocalCluster, topic: str) -> Callable[[], list[int]]:
    """Asks for the high watermark of each partition; none while a leader does not know its topic
    yet, as brokers hear of a new one after the controller's status says it."""
    consumer = Consumer(librdkafka_settings(cluster, **{"group.id": "watcher"}))
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def ask() -> list[int]:
        try:
            return [consumer.get_watermark_offsets(place, LIMIT_SECONDS)[1] for place in places]
        except KafkaException as error:
            assert error.args[0].code() in NOT_YET, error
            return []

    return ask
