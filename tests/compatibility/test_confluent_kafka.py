"""librdkafka by confluent-kafka: what is its own, beside what every client does."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.kafka_cluster import (
    LIMIT_SECONDS,
    Sending,
    bootstrap,
    librdkafka_settings,
    read_all,
)
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


def test_it_sees_brokers_topics_and_leaders(cluster: LocalCluster) -> None:
    admin = AdminClient(librdkafka_settings(cluster))
    metadata = admin.list_topics(timeout=LIMIT_SECONDS)
    addresses = {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
    assert addresses == set(bootstrap(cluster))
    assert sorted(metadata.topics["orders"].partitions) == [0, 1, 2]

    def are_reported_in_sync() -> bool:  # brokers hear of it after the controller's status says it
        partitions = admin.list_topics("orders", timeout=LIMIT_SECONDS).topics["orders"].partitions
        return all(sorted(partition.isrs) == [0, 1, 2] for partition in partitions.values())

    wait_for("all replicas in sync", are_reported_in_sync)
    described = admin.describe_cluster().result(LIMIT_SECONDS)
    assert {node.id for node in described.nodes} == {0, 1, 2}


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements(cluster: LocalCluster, acks: int) -> None:
    sent = [b"acks%d-%d" % (acks, number) for number in range(100)]
    producer = Producer(librdkafka_settings(cluster, acks=acks))
    for value in sent:
        producer.produce("orders", value=value)
    assert producer.flush(LIMIT_SECONDS) == 0
    wait_for(
        "all of them",
        lambda: {message.value() for message in read_all(cluster)} >= set(sent),
    )


def test_seek_by_time_and_the_ends_of_the_log(cluster: LocalCluster) -> None:
    sending = Sending(cluster)
    first_ms = int(time.time() * 1000) + 1_000_000
    for number in range(5):
        where = {"partition": 1, "timestamp": first_ms + number * 100}
        sending.send([b"stamped-%d" % number], **where)
        sending.flush()
    assert sending.failed == []
    settings = {"group.id": "seeker", "enable.auto.commit": False}
    consumer = Consumer(librdkafka_settings(cluster, **settings))
    requested = [
        TopicPartition("orders", 1, first_ms + 150),
        TopicPartition("orders", 1, first_ms + 10_000_000),
    ]
    places = [consumer.offsets_for_times([place], timeout=LIMIT_SECONDS)[0] for place in requested]
    low, high = consumer.get_watermark_offsets(TopicPartition("orders", 1), timeout=LIMIT_SECONDS)
    assert (low, places[0].offset, places[1].offset) == (0, high - 3, -1)
    admin = AdminClient(librdkafka_settings(cluster))
    requested_max = {TopicPartition("orders", 1): OffsetSpec.max_timestamp()}
    (newest,) = admin.list_offsets(requested_max, request_timeout=LIMIT_SECONDS).values()
    assert newest.result(LIMIT_SECONDS).offset == high - 1
    consumer.assign([TopicPartition("orders", 1, places[0].offset)])
    message = consumer.poll(LIMIT_SECONDS)
    consumer.close()
    assert message is not None and message.value() == b"stamped-2"


def test_an_unknown_topic_and_a_record_too_large_are_refused(cluster: LocalCluster) -> None:
    sending = Sending(cluster, **{"message.max.bytes": 3_000_000})
    sending.send([b"x" * 2_000_000])
    sending.flush()
    assert [error.code() for error in sending.failed] == [KafkaError.MSG_SIZE_TOO_LARGE]
    lost = Sending(cluster, **{"message.timeout.ms": 3000})
    lost.send([b"x"], topic="nobody")
    lost.flush()
    assert len(lost.failed) == 1 and lost.acknowledged == []


def test_a_transactional_id_is_refused_for_good(cluster: LocalCluster) -> None:
    producer = Producer(librdkafka_settings(cluster, **{"transactional.id": "t"}))
    with pytest.raises(KafkaException):
        producer.init_transactions(5)
