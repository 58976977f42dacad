"""ACL requests are answered from RBAC: what the client may do, and which Role to write."""

from pathlib import Path

from tidemark_broker.kafka_wire.messages.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
)
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import Client, KafkaTestClient, with_kafka_client
from tests.unit.broker.kafka.apis.test_required_access import (
    asked,
    group_rule,
    topic_rule,
    with_access,
)

READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS = 3, 4, 8, 10
ANYTHING: Values = {
    "resource_type": 1,
    "resource": None,
    "pattern_type": 1,
    "principal": None,
    "host": None,
    "operation": 1,
    "permission": 1,
}
ACL: Values = {
    "resource_type": 2,
    "resource": "orders",
    "pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": WRITE,
    "permission": 3,
}


def test_a_client_is_told_its_own_accesses_as_acls(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        found = await asked(client, DESCRIBE_ACLS_API, None, ANYTHING)
        assert found["error"] == ErrorCode.NONE
        (topic,) = found["resources"]
        assert (topic["resource_type"], topic["resource"]) == (2, TOPIC)
        assert {acl["operation"] for acl in topic["acls"]} == {WRITE, DESCRIBE, DESCRIBE_CONFIGS}
        assert {(acl["principal"], acl["permission"]) for acl in topic["acls"]} == {
            ("User:alice", 3)
        }
        group = ANYTHING | {"resource_type": 3, "resource": "g"}
        (named,) = (await asked(client, DESCRIBE_ACLS_API, None, group))["resources"]
        assert [acl["operation"] for acl in named["acls"]] == [READ]
        reads = group | {"operation": WRITE}
        assert not (await asked(client, DESCRIBE_ACLS_API, None, reads))["resources"]

    rules = (topic_rule("describe"), topic_rule("produce"), group_rule("consume"))
    with_access(tmp_path, scenario, *rules)


def test_what_others_may_do_is_not_known_here(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        others = ANYTHING | {"principal": "User:bob"}
        found = await asked(client, DESCRIBE_ACLS_API, None, others)
        assert found["error"] == ErrorCode.POLICY_VIOLATION
        assert "kubectl auth can-i --list" in found["error_message"]

    with_access(tmp_path, scenario)


def test_acls_are_not_written_and_the_role_is_named(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient, client: Client) -> None:
        prefixed = ACL | {"pattern_type": 4}
        denied = ACL | {"permission": 2}
        creations = {"creations": (ACL, prefixed, denied)}
        results = (await asked(client, CREATE_ACLS_API, None, creations))["results"]
        assert {result["error"] for result in results} == {ErrorCode.POLICY_VIOLATION}
        literal, prefix, denial = (result["error_message"] for result in results)
        assert "resourceNames: [orders], verbs: [produce]} and bind it to bob" in literal
        assert "no prefixes" in prefix
        assert "write a Role for topics" in denial
        (deleted,) = (await asked(client, DELETE_ACLS_API, None, {"filters": (ANYTHING,)}))[
            "results"
        ]
        assert deleted["error"] == ErrorCode.POLICY_VIOLATION
        assert "RoleBinding" in deleted["error_message"]

    with_access(tmp_path, scenario)


def test_without_authentication_security_is_disabled(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        found = await asked(client, DESCRIBE_ACLS_API, None, ANYTHING)
        assert found["error"] == ErrorCode.SECURITY_DISABLED
        made = await asked(client, CREATE_ACLS_API, None, {"creations": (ACL,)})
        gone = await asked(client, DELETE_ACLS_API, None, {"filters": (ANYTHING,)})
        for (result,) in (made["results"], gone["results"]):
            assert result["error"] == ErrorCode.SECURITY_DISABLED

    with_kafka_client(tmp_path, scenario)
