"""kafka-python, unmodified, against real broker processes."""

import gzip
import time
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients.kafka_cluster import LIMIT_SECONDS, bootstrap, kafka_cluster
from tests.cluster.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("kafka-python")) as found:
        yield found


def consumer_of(cluster: LocalCluster) -> KafkaConsumer:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap(cluster), enable_auto_commit=False)
    consumer.assign(PARTITIONS)
    return consumer


def read_to_ends(consumer: KafkaConsumer) -> list[bytes]:
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(PARTITIONS)
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(consumer.position(place) < end for place, end in ends.items()):
        assert time.monotonic() < deadline, "the ends were not reached"
        for records in consumer.poll(timeout_ms=1000).values():
            found.extend(record.value for record in records)
    return found


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records_come_back(cluster: LocalCluster, codec: str | None, idempotent: bool) -> None:
    name = f"{codec}-{idempotent}-".encode()
    sent = [name + b"%d" % number + gzip.compress(b"x" * 200) for number in range(300)]
    producer = KafkaProducer(
        bootstrap_servers=bootstrap(cluster),
        acks="all",
        compression_type=codec,
        enable_idempotence=idempotent,
    )
    futures = [producer.send("orders", value) for value in sent]
    assert all(future.get(LIMIT_SECONDS).offset >= 0 for future in futures)
    producer.close()
    consumer = consumer_of(cluster)
    values = [value for value in read_to_ends(consumer) if value.startswith(name)]
    consumer.close()
    assert sorted(values) == sorted(sent)


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
    stamp_ms = int(time.time() * 1000) + 5_000_000
    producer = KafkaProducer(bootstrap_servers=bootstrap(cluster))
    sent = producer.send("orders", b"later", partition=0, timestamp_ms=stamp_ms)
    offset = sent.get(LIMIT_SECONDS).offset
    producer.close()
    consumer = consumer_of(cluster)
    found = consumer.offsets_for_times({PARTITIONS[0]: stamp_ms - 1})
    consumer.close()
    assert (found[PARTITIONS[0]].offset, found[PARTITIONS[0]].timestamp) == (offset, stamp_ms)
