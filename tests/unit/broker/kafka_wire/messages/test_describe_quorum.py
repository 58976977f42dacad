"""DescribeQuorum: fields of each version, its bytes, and frames that end early."""

from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.describe_quorum import DESCRIBE_QUORUM_API as API
from tidemark_broker.kafka_wire.messages.describe_quorum import METADATA_TOPIC
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

REQUEST = {"topics": ({"topic": METADATA_TOPIC, "partitions": ({"partition": 0},)},)}
DIRECTORY_ID = "00112233-4455-6677-8899-aabbccddeeff"


def answer(version: int) -> dict[str, Any]:
    """What this version says; what it cannot say has the default."""
    voter = {
        "replica_id": 1,
        "directory_id": DIRECTORY_ID if version >= 2 else ZERO_TOPIC_ID,
        "log_end_offset": 9,
        "last_fetch_ms": 5 if version >= 1 else -1,
        "last_caught_up_ms": 6 if version >= 1 else -1,
    }
    partition = {
        "partition": 0,
        "error": 0,
        "message": "m" if version >= 2 else None,
        "leader": 1,
        "leader_epoch": 3,
        "high_watermark": 8,
        "voters": (voter,),
        "observers": (),
    }
    listener = {"name": "CONTROLLER", "host": "h", "port": 65_535}  # an unsigned port
    return {
        "error": 0,
        "message": "n" if version >= 2 else None,
        "topics": ({"topic": METADATA_TOPIC, "partitions": (partition,)},),
        "nodes": ({"node_id": 1, "listeners": (listener,)},) if version >= 2 else (),
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_version_has_its_fields_and_the_defaults_of_others(version: int) -> None:
    assert received_request(API, version, REQUEST) == REQUEST
    assert received_response(API, version, answer(2)) == answer(version)
    check_prefixes_are_rejected(API, version, REQUEST, answer(2))


def test_unknown_partition_has_no_leader_and_no_replicas() -> None:
    partition = {"partition": 7, "error": 3}
    topics = ({"topic": "t", "partitions": (partition,)},)
    found = received_response(API, 0, {"error": 0, "topics": topics})
    assert found["topics"][0]["partitions"][0] == partition | {
        "message": None,
        "leader": -1,
        "leader_epoch": -1,
        "high_watermark": -1,
        "voters": (),
        "observers": (),
    }


def test_bytes_are_kafkas() -> None:
    name = METADATA_TOPIC.encode().hex(" ")
    assert request_hex(API, 0, REQUEST) == f"02 13 {name} 02 00 00 00 00 00 00 00"
    assert response_hex(API, 1, answer(2)) == (
        f"00 00 02 13 {name} 02 00 00 00 00 00 00"  # partition 0, no error
        " 00 00 00 01 00 00 00 03 00 00 00 00 00 00 00 08"  # leader, epoch, high watermark
        " 02 00 00 00 01 00 00 00 00 00 00 00 09"  # one voter
        " 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 06 00"
        " 01 00 00 00"  # no observer; partition, topic and response end
    )


def test_other_versions_are_rejected() -> None:
    check_versions_are_limited(API)
