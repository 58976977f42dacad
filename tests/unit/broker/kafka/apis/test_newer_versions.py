"""What the clients and tools of Kafka 4.4 may ask besides, over a real socket."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import kafka.protocol.producer as producer
import pytest
from tidemark_broker.kafka.apis.logs import LogAdmin
from tidemark_broker.kafka_wire.messages.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS_API
from tidemark_broker.kafka_wire.messages.describe_producers import DESCRIBE_PRODUCERS_API
from tidemark_broker.kafka_wire.messages.describe_quorum import DESCRIBE_QUORUM_API
from tidemark_broker.kafka_wire.messages.frames import API_NAMES
from tidemark_broker.kafka_wire.messages.group_admin import DELETE_GROUPS_API
from tidemark_broker.kafka_wire.messages.list_config_resources import LIST_CONFIG_RESOURCES_API
from tidemark_broker.kafka_wire.messages.primitives import INT32
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.metadata.controller_channel import Address
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC, TOPIC_ID
from tests.support.kafka_test_client import (
    Client,
    KafkaTestClient,
    framed,
    produce,
    with_kafka_client,
)
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at

NO_ID = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize(("version", "words"), [(2, None), (3, "the group does not exist")])
def test_why_a_group_is_not_deleted_is_told_from_version_3_on(
    tmp_path: Path, version: int, words: str | None
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True)
        found = await requested_at(
            kafka_client.port, DELETE_GROUPS_API, version, {"groups": ["nobody"]}
        )
        (group,) = found["groups"]
        assert (group["group_id"], group["error"]) == ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)
        assert group["message"] == words

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_to_no_other_directory_of_its_broker(tmp_path: Path, version: int) -> None:
    """A broker has one: a replica is there already, or it is asked for where nothing is."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.services.log_directory = "/data"
        admin = LogAdmin(kafka_client.services)  # it was told no directory when the door was made
        handler = kafka_client.services.answering.sync_handler(
            ALTER_REPLICA_LOG_DIRS_API, admin.alter_log_dirs
        )
        kafka_client.services.add(handler)
        kafka_client.push()
        topics = [{"topic": TOPIC, "partitions": [0, 7]}]
        directories = [{"path": path, "topics": topics} for path in ("/data", "/elsewhere")]
        requested = {"directories": directories}
        found = await requested_at(
            kafka_client.port, ALTER_REPLICA_LOG_DIRS_API, version, requested
        )
        (topic,) = found["topics"]
        reported = [(each["partition"], each["error"]) for each in topic["partitions"]]
        absent = (7, ErrorCode.REPLICA_NOT_AVAILABLE)
        missing = [(number, ErrorCode.LOG_DIR_NOT_FOUND) for number in (0, 7)]
        assert reported == [(0, ErrorCode.NONE), absent, *missing]

    with_kafka_client(tmp_path, scenario)


def test_producers_of_a_replica_are_told_with_their_last_batch(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        client = await Client.connect(kafka_client)
        for producer_id, epoch, sequence in ((7, 2, 0), (7, 2, 3), (9, 0, 0)):
            records = [NewRecord(None, b"v")] * 3
            batch = build_batch(
                records,
                timestamp_ms=1000 + sequence,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            await client.ask(produce(batch))
        topics = [{"topic": TOPIC, "partitions": [0, 9]}, {"topic": "no name", "partitions": [0]}]
        found = await requested_at(kafka_client.port, DESCRIBE_PRODUCERS_API, 0, {"topics": topics})
        (known, absent), (invalid,) = (topic["partitions"] for topic in found["topics"])
        fields = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp_ms")
        reported = [tuple(each[name] for name in fields) for each in known["producers"]]
        assert reported == [(7, 2, 5, 1003), (9, 0, 2, 1000)]
        assert absent["error"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert invalid["error"] == ErrorCode.INVALID_TOPIC_EXCEPTION

    with_kafka_client(tmp_path, scenario)


def test_of_a_partition_without_a_replica_here_no_producers_are_told(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(partition_count=2)
        topics = [{"topic": TOPIC, "partitions": [1]}]
        found = await requested_at(kafka_client.port, DESCRIBE_PRODUCERS_API, 0, {"topics": topics})
        (partition,) = found["topics"][0]["partitions"]
        assert partition["error"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition["message"] == "broker 1 has no replica of it"

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_operator_that_leads_is_told_as_a_quorum_of_one(tmp_path: Path, version: int) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        kafka_client.services.controller_address = lambda: Address("operator.shop.svc", 9443)
        partitions = [{"partition": 0}, {"partition": 1}]
        topics = [{"topic": name, "partitions": partitions} for name in ("__cluster_metadata", "x")]
        found = await requested_at(
            kafka_client.port, DESCRIBE_QUORUM_API, version, {"topics": topics}
        )
        (quorum, second), others = (topic["partitions"] for topic in found["topics"])
        image = kafka_client.partitions.metadata.image_version
        assert (quorum["leader"], quorum["leader_epoch"]) == (3000, 1)
        reported = [
            (each["replica_id"], each["log_end_offset"])
            for each in (*quorum["voters"], *quorum["observers"])
        ]
        assert (quorum["high_watermark"], reported) == (image, [(3000, image), (1, image)])
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [each["error"] for each in (second, *others)] == [absent] * 3
        listener = {"name": "CONTROLLER", "host": "operator.shop.svc", "port": 9443}
        nodes = ({"node_id": 3000, "listeners": (listener,)},)
        assert tuple(found["nodes"]) == (nodes if version >= 2 else ())

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "kinds", "reported"),
    [
        (0, (), []),
        (1, (), [("1", 4), (TOPIC, 2)]),
        (1, (2,), [(TOPIC, 2)]),
        (1, (4, 8, 16, 32), [("1", 4)]),
        (1, (2, 3), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_has_configs_is_listed_by_its_kind(
    tmp_path: Path, version: int, kinds: tuple[int, ...], reported: Any
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(retained=("gone",))
        requested = {"resource_types": kinds}
        found = await requested_at(kafka_client.port, LIST_CONFIG_RESOURCES_API, version, requested)
        listed = [(each["resource"], each["resource_type"]) for each in found["resources"]]
        assert (found["error"] or listed) == reported

    with_kafka_client(tmp_path, scenario)


def test_records_are_produced_by_the_id_of_their_topic(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        batch = build_batch([NewRecord(None, b"v")], timestamp_ms=1)
        topics = [(topic_id, [(0, batch), (7, batch)]) for topic_id in (TOPIC_ID, NO_ID)]
        response = await produced_by_id(kafka_client, topics)
        reported = {
            str(topic.topic_id): [
                (each.index, each.error_code, each.base_offset)
                for each in topic.partition_responses
            ]
            for topic in response.responses
        }
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = [(number, ErrorCode.UNKNOWN_TOPIC_ID, -1) for number in (0, 7)]
        assert reported == {TOPIC_ID: [(0, ErrorCode.NONE, 0), (7, absent, -1)], NO_ID: unknown}

    with_kafka_client(tmp_path, scenario)


def test_answers_of_several_unknown_topic_ids_are_told_apart(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        others = [NO_ID, NO_ID[:-1] + "2"]
        response = await produced_by_id(kafka_client, [(each, [(0, b"")]) for each in others])
        assert [str(topic.topic_id) for topic in response.responses] == others

    with_kafka_client(tmp_path, scenario)


ROW = re.compile(r"\| ([A-Z][A-Za-z, ]+) \| ([0-9, -]+) \|")


def test_the_table_of_the_documentation_says_what_is_offered(tmp_path: Path) -> None:
    text = (Path(__file__).parents[5] / "docs" / "user" / "kafka.md").read_text()
    documented: dict[str, str] = {}
    for row in filter(None, map(ROW.match, text.splitlines())):
        names, versions = row[1].split(", "), row[2].split(", ")
        documented |= zip(names, versions * (len(names) // len(versions)), strict=True)

    async def scenario(kafka_client: KafkaTestClient) -> None:
        offered = {
            API_NAMES[key]: handler.supported
            for key, handler in kafka_client.services.handlers.items()
        }
        reported = {
            name: f"{api.min_version}-{api.max_version}" if api.max_version else "0"
            for name, api in offered.items()
        }
        assert reported == documented

    with_kafka_client(tmp_path, scenario)


async def produced_by_id(
    kafka_client: KafkaTestClient, topics: list[tuple[str, list[tuple[int, bytes]]]]
) -> Any:
    kind = producer.ProduceRequest
    of_topic, of_partition = kind.TopicProduceData, kind.TopicProduceData.PartitionProduceData
    data = [
        of_topic(
            version=13,
            topic_id=UUID(topic_id),
            partition_data=[
                of_partition(version=13, index=number, records=batch) for number, batch in batches
            ],
        )
        for topic_id, batches in topics
    ]
    requested = kind(version=13, transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
    requested.with_header(correlation_id=7, client_id="test")
    client = await Client.connect(kafka_client)
    client.send(bytes(requested.encode(header=True, framed=True)))
    response = framed(INT32.pack(7) + await client.answer())
    return producer.ProduceResponse.decode(response, version=13, header=True, framed=True)
