"""kafka-python's admin client, unmodified: topics made, changed and deleted over Kafka."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidPartitionsError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import TopicPartition

from tests.support.kafka_cluster import LIMIT_SECONDS, bootstrap, kafka_cluster
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("admin-python")) as found:
        yield found


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap(cluster))
    yield client
    client.close()


def test_topics_come_grow_and_go(cluster: LocalCluster, admin: Any) -> None:
    options = {"num_partitions": 2, "replication_factor": 3, "configs": {"retention.ms": "60000"}}
    made = admin.create_topics({"Py_Topic": options}, timeout_ms=30_000)
    assert made["topics"][0]["num_partitions"] == 2
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({"Py_Topic": {}}, timeout_ms=30_000)
    admin.create_partitions({"Py_Topic": 3}, timeout_ms=30_000)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"Py_Topic": 3}, timeout_ms=30_000)
    (described,) = admin.describe_topics(["Py_Topic"])
    assert len(described["partitions"]) == 3
    admin.delete_topics(["Py_Topic"], timeout_ms=30_000)
    assert "Py_Topic" not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["Py_Topic"], timeout_ms=30_000)


def test_a_topic_is_deleted_by_its_id(admin: Any) -> None:
    made = admin.create_topics({"by-id": {}}, timeout_ms=30_000)
    admin.delete_topics([UUID(str(made["topics"][0]["topic_id"]))], timeout_ms=30_000)
    assert "by-id" not in admin.list_topics()


def test_what_a_manifest_keeps_is_not_deleted_and_the_sentence_says_why(admin: Any) -> None:
    with pytest.raises(PolicyViolationError, match="deletionPolicy"):
        admin.delete_topics(["orders"], timeout_ms=30_000)


def configs_of(admin: Any, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    return {name: entry["value"] for name, entry in found.items()}


def known_everywhere(cluster: LocalCluster, topic: str) -> bool:
    """Of each broker's own metadata: a client that knows one broker asks that one."""
    return all(
        topic in AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).topics
        for address in bootstrap(cluster)
    )


@pytest.mark.parametrize("incremental", [True, False], ids=["incremental", "all at once"])
def test_configs_are_altered(cluster: LocalCluster, admin: Any, incremental: bool) -> None:
    topic = f"configured-{incremental}".lower()
    admin.create_topics({topic: {"configs": {"segment.ms": "60000"}}}, timeout_ms=30_000)
    # The client asks one broker after another, and they hear of a change one after another.
    wait_for("every broker to know it", lambda: known_everywhere(cluster, topic))
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "12345"})
    admin.alter_configs([resource], incremental=incremental)
    wait_for("the change", lambda: configs_of(admin, topic)["retention.ms"] == "12345")
    assert configs_of(admin, topic)["segment.ms"] == "60000"
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"flush.ms": "1"})
    assert "spec.flush" in str(admin.alter_configs([resource], incremental=incremental))
    assert configs_of(admin, topic)["flush.ms"] == str(2**63 - 1)


def test_replicas_move_and_elections_are_answered(cluster: LocalCluster, admin: Any) -> None:
    admin.create_topics({"moving": {"assignments": {0: [0, 1]}}}, timeout_ms=30_000)
    place = TopicPartition("moving", 0)
    assert admin.alter_partition_reassignments({place: [2, 1]}, timeout_ms=30_000) == {place: None}
    wait_for("the move", lambda: admin.list_partition_reassignments() == {}, seconds=LIMIT_SECONDS)
    state = cluster.partition(0, "moving")
    assert state["replicas"] == [2, 1]
    found = admin.alter_partition_reassignments({place: None}, timeout_ms=30_000)
    assert found[place].__name__ == "NoReassignmentInProgressError"
    admin.elect_leaders(0, {"moving": [0]}, timeout_ms=30_000, raise_errors=False)
    assert cluster.partition(0, "moving")["leader"] == 2


def test_records_are_deleted_and_log_directories_told(cluster: LocalCluster, admin: Any) -> None:
    admin.create_topics({"filled": {"replication_factor": 3}}, timeout_ms=30_000)
    producer = KafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all")
    for _ in range(6):
        producer.send("filled", b"x" * 1000, partition=0).get(LIMIT_SECONDS)
    producer.close()
    place = TopicPartition("filled", 0)
    assert admin.delete_records({place: 4}, timeout_ms=30_000)[place]["low_watermark"] == 4
    sizes = [
        partition["partition_size"]
        for broker in admin.describe_log_dirs(["filled"])
        for directory in broker["log_dirs"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
    ]
    assert len(sizes) == 3 and min(sizes) > 6000
