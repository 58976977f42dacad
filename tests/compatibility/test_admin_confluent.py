"""librdkafka's admin client, unmodified: topics made, changed and deleted over Kafka."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.kafka_cluster import (
    LIMIT_SECONDS,
    bootstrap,
    kafka_cluster,
    librdkafka_settings,
)
from tests.support.local_cluster import LocalCluster, get_json
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("admin")) as found:
        yield found


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient(librdkafka_settings(cluster))


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(LIMIT_SECONDS) for future in futures.values()]


def refused(futures: dict[Any, Any]) -> list[KafkaError]:
    errors = []
    for future in futures.values():
        with pytest.raises(KafkaException) as raised:
            future.result(LIMIT_SECONDS)
        errors.append(raised.value.args[0])
    return errors


def make(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    done(admin.create_topics([NewTopic(name, partitions, 3, config=settings)]))


def produced(cluster: LocalCluster, topic: str, count: int = 1, **where: Any) -> list[Message]:
    """Acknowledged records, or the errors in their place."""
    found: list[Message] = []
    producer = Producer(librdkafka_settings(cluster, acks="all"))
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, on_delivery=lambda error, message: found.append(message), **where
        )
    assert producer.flush(LIMIT_SECONDS) == 0
    return found


def partition_counts(cluster: LocalCluster, topic: str) -> set[int]:
    """As each broker tells it; a change gets to all of them at once, not to be waited for."""
    counts = set()
    for address in bootstrap(cluster):
        metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=LIMIT_SECONDS)
        counts.add(len(metadata.topics[topic].partitions))
    return counts


def config_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (found,) = done(admin.describe_configs([ConfigResource(kind, name)]))
    entries: dict[str, ConfigEntry] = found
    return entries


def test_a_created_topic_serves_at_once_and_is_an_object(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    make(admin, "Made_Here", 3, retention_ms="60000")
    (acknowledged,) = produced(cluster, "Made_Here", partition=2)
    assert acknowledged.error() is None and acknowledged.offset() == 0
    objects = {
        item["spec"].get("topicName"): item
        for item in get_json(f"{cluster.controller_url}/v1/topics")["items"]
    }
    item = objects["Made_Here"]
    assert item["metadata"]["name"].startswith("made-here-")
    assert item["spec"]["partitions"] == 3 and item["spec"]["deletionPolicy"] == "Delete"
    assert config_of(admin, ResourceType.TOPIC, "Made_Here")["retention.ms"].value == "60000"


def test_validating_only_makes_nothing(cluster: LocalCluster, admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("maybe", 1, 3)], validate_only=True))
    assert "maybe" not in admin.list_topics(timeout=LIMIT_SECONDS).topics


@pytest.mark.parametrize(
    "topic, code",
    [
        (NewTopic("orders", 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic("a b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("many", 20_000, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("wide", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("odd", 1, 1, config={"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG),
        (NewTopic("old", 1, 1, config={"preallocate": "true"}), KafkaError.INVALID_CONFIG),
        (
            NewTopic("away", 1, replica_assignment=[[0, 7]]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_what_cannot_be_made_is_refused_with_kafkas_code(
    admin: AdminClient, topic: NewTopic, code: int
) -> None:
    (error,) = refused(admin.create_topics([topic]))
    assert error.code() == code and error.str()


def test_assigned_replicas_are_where_they_were_asked_for(admin: AdminClient) -> None:
    requested = [[2, 0], [1, 2]]
    done(admin.create_topics([NewTopic("placed", 2, replica_assignment=requested)]))
    partitions = admin.list_topics("placed", timeout=LIMIT_SECONDS).topics["placed"].partitions
    assert [partitions[number].replicas for number in (0, 1)] == requested
    assert [partitions[number].leader for number in (0, 1)] == [2, 1]


def test_a_deleted_topic_is_gone_and_comes_back_empty(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    make(admin, "short-lived")
    produced(cluster, "short-lived", 5)
    done(admin.delete_topics(["short-lived"]))
    assert "short-lived" not in admin.list_topics(timeout=LIMIT_SECONDS).topics
    make(admin, "short-lived")
    (acknowledged,) = produced(cluster, "short-lived")
    assert acknowledged.offset() == 0
    (error,) = refused(admin.delete_topics(["never-was"]))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_data_that_a_manifest_keeps_is_not_deleted_over_kafka(admin: AdminClient) -> None:
    (error,) = refused(admin.delete_topics(["orders"]))
    assert error.code() == KafkaError.POLICY_VIOLATION


def test_partitions_grow_and_never_shrink(cluster: LocalCluster, admin: AdminClient) -> None:
    make(admin, "growing", 2)
    done(admin.create_partitions([NewPartitions("growing", 4)]))
    wait_for("four partitions on every broker", lambda: partition_counts(cluster, "growing") == {4})
    (acknowledged,) = produced(cluster, "growing", partition=3)
    assert acknowledged.error() is None
    for count in (4, 3):
        (error,) = refused(admin.create_partitions([NewPartitions("growing", count)]))
        assert error.code() == KafkaError.INVALID_PARTITIONS


def test_configs_are_described_with_their_sources(admin: AdminClient) -> None:
    make(admin, "described", cleanup_policy="compact")
    found = config_of(admin, ResourceType.TOPIC, "described")
    policy, retention = found["cleanup.policy"], found["retention.ms"]
    assert (policy.value, policy.source) == ("compact", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert (retention.value, retention.source) == (
        "604800000",
        ConfigSource.DEFAULT_CONFIG.value,
    )
    broker = config_of(admin, ResourceType.BROKER, "1")
    assert (broker["broker.id"].value, broker["broker.id"].is_read_only) == ("1", True)
    assert broker["auto.create.topics.enable"].value == "false"


def test_configs_are_altered_one_by_one_and_take_effect(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    make(admin, "altered", max_message_bytes="200000")

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> dict[Any, Any]:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, "altered", incremental_configs=[entry])
        futures: dict[Any, Any] = admin.incremental_alter_configs([resource])
        return futures

    done(alter("max.message.bytes", "2000", AlterConfigOpType.SET))
    producer = Producer(librdkafka_settings(cluster))
    errors: list[KafkaError] = []
    producer.produce("altered", b"x" * 3000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(LIMIT_SECONDS) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    done(alter("max.message.bytes", None, AlterConfigOpType.DELETE))
    assert config_of(admin, ResourceType.TOPIC, "altered")["max.message.bytes"].value == "1048588"
    done(alter("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    assert (
        config_of(admin, ResourceType.TOPIC, "altered")["cleanup.policy"].value == "delete,compact"
    )
    (error,) = refused(alter("flush.ms", "1", AlterConfigOpType.SET))
    assert error.code() == KafkaError.INVALID_CONFIG and "spec.flush" in error.str()


def test_a_brokers_settings_are_not_altered_over_kafka(admin: AdminClient) -> None:
    entry = ConfigEntry("log.retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
    (error,) = refused(admin.incremental_alter_configs([resource]))
    assert error.code() == KafkaError.INVALID_CONFIG and "spec.config of each Topic" in error.str()


def test_deleted_records_are_not_served_any_more(cluster: LocalCluster, admin: AdminClient) -> None:
    make(admin, "trimmed")
    produced(cluster, "trimmed", 10)
    (deleted,) = done(admin.delete_records([TopicPartition("trimmed", 0, 4)]))
    assert deleted.low_watermark == 4
    consumer = Consumer(librdkafka_settings(cluster, **{"group.id": "trim"}))
    low, high = consumer.get_watermark_offsets(TopicPartition("trimmed", 0), timeout=LIMIT_SECONDS)
    consumer.close()
    assert (low, high) == (4, 10)
    (error,) = refused(admin.delete_records([TopicPartition("trimmed", 0, 11)]))
    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_preferred_leader_is_elected(cluster: LocalCluster, admin: AdminClient) -> None:
    place = TopicPartition("orders", 0)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [place]).result(LIMIT_SECONDS)
    error = outcome[place]
    assert error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED
    unknown = TopicPartition("nobody", 0)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [unknown]).result(LIMIT_SECONDS)
    assert outcome[unknown].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_offsets_by_place_and_by_the_newest_timestamp(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    make(admin, "timed")
    now_ms = int(time.time() * 1000)
    for ahead_ms in (0, 5000, 1000):
        produced(cluster, "timed", timestamp=now_ms + ahead_ms)

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        place = TopicPartition("timed", 0)
        (found,) = done(admin.list_offsets({place: spec}))
        return found.offset, found.timestamp

    assert offset(OffsetSpec.max_timestamp()) == (1, now_ms + 5000)
    assert offset(OffsetSpec.for_timestamp(now_ms + 1))[0] == 1
    assert offset(OffsetSpec.earliest())[0] == 0
    assert offset(OffsetSpec.latest())[0] == 3


def test_topics_are_described(admin: AdminClient, cluster: LocalCluster) -> None:
    (described,) = done(admin.describe_topics(TopicCollection(["orders"])))
    assert described.name == "orders" and len(described.partitions) == 3
    assert {f"127.0.0.1:{node.port}" for node in described.partitions[0].replicas} == set(
        bootstrap(cluster)
    )


def test_records_dated_too_far_from_now_are_refused(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    make(admin, "dated", message_timestamp_before_max_ms="60000")
    now_ms = int(time.time() * 1000)
    for timestamp_ms in (now_ms + 7_200_000, now_ms - 120_000):
        (found,) = produced(cluster, "dated", timestamp=timestamp_ms)
        assert found.error().code() == KafkaError.INVALID_TIMESTAMP


def test_the_append_time_is_told_to_the_producer(cluster: LocalCluster, admin: AdminClient) -> None:
    make(admin, "stamped", message_timestamp_type="LogAppendTime")
    began_ms = int(time.time() * 1000) - 1000
    (found,) = produced(cluster, "stamped", timestamp=1_000)
    kind, stamp_ms = found.timestamp()
    assert kind == 2 and stamp_ms >= began_ms  # TIMESTAMP_LOG_APPEND_TIME
