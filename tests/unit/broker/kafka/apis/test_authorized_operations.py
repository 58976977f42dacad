"""What clients are told that they may do (KIP-430): all that Kafka says without an authorizer.

The numbers are of Kafka 4.4's AclEntry.supportedOperations for CLUSTER, TOPIC and GROUP.
"""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.authorized_operations import NOT_REQUESTED
from tidemark_broker.kafka_wire.messages.group_admin import DESCRIBE_GROUPS_API
from tidemark_broker.kafka_wire.messages.metadata import (
    DESCRIBE_CLUSTER_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    METADATA_API,
)
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Values

from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at

CLUSTER, TOPICS, GROUP = 8096, 3576, 3400
NO_ID = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("is_requested", [False, True])
@pytest.mark.parametrize("version", [8, 10, 11, 13])
def test_metadata_tells_operations_where_asked(
    tmp_path: Path, version: int, is_requested: bool
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        topics: list[Values] = [{"topic": TOPIC, "topic_id": ZERO_TOPIC_ID}]
        topics += [{"topic": "nobody", "topic_id": ZERO_TOPIC_ID}]
        expected = [TOPICS, TOPICS]
        if version >= 12:
            topics += [{"topic": None, "topic_id": NO_ID}]
            expected += [NOT_REQUESTED]  # its name is not known
        requested = {
            "topics": topics,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": is_requested,
            "include_topic_authorized_operations": is_requested,
        }
        found = await requested_at(kafka_client.port, METADATA_API, version, requested)
        reported = [topic["authorized_operations"] for topic in found["topics"]]
        assert reported == (expected if is_requested else [NOT_REQUESTED] * len(expected))
        is_reported = is_requested and version <= 10
        cluster = found.get("cluster_authorized_operations", NOT_REQUESTED)
        assert cluster == (CLUSTER if is_reported else NOT_REQUESTED)

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize(("is_requested", "reported"), [(False, NOT_REQUESTED), (True, CLUSTER)])
def test_describe_cluster_tells_operations_where_asked(
    tmp_path: Path, is_requested: bool, reported: int
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        requested = {"include_cluster_authorized_operations": is_requested}
        found = await requested_at(kafka_client.port, DESCRIBE_CLUSTER_API, 0, requested)
        assert found["cluster_authorized_operations"] == reported

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "is_requested", "reported"),
    [(3, False, NOT_REQUESTED), (3, True, GROUP), (5, True, GROUP), (6, True, NOT_REQUESTED)],
)
def test_describe_groups_tells_operations_of_groups_without_an_error(
    tmp_path: Path, version: int, is_requested: bool, reported: int
) -> None:
    """A group that is not there is an error from v6 on."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True)
        requested = {"groups": ["nobody"], "include_authorized_operations": is_requested}
        found = await requested_at(kafka_client.port, DESCRIBE_GROUPS_API, version, requested)
        assert [group["authorized_operations"] for group in found["groups"]] == [reported]

    with_kafka_client(tmp_path, scenario)


def test_describe_topic_partitions_tells_operations_unasked(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        topics = [{"topic": TOPIC}, {"topic": "nobody"}]
        requested = {"topics": topics, "partition_limit": 10, "cursor": None}
        found = await requested_at(kafka_client.port, DESCRIBE_TOPIC_PARTITIONS_API, 0, requested)
        assert [topic["authorized_operations"] for topic in found["topics"]] == [TOPICS] * 2

    with_kafka_client(tmp_path, scenario)
