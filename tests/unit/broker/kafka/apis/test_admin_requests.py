"""Admin requests over a real socket: what the broker answers or refuses itself, what it asks."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_broker.kafka_wire.messages.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from tidemark_broker.kafka_wire.messages.logs import DELETE_RECORDS_API, DESCRIBE_LOG_DIRS_API
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_broker.kafka_wire.messages.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
)
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Api, Values
from tidemark_broker.kafka_wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_TOPICS_API,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    ElectedPartition,
    ElectLeadersRequest,
    ReassignPartitionsRequest,
    TopicResult,
    TopicsRequest,
    TopicsResponse,
)

from tests.support.in_process_pool import TOPIC, TOPIC_ID
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at
from tests.unit.broker.replication.test_replication_link import Link
from tests.unit.broker.replication.test_replication_link import run as run_link

APIS = (
    ALTER_CONFIGS_API,
    ALTER_PARTITION_REASSIGNMENTS_API,
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_RECORDS_API,
    DELETE_TOPICS_API,
    DESCRIBE_CONFIGS_API,
    DESCRIBE_LOG_DIRS_API,
    ELECT_LEADERS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
)
TOPIC_TYPE, BROKER_TYPE = 2, 4


class Requested:
    """The controller: says NONE of everything, and keeps what it was asked."""

    def __init__(self, link: Link) -> None:
        self.requests: list[TopicsRequest] = []
        self.says_nothing_of: set[str] = set()
        link.controller.ask = self._ask

    async def _ask(self, path: str, request: TopicsRequest, timeout_ms: int) -> TopicsResponse:
        self.requests.append(request)
        named = getattr(request, "topics", ()) or getattr(request, "reassignments", ())
        results = tuple(
            TopicResult(each.topic, ErrorCode.NONE)
            for each in named
            if each.topic not in self.says_nothing_of
        )
        return TopicsResponse(ErrorCode.NONE, results=results)


Scenario = Callable[[Link, Requested], Awaitable[None]]


def run(tmp_path: Path, scenario: Scenario) -> None:
    async def with_controller(link: Link) -> None:
        link.push()
        await scenario(link, Requested(link))

    run_link(tmp_path, with_controller)


async def ask(link: Link, api: Api, values: Values, version: int | None = None) -> Any:
    version = api.max_version if version is None else version
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(api.encode_request(1, version, "test", values))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    return api.decode_response(frame, version)[1]


def new_topic(topic: str, **more: Any) -> Values:
    empty = {"assignments": (), "configs": ()}
    return {"topic": topic, "partition_count": 1, "replication_factor": 1} | empty | more


def creation(*topics: Values) -> Values:
    return {"topics": topics, "timeout_ms": 100, "validate_only": False}


def errors(answer: Values, of: str = "topics") -> list[int]:
    return [each["error"] for each in answer[of]]


def test_shapes_that_only_the_wire_allows_are_refused_before_anybody_is_asked(
    tmp_path: Path,
) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        twice = creation(new_topic("twice"), new_topic("twice"))
        assert errors(await ask(link, CREATE_TOPICS_API, twice)) == [ErrorCode.INVALID_REQUEST]
        gap = new_topic("gap", assignments=({"partition": 1, "replicas": (1,)},))
        null = new_topic("null", configs=({"name": "retention.ms", "value": None},))
        brokers_own = new_topic("__consumer_offsets")
        response = await ask(link, CREATE_TOPICS_API, creation(gap, null, brokers_own))
        assert errors(response) == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert controller.requests == []

    run(tmp_path, scenario)


def test_a_request_of_very_many_topics_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        many = creation(*(new_topic(f"t{number}") for number in range(1001)))
        response = await ask(link, CREATE_TOPICS_API, many)
        assert (
            set(errors(response)) == {ErrorCode.INVALID_REQUEST} and len(errors(response)) == 1001
        )
        names = tuple(f"t{number}" for number in range(1001))
        to_delete = {"names": names, "topics": (), "timeout_ms": 100}
        response = await ask(link, DELETE_TOPICS_API, to_delete, version=5)
        assert set(errors(response)) == {ErrorCode.INVALID_REQUEST}
        assert controller.requests == []

    run(tmp_path, scenario)


def test_what_is_not_seen_in_time_is_timed_out_and_says_that_it_comes(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        response = await ask(link, CREATE_TOPICS_API, creation(new_topic("late")))
        assert errors(response) == [ErrorCode.REQUEST_TIMED_OUT]
        assert "kubectl describe topic" in response["topics"][0]["error_message"]
        (request,) = controller.requests
        assert isinstance(request, CreateTopicsRequest)
        validating = creation(new_topic("late")) | {"validate_only": True}
        assert errors(await ask(link, CREATE_TOPICS_API, validating)) == [ErrorCode.NONE]

    run(tmp_path, scenario)


def test_of_a_topic_that_the_controllers_answer_leaves_out_nothing_is_claimed(
    tmp_path: Path,
) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        controller.says_nothing_of = {TOPIC}
        move = {"partition": 0, "replicas": (1,)}
        requested = {
            "timeout_ms": 100,
            "may_change_replication_factor": True,
            "topics": ({"topic": TOPIC, "partitions": (move,)},),
        }
        (topic,) = (await ask(link, ALTER_PARTITION_REASSIGNMENTS_API, requested))["topics"]
        assert errors(topic, of="partitions") == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(tmp_path, scenario)


def test_a_topic_is_meant_by_its_id(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        unknown = "00000000-0000-0000-0000-00000000dead"
        by_ids = tuple({"topic": None, "topic_id": each} for each in (unknown, TOPIC_ID))
        response = await ask(link, DELETE_TOPICS_API, {"topics": by_ids, "timeout_ms": 50})
        # The controller said NONE, and this broker still sees the topic.
        assert errors(response) == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.REQUEST_TIMED_OUT]
        assert [each["topic"] for each in response["topics"]] == [None, TOPIC]

    run(tmp_path, scenario)


def resource(kind: int, name: str, **more: Any) -> Values:
    return {"resource_type": kind, "resource": name, "names": None} | more


def test_configs_are_described_of_what_there_is(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        requested = {
            "resources": (
                resource(TOPIC_TYPE, TOPIC, names=("retention.ms",)),
                resource(TOPIC_TYPE, "nobody"),
                resource(BROKER_TYPE, "1"),
                resource(BROKER_TYPE, "2"),
                resource(BROKER_TYPE, ""),
                resource(99, "x"),
            ),
            "include_synonyms": False,
            "include_documentation": True,
        }
        response = await ask(link, DESCRIBE_CONFIGS_API, requested)
        invalid = ErrorCode.INVALID_REQUEST
        assert errors(response, "resources") == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
            invalid,
            ErrorCode.NONE,
            invalid,
        ]
        (retention,) = response["resources"][0]["configs"]
        assert retention["documentation"] and retention["synonyms"] == ()

    run(tmp_path, scenario)


@pytest.mark.parametrize("names", [None, ()])
def test_all_configs_are_described_to_who_names_none(
    tmp_path: Path, names: tuple[str, ...] | None
) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        resources = (resource(TOPIC_TYPE, TOPIC, names=names),)
        requested = {
            "resources": resources,
            "include_synonyms": False,
            "include_documentation": False,
        }
        (found,) = (await ask(link, DESCRIBE_CONFIGS_API, requested))["resources"]
        reported = {config["name"] for config in found["configs"]}
        assert reported >= {"retention.ms", "cleanup.policy", "min.insync.replicas"}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no topic", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_name_that_no_topic_can_have_is_told_apart_from_one_that_none_has(
    tmp_path: Path, name: str, error: ErrorCode
) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        topics = ({"topic": name, "topic_id": ZERO_TOPIC_ID},)
        requested = {"topics": topics, "allow_auto_topic_creation": False}
        requested["include_topic_authorized_operations"] = False
        assert errors(await ask(link, METADATA_API, requested)) == [error]

    run(tmp_path, scenario)


def test_what_alters_brokers_is_refused_but_for_deleting_what_nobody_set(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        def change(operation: int, value: str | None) -> Values:
            throttle = "leader.replication.throttled.rate"
            config = {"name": throttle, "operation": operation, "value": value}
            return {
                "resources": (resource(BROKER_TYPE, "1", configs=(config,)),),
                "validate_only": False,
            }

        api = INCREMENTAL_ALTER_CONFIGS_API
        assert errors(await ask(link, api, change(1, None)), "resources") == [ErrorCode.NONE]
        refused = await ask(link, api, change(0, "1000"))
        assert errors(refused, "resources") == [ErrorCode.INVALID_CONFIG]
        (reported,) = refused["resources"]
        assert "set spec.moveBytesPerSecond of the BrokerPool" in reported["error_message"]
        assert controller.requests == []

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "operation, value, error",
    [(0, None, ErrorCode.INVALID_CONFIG), (9, "1", ErrorCode.INVALID_REQUEST)],
)
def test_malformed_changes_of_configs_are_refused_here(
    tmp_path: Path, operation: int, value: str | None, error: ErrorCode
) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        config = {"name": "retention.ms", "operation": operation, "value": value}
        topic = resource(TOPIC_TYPE, TOPIC, configs=(config,))
        requested = {"resources": (topic,), "validate_only": True}
        response = await ask(link, INCREMENTAL_ALTER_CONFIGS_API, requested)
        assert errors(response, "resources") == [error]
        assert controller.requests == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("api", [ALTER_CONFIGS_API, INCREMENTAL_ALTER_CONFIGS_API])
def test_an_answer_about_very_long_names_is_short(tmp_path: Path, api: Api) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        configs = tuple({"name": letter * 20_000, "operation": 0, "value": None} for letter in "ab")
        resource = {"resource_type": TOPIC_TYPE, "resource": TOPIC, "configs": configs}
        values = {"resources": (resource,), "validate_only": False}
        (reported,) = (await ask(link, api, values, version=api.min_version))["resources"]
        assert reported["error"] == ErrorCode.INVALID_CONFIG
        assert reported["error_message"].startswith("expected values of aaa")
        assert len(reported["error_message"]) <= 1_000

    run(tmp_path, scenario)


def test_the_older_alter_configs_replaces_all(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        topic = resource(TOPIC_TYPE, TOPIC, configs=({"name": "retention.ms", "value": "1"},))
        requested = {"resources": (topic,), "validate_only": True}
        response = await ask(link, ALTER_CONFIGS_API, requested)
        assert errors(response, "resources") == [ErrorCode.NONE]
        (request,) = controller.requests
        assert isinstance(request, AlterConfigsRequest)
        assert request.topics[0].replaces_all and request.validate_only

    run(tmp_path, scenario)


def test_moves_under_way_are_listed_and_one_at_rest_cannot_be_turned_back(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        cancel = {
            "timeout_ms": 50,
            "may_change_replication_factor": True,
            "topics": ({"topic": TOPIC, "partitions": ({"partition": 0, "replicas": None},)},),
        }
        response = await ask(link, ALTER_PARTITION_REASSIGNMENTS_API, cancel)
        (reported,) = response["topics"][0]["partitions"]
        assert reported["error"] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        requested = {"timeout_ms": 50, "topics": None}
        assert (await ask(link, LIST_PARTITION_REASSIGNMENTS_API, requested))["topics"] == ()
        link.push(adding=True)
        (moving,) = (await ask(link, LIST_PARTITION_REASSIGNMENTS_API, requested))["topics"]
        assert moving["partitions"][0]["adding_replicas"] == (2,)

    run(tmp_path, scenario)


def test_elections_that_are_not_needed_ask_nobody(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        places = ({"topic": TOPIC, "partitions": (0, 7)},)
        requested = {"election_type": 0, "topics": places, "timeout_ms": 50}
        response = await ask(link, ELECT_LEADERS_API, requested)
        found = [each["error"] for each in response["topics"][0]["partitions"]]
        assert found == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (await ask(link, ELECT_LEADERS_API, requested | {"topics": None}))["topics"] == ()
        odd = await ask(link, ELECT_LEADERS_API, requested | {"election_type": 5})
        assert odd["error"] == ErrorCode.INVALID_REQUEST
        assert controller.requests == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("election_type", [0, 1], ids=["preferred", "unclean"])
def test_an_election_of_a_partition_whose_state_is_hidden_is_the_controllers(
    tmp_path: Path, election_type: int
) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        link.push(partition_count=2)
        places = ({"topic": TOPIC, "partitions": (0, 1, 2)},)
        requested = {"election_type": election_type, "topics": places, "timeout_ms": 50}
        await ask(link, ELECT_LEADERS_API, requested)
        await ask(link, ELECT_LEADERS_API, requested | {"topics": None})
        withheld = (ElectedPartition(TOPIC, 1),)
        for request in controller.requests:
            assert isinstance(request, ElectLeadersRequest) and request.partitions == withheld
        assert len(controller.requests) == 2

    run(tmp_path, scenario)


@pytest.mark.parametrize("replicas", [None, (2, 1)], ids=["turned back", "moved"])
def test_a_move_of_a_partition_whose_state_is_hidden_is_the_controllers(
    tmp_path: Path, replicas: tuple[int, ...] | None
) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        link.push(partition_count=2)
        entries = tuple({"partition": each, "replicas": replicas} for each in (1, 2))
        requested = {
            "timeout_ms": 50,
            "may_change_replication_factor": True,
            "topics": ({"topic": TOPIC, "partitions": entries},),
        }
        response = await ask(link, ALTER_PARTITION_REASSIGNMENTS_API, requested)
        found = [each["error"] for each in response["topics"][0]["partitions"]]
        assert found[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (request,) = controller.requests
        assert isinstance(request, ReassignPartitionsRequest)
        assert [each.partition for each in request.reassignments] == [1]

    run(tmp_path, scenario)


def test_records_are_deleted_at_the_leader_only_up_to_what_is_committed(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        async def deleted(topic: str, offset: int) -> Values:
            partitions = ({"partition": 0, "offset": offset},)
            requested = {"topics": ({"topic": topic, "partitions": partitions},), "timeout_ms": 50}
            response = await ask(link, DELETE_RECORDS_API, requested)
            found: Values = response["topics"][0]["partitions"][0]
            return found

        assert (await deleted(TOPIC, 1))["error"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await deleted(TOPIC, -1))["low_watermark"] == 0
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await deleted("nobody", 0))["error"] == unknown

    run(tmp_path, scenario)


def test_log_directories_tell_the_replicas_that_were_asked_for(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        (all_of_it,) = (await ask(link, DESCRIBE_LOG_DIRS_API, {"topics": None}))["directories"]
        assert [each["topic"] for each in all_of_it["topics"]] == [TOPIC]
        nothing = {"topics": ({"topic": "nobody", "partitions": (0,)},)}
        (none_of_it,) = (await ask(link, DESCRIBE_LOG_DIRS_API, nothing))["directories"]
        assert none_of_it["topics"] == ()

    run(tmp_path, scenario)


@settings(max_examples=300)
@given(api=st.sampled_from(APIS), version=st.integers(0, 8), body=st.binary(max_size=300))
def test_random_bytes_are_decoded_or_refused(api: Api, version: int, body: bytes) -> None:
    try:
        api.decode_request(Reader(body), version)
    except MalformedFrame:
        return


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_cut_of_a_request_is_refused(api: Api) -> None:
    topic = {
        "topic": TOPIC,
        "topic_id": ZERO_TOPIC_ID,
        "partition_count": 1,
        "replication_factor": 1,
        "assignments": ({"partition": 0, "replicas": (1,)},),
        "configs": ({"name": "a", "operation": 0, "value": "b"},),
        "partitions": ({"partition": 0, "offset": 1, "replicas": (1,)},),
    }
    if api in (ELECT_LEADERS_API, LIST_PARTITION_REASSIGNMENTS_API, DESCRIBE_LOG_DIRS_API):
        topic |= {"partitions": (0,)}
    values = {
        "topics": (topic,),
        "names": (TOPIC,),
        "resources": (resource(TOPIC_TYPE, TOPIC, configs=topic["configs"]),),
        "timeout_ms": 1,
        "validate_only": True,
        "include_synonyms": True,
        "include_documentation": True,
        "election_type": 0,
    }
    for version in range(api.min_version, api.max_version + 1):
        frame = api.encode_request(1, version, "", values)[4:]
        head = 10  # key, version, correlation id, an empty client id
        for end in range(head, len(frame)):
            with pytest.raises(MalformedFrame):
                api.decode_request(Reader(frame[head:end]), version)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("delete", ErrorCode.NONE),
        ("compact,delete", ErrorCode.NONE),
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("", ErrorCode.NONE),
    ],
)
def test_records_are_deleted_unless_the_topic_is_only_compacted(
    tmp_path: Path, policy: str, error: ErrorCode
) -> None:
    """As Kafka's Partition.deleteRecordsOnLeader: an empty policy forbids nothing."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(config={"cleanup.policy": policy})
        partition = {"partition": 0, "offset": 0}
        requested = {"topics": ({"topic": TOPIC, "partitions": (partition,)},), "timeout_ms": 1000}
        response = await requested_at(kafka_client.port, DELETE_RECORDS_API, 2, requested)
        assert response["topics"][0]["partitions"][0]["error"] == error

    with_kafka_client(tmp_path, scenario)
