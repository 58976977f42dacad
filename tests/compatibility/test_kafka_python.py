"""kafka-python: what is its own, beside what every client does."""

import time

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.kafka_cluster import LIMIT_SECONDS, bootstrap
from tests.support.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


def consumer_of(cluster: LocalCluster) -> KafkaConsumer:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap(cluster), enable_auto_commit=False)
    consumer.assign(PARTITIONS)
    return consumer


def test_a_consumer_at_the_end_gets_what_comes_then(cluster: LocalCluster) -> None:
    consumer = consumer_of(cluster)
    consumer.seek_to_end()
    ends = {place: consumer.position(place) for place in PARTITIONS}
    assert consumer.poll(timeout_ms=200) == {}
    producer = KafkaProducer(bootstrap_servers=bootstrap(cluster))
    producer.send("orders", b"late", partition=2).get(LIMIT_SECONDS)
    producer.close()
    found = consumer.poll(timeout_ms=int(LIMIT_SECONDS * 1000))
    consumer.close()
    assert {place: [record.value for record in got] for place, got in found.items()} == {
        PARTITIONS[2]: [b"late"]
    }
    assert found[PARTITIONS[2]][0].offset == ends[PARTITIONS[2]]


def test_offsets_by_time(cluster: LocalCluster) -> None:
    stamp_ms = int(time.time() * 1000) + 2_000_000
    producer = KafkaProducer(bootstrap_servers=bootstrap(cluster))
    sent = producer.send("orders", b"later", partition=0, timestamp_ms=stamp_ms)
    offset = sent.get(LIMIT_SECONDS).offset
    producer.close()
    consumer = consumer_of(cluster)
    found = consumer.offsets_for_times({PARTITIONS[0]: stamp_ms - 1})
    consumer.close()
    assert (found[PARTITIONS[0]].offset, found[PARTITIONS[0]].timestamp) == (offset, stamp_ms)
