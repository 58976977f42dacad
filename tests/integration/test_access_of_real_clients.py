"""What librdkafka makes of a listener whose clients have names.

The clients are anonymous, which is a name too: the roles are those of `system:unauthenticated`.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_operator.security.local_roles import parse_roles

from tests.support.access import Reviews
from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import KafkaTestClient

LIMIT_SECONDS = 20.0
WRITES = "{resources: [topics], resourceNames: [orders], verbs: [produce, describe]}"
READS = "{resources: [topics], resourceNames: [orders], verbs: [consume, describe]}"
GROUP = "{resources: [consumergroups], resourceNames: [g], verbs: [consume, describe]}"
ANY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
OF_BOB = AclBinding(
    ResourceType.TOPIC,
    "orders",
    ResourcePatternType.LITERAL,
    "User:bob",
    "*",
    AclOperation.WRITE,
    AclPermissionType.ALLOW,
)


def with_rules(path: Path, act: Callable[[str], Any], *rules: str) -> Any:
    """Run a client against a broker with these rules; return what it returned."""

    async def main() -> Any:
        reviews = Reviews()
        reviews.roles = parse_roles(f"groups: {{'system:unauthenticated': [{', '.join(rules)}]}}")
        broker = KafkaTestClient(path, ListenerLimits(), authorizer=reviews.authorizer())
        await broker.start()
        broker.push(has_groups=True, others=("other",))
        try:
            return await asyncio.to_thread(act, f"127.0.0.1:{broker.port}")
        finally:
            await broker.stop()

    return asyncio.run(main())


def produced(servers: str) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(TOPIC, b"v", callback=lambda error, _: errors.append(error))
    producer.flush(LIMIT_SECONDS)
    (error,) = errors
    return error


def consumed(servers: str) -> KafkaError | bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    end = time.monotonic() + LIMIT_SECONDS
    try:
        while time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is not None:
                return message.error() or message.value()
        return None
    finally:
        consumer.close()


def produced_and_consumed(servers: str) -> KafkaError | bytes | None:
    assert produced(servers) is None
    return consumed(servers)


def topics_and_acls(servers: str) -> tuple[set[str], set[tuple[str, str]]]:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = set(admin.list_topics(timeout=LIMIT_SECONDS).topics)
    found = admin.describe_acls(ANY).result(LIMIT_SECONDS)
    (creation,) = admin.create_acls([OF_BOB]).values()
    with pytest.raises(KafkaException, match="write a Role with the rule") as rejected:
        creation.result(LIMIT_SECONDS)
    assert rejected.value.args[0].code() == KafkaError.POLICY_VIOLATION
    return topics, {(binding.name, binding.operation.name) for binding in found}


def test_records_flow_only_with_their_roles(tmp_path: Path) -> None:
    denied = with_rules(tmp_path / "none", produced)
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert with_rules(tmp_path / "writes", produced, WRITES) is None
    denied = with_rules(tmp_path / "no-group", produced_and_consumed, WRITES, READS)
    assert denied.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert "resourceNames: [g], verbs: [describe]" in denied.str()
    denied = with_rules(tmp_path / "no-topic", produced_and_consumed, WRITES, GROUP)
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    every = (WRITES, READS, GROUP)
    assert with_rules(tmp_path / "reads", produced_and_consumed, *every) == b"v"


def test_clients_see_their_topics_and_accesses(tmp_path: Path) -> None:
    topics, acls = with_rules(tmp_path, topics_and_acls, WRITES)
    assert topics == {TOPIC}
    assert acls == {(TOPIC, "WRITE"), (TOPIC, "DESCRIBE"), (TOPIC, "DESCRIBE_CONFIGS")}
