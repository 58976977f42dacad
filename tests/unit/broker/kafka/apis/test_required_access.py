"""What each API answers with and without the access that it needs, over a real socket."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.kafka.apis.access_rule import MAX_LISTED, Scope, visible
from tidemark_broker.kafka.apis.required_access import REQUIRED_ACCESS
from tidemark_broker.kafka_wire.messages import (
    alter_replica_log_dirs,
    client_quotas,
    configs,
    describe_producers,
    describe_quorum,
    frames,
    group_admin,
    group_membership,
    group_offsets,
    list_config_resources,
    logs,
    metadata,
    offsets,
    reassignments,
    topics,
)
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Api, Values
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_protocol.access_messages import ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode

from tests.support.access import ALICE, Reviews
from tests.support.in_process_pool import TOPIC, TOPIC_ID
from tests.support.kafka_test_client import (
    Client,
    KafkaTestClient,
    fetch,
    produce,
    with_kafka_client,
)

GROUP = "g"
NO_ID = ZERO_TOPIC_ID
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
AUTHORIZATION_ERRORS = {NO_TOPIC, NO_GROUP, NO_CLUSTER}
ON_TOPIC = "{{resources: [topics], resourceNames: [{name}], verbs: [{verb}]}}"
ON_GROUP = "{{resources: [consumergroups], resourceNames: [g], verbs: [{verb}]}}"
ON_POOL = "{{resources: [brokerpools], resourceNames: [default], verbs: [{verb}]}}"


def topic_rule(verb: str, name: str = TOPIC) -> str:
    return ON_TOPIC.format(verb=verb, name=name)


def group_rule(verb: str) -> str:
    return ON_GROUP.format(verb=verb)


def pool_rule(verb: str) -> str:
    return ON_POOL.format(verb=verb)


def place(**more: Any) -> tuple[Values, ...]:
    return ({"topic": TOPIC, "topic_id": TOPIC_ID, "partitions": ({"partition": 0, **more},)},)


NUMBERS = ({"topic": TOPIC, "topic_id": TOPIC_ID, "partitions": (0,)},)
QUOTA = {"entity": ({"entity_type": "client-id", "entity_name": "c"},), "ops": ()}
RESOURCE = {"resource_type": 2, "resource": TOPIC, "names": None, "configs": ()}

# API, a request, the errors without any access, and the rules of a client that has them.
CASES: list[tuple[Api, int | None, Values, set[ErrorCode], tuple[str, ...]]] = [
    (
        offsets.LIST_OFFSETS_API,
        6,
        {"replica_id": -1, "topics": place(current_leader_epoch=-1, timestamp=-1)},
        {NO_TOPIC},
        (topic_rule("describe"),),
    ),
    (
        offsets.OFFSET_FOR_LEADER_EPOCH_API,
        None,
        {"replica_id": -1, "topics": place(current_leader_epoch=-1, leader_epoch=1)},
        {NO_TOPIC},
        (topic_rule("describe"),),
    ),
    (
        metadata.METADATA_API,
        12,
        {
            "topics": ({"topic": TOPIC, "topic_id": TOPIC_ID},),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        {NO_TOPIC},
        (topic_rule("describe"),),
    ),
    (
        metadata.DESCRIBE_TOPIC_PARTITIONS_API,
        None,
        {"topics": ({"topic": TOPIC},), "partition_limit": 10, "cursor": None},
        {NO_TOPIC},
        (topic_rule("describe"),),
    ),
    (
        metadata.DESCRIBE_CLUSTER_API,
        None,
        {
            "include_cluster_authorized_operations": True,
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        },
        set(),
        (),
    ),
    (
        group_offsets.OFFSET_COMMIT_API,
        9,
        {
            "group_id": GROUP,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_ms": -1,
            "topics": place(offset=1, leader_epoch=-1, metadata=None),
        },
        {NO_GROUP},
        (group_rule("consume"), topic_rule("consume")),
    ),
    (
        group_offsets.OFFSET_FETCH_API,
        9,
        {
            "groups": (
                {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": NUMBERS},
            ),
            "require_stable": False,
        },
        {NO_GROUP},
        (group_rule("describe"), topic_rule("describe")),
    ),
    (
        group_offsets.OFFSET_FETCH_API,
        7,
        {"group_id": GROUP, "topics": NUMBERS, "require_stable": False},
        {NO_GROUP},
        (group_rule("describe"), topic_rule("describe")),
    ),
    (
        group_membership.FIND_COORDINATOR_API,
        4,
        {"key_type": 0, "keys": (GROUP,)},
        {NO_GROUP},
        (group_rule("describe"),),
    ),
    (
        group_membership.FIND_COORDINATOR_API,
        3,
        {"key_type": 0, "key": GROUP},
        {NO_GROUP},
        (group_rule("describe"),),
    ),
    (
        group_membership.JOIN_GROUP_API,
        7,
        {
            "group_id": GROUP,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": ({"name": "range", "metadata": b""},),
        },
        {NO_GROUP},
        (group_rule("consume"),),
    ),
    (
        group_membership.SYNC_GROUP_API,
        None,
        {
            "group_id": GROUP,
            "generation_id": 1,
            "member_id": "m",
            "group_instance_id": None,
            "protocol_type": None,
            "protocol": None,
            "assignments": (),
        },
        {NO_GROUP},
        (group_rule("consume"),),
    ),
    (
        group_membership.HEARTBEAT_API,
        None,
        {"group_id": GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None},
        {NO_GROUP},
        (group_rule("consume"),),
    ),
    (
        group_membership.LEAVE_GROUP_API,
        None,
        {
            "group_id": GROUP,
            "members": ({"member_id": "m", "group_instance_id": None, "reason": None},),
        },
        {NO_GROUP},
        (group_rule("consume"),),
    ),
    (
        group_admin.DESCRIBE_GROUPS_API,
        None,
        {"groups": (GROUP,), "include_authorized_operations": True},
        {NO_GROUP},
        (group_rule("describe"),),
    ),
    (group_admin.LIST_GROUPS_API, None, {"states": (), "types": ()}, set(), ()),
    (
        group_admin.DELETE_GROUPS_API,
        None,
        {"groups": (GROUP,)},
        {NO_GROUP},
        (group_rule("delete"),),
    ),
    (
        group_admin.OFFSET_DELETE_API,
        None,
        {"group_id": GROUP, "topics": place()},
        {NO_GROUP},
        (group_rule("delete"),),  # of a group that does not exist no topic is looked at
    ),
    (
        topics.CREATE_TOPICS_API,
        None,
        {
            "topics": (
                {
                    "topic": "new",
                    "partition_count": 1,
                    "replication_factor": 1,
                    "assignments": (),
                    "configs": (),
                },
            ),
            "timeout_ms": 0,
            "validate_only": True,
        },
        {NO_TOPIC},
        (topic_rule("create", "new"),),
    ),
    (
        topics.DELETE_TOPICS_API,
        None,
        {"topics": ({"topic": TOPIC, "topic_id": NO_ID},), "timeout_ms": 0},
        {NO_TOPIC},
        (topic_rule("delete"),),
    ),
    (
        topics.DELETE_TOPICS_API,
        None,
        {"topics": ({"topic": None, "topic_id": TOPIC_ID},), "timeout_ms": 0},
        {NO_TOPIC},
        (topic_rule("delete"),),
    ),
    (
        topics.DELETE_TOPICS_API,
        5,
        {"names": (TOPIC,), "timeout_ms": 0},
        {NO_TOPIC},
        (topic_rule("delete"),),
    ),
    (
        topics.CREATE_PARTITIONS_API,
        None,
        {
            "topics": ({"topic": TOPIC, "partition_count": 2, "assignments": None},),
            "timeout_ms": 0,
            "validate_only": True,
        },
        {NO_TOPIC},
        (topic_rule("alter"),),
    ),
    (
        logs.DELETE_RECORDS_API,
        None,
        {"topics": place(offset=0), "timeout_ms": 0},
        {NO_TOPIC},
        (topic_rule("delete"),),
    ),
    (logs.DESCRIBE_LOG_DIRS_API, None, {"topics": None}, {NO_CLUSTER}, (pool_rule("describe"),)),
    (
        alter_replica_log_dirs.ALTER_REPLICA_LOG_DIRS_API,
        None,
        {"directories": ({"path": "/elsewhere", "topics": NUMBERS},)},
        {NO_CLUSTER},
        (pool_rule("alter"),),
    ),
    (
        configs.DESCRIBE_CONFIGS_API,
        None,
        {"resources": (RESOURCE,), "include_synonyms": False, "include_documentation": False},
        {NO_TOPIC},
        (topic_rule("describe"),),
    ),
    (
        configs.DESCRIBE_CONFIGS_API,
        None,
        {
            "resources": (RESOURCE | {"resource_type": 4, "resource": "1"},),
            "include_synonyms": False,
            "include_documentation": False,
        },
        {NO_CLUSTER},
        (pool_rule("describe"),),
    ),
    (
        configs.DESCRIBE_CONFIGS_API,
        None,
        {
            "resources": (RESOURCE | {"resource_type": 32, "resource": GROUP},),
            "include_synonyms": False,
            "include_documentation": False,
        },
        {NO_GROUP},
        (group_rule("describe"),),
    ),
    (
        configs.ALTER_CONFIGS_API,
        None,
        {"resources": (RESOURCE,), "validate_only": True},
        {NO_TOPIC},
        (topic_rule("alter"),),
    ),
    (
        configs.INCREMENTAL_ALTER_CONFIGS_API,
        None,
        {"resources": (RESOURCE,), "validate_only": True},
        {NO_TOPIC},
        (topic_rule("alter"),),
    ),
    (
        reassignments.ELECT_LEADERS_API,
        None,
        {"election_type": 0, "topics": NUMBERS, "timeout_ms": 0},
        {NO_CLUSTER},
        (pool_rule("alter"),),
    ),
    (
        reassignments.ALTER_PARTITION_REASSIGNMENTS_API,
        None,
        {
            "timeout_ms": 0,
            "may_change_replication_factor": True,
            "topics": place(replicas=None),
        },
        {NO_CLUSTER},
        (pool_rule("alter"),),
    ),
    (
        reassignments.LIST_PARTITION_REASSIGNMENTS_API,
        None,
        {"timeout_ms": 0, "topics": None},
        {NO_CLUSTER},
        (pool_rule("describe"),),
    ),
    (
        client_quotas.DESCRIBE_CLIENT_QUOTAS_API,
        None,
        {"components": (), "strict": False},
        {NO_CLUSTER},
        (pool_rule("describe"),),
    ),
    (
        client_quotas.ALTER_CLIENT_QUOTAS_API,
        None,
        {"entries": (QUOTA,), "validate_only": True},
        {NO_CLUSTER},
        (pool_rule("alter"),),
    ),
    (
        describe_quorum.DESCRIBE_QUORUM_API,
        None,
        {"topics": ()},
        {NO_CLUSTER},
        (pool_rule("describe"),),
    ),
    (
        describe_producers.DESCRIBE_PRODUCERS_API,
        None,
        {"topics": NUMBERS},
        {NO_TOPIC},
        (topic_rule("consume"),),
    ),
    (
        list_config_resources.LIST_CONFIG_RESOURCES_API,
        None,
        {"resource_types": ()},
        {NO_CLUSTER},
        (pool_rule("describe"),),
    ),
]
BY_HAND = {
    frames.PRODUCE,
    frames.FETCH,
    frames.API_VERSIONS,
    frames.SASL_HANDSHAKE,
    frames.SASL_AUTHENTICATE,
    frames.INIT_PRODUCER_ID,
    frames.DESCRIBE_ACLS,
    frames.CREATE_ACLS,
    frames.DELETE_ACLS,
}


async def asked(client: Client, api: Api, version: int | None, values: Values) -> Values:
    used = api.max_version if version is None else version
    client.send(b"".join(map(bytes, _frame(api, used, values))))
    body = b"\x00\x00\x00\x07" + await client.answer()
    return api.decode_response(body, used)[1]


def _frame(api: Api, version: int, values: Values) -> list[bytes]:
    frame = api.encode_request(7, version, "test", values)
    return [bytes(frame)]


def errors_of(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, dict):
        if "error" in value:
            yield ErrorCode(value["error"])
        for each in value.values():
            yield from errors_of(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from errors_of(each)


def with_access(tmp_path: Path, scenario: Any, *rules: str) -> Reviews:
    reviews = Reviews()
    reviews.grant(*rules)

    async def run(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True, others=("other",))
        client = await Client.connect(kafka_client)
        await asyncio.sleep(0.01)
        kafka_client.authenticate(ALICE)
        await scenario(kafka_client, client)
        client.close()

    with_kafka_client(tmp_path, run, authorizer=reviews.authorizer)
    return reviews


def test_every_api_has_a_row_and_a_case(tmp_path: Path) -> None:
    tested = {api.api_key for api, *_ in CASES} | BY_HAND

    async def scenario(kafka_client: KafkaTestClient) -> None:
        served = set(kafka_client.context.handlers)
        assert served <= set(REQUIRED_ACCESS)
        assert served <= tested

    with_kafka_client(tmp_path, scenario)


def test_the_documentation_says_what_each_api_needs() -> None:
    text = (Path(__file__).parents[5] / "docs/user/authorization.md").read_text()
    rows = re.findall(r"^\| ([A-Z][A-Za-z, ]+) \| ([^|]+) \|$", text, re.M)
    told = {name: needs for names, needs in rows for name in names.split(", ")}
    for key, required in REQUIRED_ACCESS.items():
        assert told[frames.API_NAMES[key]] == required.needs


@pytest.mark.parametrize(
    ("api", "version", "values", "errors", "rules"),
    CASES,
    ids=[f"{api.name}-{at}" for at, (api, *_) in enumerate(CASES)],
)
def test_a_request_is_denied_without_its_access_and_performed_with_it(
    tmp_path: Path,
    api: Api,
    version: int | None,
    values: Values,
    errors: set[ErrorCode],
    rules: tuple[str, ...],
) -> None:
    async def denied(kafka_client: KafkaTestClient, client: Client) -> None:
        found = await asked(client, api, version, values)
        assert set(errors_of(found)) & AUTHORIZATION_ERRORS == errors

    async def performed(kafka_client: KafkaTestClient, client: Client) -> None:
        found = await asked(client, api, version, values)
        assert not set(errors_of(found)) & AUTHORIZATION_ERRORS, found

    with_access(tmp_path / "none", denied)
    with_access(tmp_path / "needed", performed, *rules)
    for missing in rules if len(rules) > 1 else ():
        left = tuple(rule for rule in rules if rule != missing)

        async def partly(kafka_client: KafkaTestClient, client: Client) -> None:
            found = await asked(client, api, version, values)
            assert set(errors_of(found)) & AUTHORIZATION_ERRORS

        with_access(tmp_path / re.sub(r"\W", "", missing), partly, *left)


def test_records_are_appended_and_read_only_with_their_verbs(tmp_path: Path) -> None:
    batch = build_batch([NewRecord(None, b"v")], timestamp_ms=1)

    async def only_reads(kafka_client: KafkaTestClient, client: Client) -> None:
        response = await client.ask(produce(batch))
        assert NO_TOPIC.to_bytes(2, "big") in response
        assert b"v" not in await client.ask(fetch())
        assert kafka_client.partitions.replica(TOPIC, 0).log_end_offset == 0

    async def only_writes(kafka_client: KafkaTestClient, client: Client) -> None:
        await client.ask(produce(batch))
        assert kafka_client.partitions.replica(TOPIC, 0).log_end_offset == 1
        assert batch not in await client.ask(fetch())

    async def both(kafka_client: KafkaTestClient, client: Client) -> None:
        await client.ask(produce(batch))
        assert b"v" in await client.ask(fetch())

    with_access(tmp_path / "r", only_reads, topic_rule("consume"), topic_rule("describe"))
    with_access(tmp_path / "w", only_writes, topic_rule("produce"), topic_rule("describe"))
    with_access(tmp_path / "rw", both, topic_rule("produce"), topic_rule("consume"))


def test_metadata_shows_and_tells_only_what_may_be_described(tmp_path: Path) -> None:
    def request(*names: str | None) -> Values:
        return {
            "topics": None
            if names == (None,)
            else tuple({"topic": name, "topic_id": NO_ID} for name in names),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }

    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        api = metadata.METADATA_API
        for version in (12, 9):
            found = await asked(client, api, version, request(None))
            assert [topic["topic"] for topic in found["topics"]] == [TOPIC]
            found = await asked(client, api, version, request(TOPIC, "other", "absent"))
            told = {
                topic["topic"]: (topic["error"], topic["topic_id"]) for topic in found["topics"]
            }
            assert told[TOPIC][0] == ErrorCode.NONE
            assert told["other"] == told["absent"] == (NO_TOPIC, NO_ID)
        operations = {topic["topic"]: topic["authorized_operations"] for topic in found["topics"]}
        assert operations[TOPIC] == sum(1 << bit for bit in (4, 8, 10))  # Write, Describe and its
        found = await asked(client, api, 0, {"topics": ()})
        assert [topic["topic"] for topic in found["topics"]] == [TOPIC]

    async def nothing(kafka_client: KafkaTestClient, client: Client) -> None:
        found = await asked(client, metadata.METADATA_API, 0, {"topics": ()})
        assert found["topics"] == ()
        found = await asked(
            client,
            metadata.DESCRIBE_TOPIC_PARTITIONS_API,
            0,
            {"topics": (), "partition_limit": 10, "cursor": None},
        )
        assert found["topics"] == ()

    with_access(tmp_path / "one", scenario, topic_rule("describe"), topic_rule("produce"))
    with_access(tmp_path / "none", nothing)


def test_a_topic_is_created_by_metadata_only_for_clients_that_may_create_it(
    tmp_path: Path,
) -> None:
    missing = {
        "topics": ({"topic": "new", "topic_id": NO_ID},),
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    scope = Scope(12, MetadataCache(), "default", creates_topics=True)
    rule = REQUIRED_ACCESS[frames.METADATA].rule
    only_described = FixedAnswers({(Verb.DESCRIBE, "new")})
    assert rule(only_described, missing, scope).requested["topics"] == ()
    both = FixedAnswers({(Verb.DESCRIBE, "new"), (Verb.CREATE, "new")})
    assert rule(both, missing, scope).requested["topics"] == missing["topics"]


class FixedAnswers:
    principal = ALICE

    def __init__(self, allowed: set[tuple[Verb, str]]) -> None:
        self._allowed = allowed

    def may(self, verb: Verb, kind: ResourceKind, name: str) -> bool:
        return (verb, name) in self._allowed

    sees = may

    def allowed_names(self, verb: Verb, kind: ResourceKind) -> frozenset[str]:
        return frozenset(name for each, name in self._allowed if each is verb)

    def sees_every(self, verb: Verb, kind: ResourceKind) -> bool | None:
        return self.may(verb, kind, "")

    def denial(self, verb: Verb, kind: ResourceKind, name: str) -> str:
        return "no"


def test_a_long_list_shows_what_was_asked_for_by_name() -> None:
    names = [f"t{at}" for at in range(MAX_LISTED + 1)]
    answers = FixedAnswers({(Verb.DESCRIBE, "t7")})
    answers.sees = lambda verb, kind, name: pytest.fail("a review for each topic")
    assert visible(answers, ResourceKind.TOPIC, names) == ["t7"]
    assert visible(FixedAnswers({(Verb.DESCRIBE, "")}), ResourceKind.TOPIC, names) == names


def test_groups_are_listed_by_what_may_be_described(tmp_path: Path) -> None:
    async def joined(client: Client, name: str) -> None:
        join = next(values for api, _, values, *_ in CASES if api.name == "JoinGroup")
        await asked(client, group_membership.JOIN_GROUP_API, 7, join | {"group_id": name})

    async def listed(client: Client) -> list[str]:
        found = await asked(client, group_admin.LIST_GROUPS_API, None, {"states": (), "types": ()})
        return [group["group_id"] for group in found["groups"]]

    def scenario(names: list[str]) -> Any:
        async def run(kafka_client: KafkaTestClient, client: Client) -> None:
            for name in (GROUP, "h"):
                await joined(client, name)
            assert sorted(await listed(client)) == names

        return run

    joins = "{resources: [consumergroups], verbs: [consume]}"
    with_access(tmp_path / "one", scenario([GROUP]), joins, group_rule("describe"))
    with_access(tmp_path / "pool", scenario([GROUP, "h"]), joins, pool_rule("describe"))


def test_clients_cannot_fetch_as_replicas(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        request = FetchRequest(0, 1, 1000, (), replica_id=2, replica_epoch=1)
        frame = encode_fetch_request(request, correlation_id=7, client_id="test")
        client.send(frame)
        response = decode_fetch_response(b"\x00\x00\x00\x07" + await client.answer())
        assert response.error == NO_CLUSTER

    with_access(tmp_path, scenario, '{resources: ["*"], verbs: ["*"]}')
