"""Creation, growth and deletion of topics: fields of each version, bytes, frames that end early."""

from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Api
from tidemark_broker.kafka_wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_TOPICS_API,
)

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

TOPIC_ID = "00112233-4455-6677-8899-aabbccddeeff"
TOPIC_ID_BYTES = "00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff"
CREATE: dict[str, Any] = {
    "topics": (
        {
            "topic": "t",
            "partition_count": -1,
            "replication_factor": -1,
            "assignments": ({"partition": 0, "replicas": (1, 2)},),
            "configs": ({"name": "n", "value": None}, {"name": "m", "value": ""}),
        },
    ),
    "timeout_ms": 256,
    "validate_only": True,
}
EXPAND: dict[str, Any] = {
    "topics": (
        {"topic": "t", "partition_count": 3, "assignments": ({"replicas": (1, 2)},)},
        {"topic": "u", "partition_count": 2, "assignments": None},
    ),
    "timeout_ms": 256,
    "validate_only": False,
}
EXPANDED: dict[str, Any] = {
    "throttle_time_ms": 5,
    "topics": (
        {"topic": "t", "error": 0, "error_message": None},
        {"topic": "u", "error": 37, "error_message": "no"},
    ),
}
DELETE: dict[str, Any] = {
    "topics": ({"topic": None, "topic_id": TOPIC_ID}, {"topic": "t", "topic_id": ZERO_TOPIC_ID}),
    "names": ("t", "u"),
    "timeout_ms": 256,
}


def created(version: int) -> dict[str, Any]:
    """What this version says; what it cannot say has the default."""
    config = {
        "name": "n",
        "value": "v",
        "is_read_only": False,
        "source": 5,
        "is_sensitive": False,
    }
    says_configs = version >= 5
    topic = {
        "topic": "t",
        "topic_id": TOPIC_ID if version >= 7 else ZERO_TOPIC_ID,
        "error": 0,
        "error_message": "m",
        "config_error": 29 if says_configs else 0,
        "partition_count": 3 if says_configs else -1,
        "replication_factor": 2 if says_configs else -1,
        "configs": (config,) if says_configs else None,
    }
    return {"throttle_time_ms": 5, "topics": (topic,)}


def deleted(version: int) -> dict[str, Any]:
    topic = {
        "topic": "t",
        "topic_id": TOPIC_ID if version >= 6 else ZERO_TOPIC_ID,
        "error": 3,
        "error_message": "m" if version >= 5 else None,
    }
    return {"throttle_time_ms": 5, "topics": (topic,)}


@pytest.mark.parametrize("version", range(2, 8))
def test_each_version_of_a_creation_returns_what_it_can(version: int) -> None:
    assert received_request(CREATE_TOPICS_API, version, CREATE) == CREATE
    assert received_response(CREATE_TOPICS_API, version, created(7)) == created(version)
    check_prefixes_are_rejected(CREATE_TOPICS_API, version, CREATE, created(7))


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_with_the_same_fields_in_each_version(version: int) -> None:
    assert received_request(CREATE_PARTITIONS_API, version, EXPAND) == EXPAND
    assert received_response(CREATE_PARTITIONS_API, version, EXPANDED) == EXPANDED
    check_prefixes_are_rejected(CREATE_PARTITIONS_API, version, EXPAND, EXPANDED)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_and_from_version_6_by_id(version: int) -> None:
    absent: dict[str, Any] = {"topics": ()} if version < 6 else {"names": ()}
    assert received_request(DELETE_TOPICS_API, version, DELETE) == DELETE | absent
    assert received_response(DELETE_TOPICS_API, version, deleted(6)) == deleted(version)
    check_prefixes_are_rejected(DELETE_TOPICS_API, version, DELETE, deleted(6))


def test_topic_of_a_deletion_may_be_unnamed_from_version_6() -> None:
    unnamed = {"throttle_time_ms": 0, "topics": ({"topic": None, "error": 100},)}
    assert received_response(DELETE_TOPICS_API, 6, unnamed)["topics"][0]["topic"] is None
    with pytest.raises(MalformedFrame, match="topic: expected a value"):
        received_response(DELETE_TOPICS_API, 5, unnamed)


def test_creation_has_kafkas_bytes() -> None:
    assert request_hex(CREATE_TOPICS_API, 2, CREATE) == (
        "00 00 00 01 00 01 74 ff ff ff ff ff ff"
        " 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 01 00 00 00 02"  # one assignment
        " 00 00 00 02 00 01 6e ff ff 00 01 6d 00 00"  # two configs
        " 00 00 01 00 01"
    )
    assert request_hex(CREATE_TOPICS_API, 5, CREATE) == (
        "02 02 74 ff ff ff ff ff ff"
        " 02 00 00 00 00 03 00 00 00 01 00 00 00 02 00"
        " 03 02 6e 00 00 02 6d 01 00"
        " 00 00 00 01 00 01 00"
    )
    assert response_hex(CREATE_TOPICS_API, 4, created(7)) == (
        "00 00 00 05 00 00 00 01 00 01 74 00 00 00 01 6d"
    )
    assert response_hex(CREATE_TOPICS_API, 7, created(7)) == (
        f"00 00 00 05 02 02 74 {TOPIC_ID_BYTES} 00 00 02 6d 00 00 00 03 00 02"
        " 02 02 6e 02 76 00 05 00 00"  # one config
        " 01 00 02 00 1d 00"  # one tagged field: number 0, two bytes
    )


def test_growth_and_deletion_have_kafkas_bytes() -> None:
    assert request_hex(CREATE_PARTITIONS_API, 0, EXPAND) == (
        "00 00 00 02"
        " 00 01 74 00 00 00 03 00 00 00 01 00 00 00 02 00 00 00 01 00 00 00 02"
        " 00 01 75 00 00 00 02 ff ff ff ff"
        " 00 00 01 00 00"
    )
    assert response_hex(CREATE_PARTITIONS_API, 2, EXPANDED) == (
        "00 00 00 05 03 02 74 00 00 00 00 02 75 00 25 03 6e 6f 00 00"
    )
    assert request_hex(DELETE_TOPICS_API, 3, DELETE) == (
        "00 00 00 02 00 01 74 00 01 75 00 00 01 00"
    )
    assert request_hex(DELETE_TOPICS_API, 6, DELETE) == (
        f"03 00 {TOPIC_ID_BYTES} 00 02 74 {' '.join(['00'] * 16)} 00 00 00 01 00 00"
    )
    assert response_hex(DELETE_TOPICS_API, 1, deleted(6)) == (
        "00 00 00 05 00 00 00 01 00 01 74 00 03"
    )
    assert response_hex(DELETE_TOPICS_API, 6, deleted(6)) == (
        f"00 00 00 05 02 02 74 {TOPIC_ID_BYTES} 00 03 02 6d 00 00"
    )


@pytest.mark.parametrize("api", [CREATE_PARTITIONS_API, CREATE_TOPICS_API, DELETE_TOPICS_API])
def test_other_versions_are_rejected(api: Api) -> None:
    check_versions_are_limited(api)
