"""Attempts of a known client with few rights, over Kafka: others' topics, groups, ids, bombs."""

import os
import ssl
import struct
from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.acls import CREATE_ACLS_API, DELETE_ACLS_API
from tidemark_broker.kafka_wire.messages.group_admin import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    LIST_GROUPS_API,
)
from tidemark_broker.kafka_wire.messages.group_membership import JOIN_GROUP_API
from tidemark_broker.kafka_wire.messages.group_offsets import OFFSET_COMMIT_API, OFFSET_FETCH_API
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_broker.kafka_wire.messages.offsets import LIST_OFFSETS_API
from tidemark_broker.kafka_wire.messages.produce import INIT_PRODUCER_ID_API
from tidemark_broker.kafka_wire.messages.reassignments import ELECT_LEADERS_API
from tidemark_broker.kafka_wire.messages.schema import Api
from tidemark_broker.kafka_wire.messages.topics import CREATE_TOPICS_API, DELETE_TOPICS_API
from tidemark_protocol.error_codes import ErrorCode

from tests.security.attacker import (
    Attacker,
    audit_lines,
    ended,
    frame,
    produce_error,
    produce_frame,
    resident_bytes,
)
from tests.support.crafted_batches import crafted_batch, crafted_record
from tests.support.in_process_pool import a_batch

pytestmark = pytest.mark.cluster
SECRET = "secret-plans"


def errors_in(value: Any) -> set[int]:
    """Return all error codes of a response but NONE."""
    match value:
        case dict():
            found = {int(value["error"])} if "error" in value else set()
            return (found | errors_in(tuple(value.values()))) - {0}
        case tuple() | list():
            return set().union(*map(errors_in, value)) if value else set()
        case _:
            return set()


CALLS: dict[str, tuple[Api, int, dict[str, Any], ErrorCode]] = {
    "metadata of a topic": (
        METADATA_API, 7, {"topics": [{"topic": SECRET}]}, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "offsets of a topic": (
        LIST_OFFSETS_API, 4,
        {"replica_id": -1, "topics": [
            {"topic": SECRET, "partitions": [{"partition": 0, "timestamp": -1}]}]},
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "join a group": (
        JOIN_GROUP_API, 5,
        {"group_id": "payroll", "session_timeout_ms": 10000, "member_id": "",
         "group_instance_id": None, "protocol_type": "consumer",
         "protocols": [{"name": "range", "metadata": b""}]},
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "offsets of a group": (
        OFFSET_FETCH_API, 5, {"group_id": "payroll", "topics": None},
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "commit in a group": (
        OFFSET_COMMIT_API, 5,
        {"group_id": "payroll", "topics": [{"topic": "own", "partitions": [
            {"partition": 0, "offset": 0, "metadata": None}]}]},
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "commit of a topic": (
        OFFSET_COMMIT_API, 5,
        {"group_id": "own", "topics": [{"topic": SECRET, "partitions": [
            {"partition": 0, "offset": 0, "metadata": None}]}]},
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "members of a group": (
        DESCRIBE_GROUPS_API, 1, {"groups": ["payroll"]}, ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "delete a group": (
        DELETE_GROUPS_API, 1, {"groups": ["payroll"]}, ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "create a topic": (
        CREATE_TOPICS_API, 4,
        {"topics": [{"topic": "evil", "partition_count": 1, "replication_factor": 1,
                     "assignments": (), "configs": ()}], "timeout_ms": 5000,
         "validate_only": False},
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "delete a topic": (
        DELETE_TOPICS_API, 3, {"names": [SECRET], "timeout_ms": 5000},
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "elect an unclean leader": (
        ELECT_LEADERS_API, 1,
        {"election_type": 1, "topics": [{"topic": SECRET, "partitions": [0]}],
         "timeout_ms": 5000},
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CALLS))
def test_access_without_a_right(attacker: Attacker, name: str) -> None:
    api, version, values, error = CALLS[name]
    found = attacker.as_user("mallory", api, version, values)
    assert errors_in(found) == {error}, found
    attacker.rejected_once("access denied", principal=attacker.principal, protocol="kafka")


def test_unknown_topics_and_others_topics_look_alike(attacker: Attacker) -> None:
    answers = []
    with attacker.known("mallory") as stream:
        for topic in (SECRET, "there-is-no-such"):
            found = attacker.call(stream, METADATA_API, 7, {"topics": [{"topic": topic}]})
            answers.append([each | {"topic": ""} for each in found["topics"]])
        everything = attacker.call(stream, METADATA_API, 7, {"topics": None})
    assert answers[0] == answers[1]
    assert [each["topic"] for each in everything["topics"]] == ["own"]
    assert {line["reason"] for line in attacker.lines()} == {"access denied"}


def test_groups_of_others_are_not_listed(attacker: Attacker) -> None:
    found = attacker.as_user("mallory", LIST_GROUPS_API, 2, {})
    assert {each["group_id"] for each in found["groups"]} <= {"own"}


def test_produce_to_a_topic_of_others(attacker: Attacker) -> None:
    with attacker.known("mallory") as stream:
        answer = attacker.asked(stream, produce_frame(SECRET, a_batch("x")))
    assert produce_error(answer, SECRET) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    attacker.rejected_once("access denied", verb="produce", resource_name=SECRET)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "../../etc/passwd", "own/../" + SECRET])
def test_produce_to_a_name_that_is_no_topic_of_clients(attacker: Attacker, topic: str) -> None:
    with attacker.known("mallory") as stream:
        answer = attacker.asked(stream, produce_frame(topic, a_batch("x")))
    assert produce_error(answer, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    attacker.rejected_once("access denied", verb="produce")


@pytest.mark.parametrize("topic", ["..", ".", "../x", "a/b", "a\0b", "a\r\nb", "x" * 250])
def test_topics_are_not_named_like_paths(attacker: Attacker, topic: str) -> None:
    """By an administrator: nothing to audit but that no such topic is made."""
    new = {
        "topic": topic, "partition_count": 1, "replication_factor": 1, "assignments": (),
        "configs": (),
    }  # fmt: skip
    values = {"topics": [new], "timeout_ms": 5000, "validate_only": False}
    found = attacker.as_user("admin", CREATE_TOPICS_API, 4, values)
    assert errors_in(found) == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert attacker.lines() == []


def fetch_v4(topic: str, *, replica_id: int = -1, isolation: int = 0) -> bytes:
    name = topic.encode()
    body = struct.pack(">iiiib", replica_id, 0, 1, 1 << 20, isolation)
    body += struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    return frame(1, 4, body)


def fetched_error(answer: bytes, topic: str) -> int:
    """v4: correlation, throttle, topics, name, partitions, partition, error."""
    position = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    return int.from_bytes(answer[position : position + 2], "big", signed=True)


def test_fetch_of_a_topic_of_others(attacker: Attacker) -> None:
    with attacker.known("mallory") as stream:
        answer = attacker.asked(stream, fetch_v4(SECRET))
    assert fetched_error(answer, SECRET) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    attacker.rejected_once("access denied", verb="consume", resource_name=SECRET)


@pytest.mark.parametrize("replica_id", [-2, 0, 1, 2])
def test_fetch_of_a_replica_to_read_what_is_not_committed(
    attacker: Attacker, replica_id: int
) -> None:
    """-2 is Kafka's debugging consumer, which reads beyond the high watermark."""
    with attacker.known("mallory") as stream:
        answer = attacker.asked(stream, fetch_v4(SECRET, replica_id=replica_id, isolation=0))
    assert answer == b"" or fetched_error(answer, SECRET) in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
    assert attacker.lines()[0]["audit"] == "rejected"


def test_producer_id_of_another_client(attacker: Attacker) -> None:
    """An id is no right: records of it go only where the client may produce."""
    values = {"transactional_id": None, "transaction_timeout_ms": 1000}
    with attacker.known("mallory") as stream:
        found = attacker.call(stream, INIT_PRODUCER_ID_API, 1, values)
        assert found["error"] == ErrorCode.NONE
        batch = crafted_batch(
            [crafted_record(None, b"x")], base_ms=1, max_ms=1, producer=(found["producer_id"], 0, 0)
        )
        answer = attacker.asked(stream, produce_frame(SECRET, bytes(batch.data)))
    assert produce_error(answer, SECRET) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    attacker.rejected_once("access denied")


def test_transactional_id_of_another_client(attacker: Attacker) -> None:
    values = {"transactional_id": "payroll", "transaction_timeout_ms": 1000}
    found = attacker.as_user("mallory", INIT_PRODUCER_ID_API, 1, values)
    assert found["error"] != ErrorCode.NONE


def test_acls_are_written_by_nobody(attacker: Attacker) -> None:
    creation = {
        "resource_type": 2, "resource": SECRET, "pattern_type": 3, "principal": "User:mallory",
        "host": "*", "operation": 2, "permission": 3,
    }  # fmt: skip
    found = attacker.as_user("admin", CREATE_ACLS_API, 1, {"creations": [creation]})
    assert errors_in(found) == {ErrorCode.POLICY_VIOLATION}
    attacker.rejected_once("access denied", operation="CreateAcls")
    deleted = {
        "resource_type": 1, "resource": None, "pattern_type": 1, "principal": None, "host": None,
        "operation": 1, "permission": 1,
    }  # fmt: skip
    found = attacker.as_user("mallory", DELETE_ACLS_API, 1, {"filters": [deleted]})
    assert errors_in(found) <= {
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
    assert errors_in(found)


# ---- logs


@pytest.mark.parametrize(
    "name", ['x"}\n{"audit":"performed","address":"forged"}', "a\r\nb", "\x1b[2J", "\u2028\u2029"]
)
@pytest.mark.parametrize("api", ["topic", "group"])
def test_names_are_not_lines_of_the_log(attacker: Attacker, name: str, api: str) -> None:
    if api == "topic":
        attacker.as_user("mallory", METADATA_API, 7, {"topics": [{"topic": name}]})
    else:
        attacker.as_user("mallory", DESCRIBE_GROUPS_API, 1, {"groups": [name]})
    line = attacker.rejected_once("access denied")
    assert line["resource_name"] == name
    assert not [each for each in audit_lines(attacker.cluster) if each["address"] == "forged"]


def test_client_id_is_not_a_line_of_the_log(attacker: Attacker) -> None:
    with attacker.secured(attacker.kafka) as stream:
        attacker.asked(stream, frame(3, 1, b"\xff" * 4, b'x"}\n{"audit":"forged"}'))
    attacker.rejected_once("malformed request")


# ---- bombs

BOMB_BYTES = 64 * 2**20


def bomb(codec: int) -> bytes:
    """Return a batch of some KiB that is one record of 64 MiB once decompressed."""
    record = crafted_record(None, bytes(BOMB_BYTES))
    return bytes(crafted_batch([record], base_ms=1, max_ms=1, codec=codec).data)


def broker_pids(attacker: Attacker) -> list[int]:
    return [int(each["pid"]) for each in attacker.cluster.pool()["brokers"]]


def at_leader(attacker: Attacker) -> ssl.SSLSocket:
    leader = int(attacker.cluster.partition(0, "own")["leader"])
    return attacker.known("mallory", attacker.kafka + leader)


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_decompression_bomb(attacker: Attacker, codec: int) -> None:
    batch = bomb(codec)
    pids = broker_pids(attacker)
    before = resident_bytes(pids)
    with at_leader(attacker) as stream:
        answer = attacker.asked(stream, produce_frame("own", batch))
        error = produce_error(answer, "own") if answer else None
        assert error != ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert resident_bytes(pids) - before < 48 * 2**20, "memory is bounded"


def test_record_size_bomb(attacker: Attacker) -> None:
    """A record that says to be of 2 GiB."""
    body = b"\xfe\xff\xff\xff\x0f" + os.urandom(20)
    batch = crafted_batch([crafted_record(None, b"x")], base_ms=1, max_ms=1, body=body)
    with at_leader(attacker) as stream:
        answer = attacker.asked(stream, produce_frame("own", bytes(batch.data)))
        assert answer, "the connection lives on"
    pids = broker_pids(attacker)
    before = resident_bytes(pids)
    status, _ = attacker.get("/topics/own/partitions/0/records?offset=0", user="mallory")
    assert 200 <= status < 600
    assert resident_bytes(pids) - before < 48 * 2**20, "memory is bounded"
    assert broker_pids(attacker) == pids


def test_array_bomb(attacker: Attacker) -> None:
    with attacker.known("mallory") as stream:
        stream.sendall(frame(3, 1, struct.pack(">i", 2**31 - 1)))
        assert ended(stream)
    attacker.rejected_once("malformed request")
