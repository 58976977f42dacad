"""Elections and moves of replicas: fields of each version, their bytes, frames that end early."""

from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    PREFERRED,
    UNCLEAN,
)
from tidemark_broker.kafka_wire.messages.schema import Api

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

ELECT: dict[str, Any] = {
    "election_type": UNCLEAN,
    "topics": ({"topic": "t", "partitions": (1,)},),
    "timeout_ms": 256,
}
RESULTS = (
    {
        "topic": "t",
        "partitions": (
            {"partition": 1, "error": 0, "error_message": None},
            {"partition": 2, "error": 84, "error_message": "no"},
        ),
    },
)
ELECTED: dict[str, Any] = {"throttle_time_ms": 5, "error": 41, "topics": RESULTS}
ALTER: dict[str, Any] = {
    "timeout_ms": 256,
    "may_change_replication_factor": False,
    "topics": (
        {
            "topic": "t",
            "partitions": (
                {"partition": 1, "replicas": (2, 3)},
                {"partition": 2, "replicas": None},  # cancels
            ),
        },
    ),
}
ALTERED: dict[str, Any] = {
    "throttle_time_ms": 5,
    "may_change_replication_factor": False,
    "error": 0,
    "error_message": None,
    "topics": RESULTS,
}
LIST = {"timeout_ms": 256, "topics": ({"topic": "t", "partitions": (1,)},)}
MOVE = {"partition": 1, "replicas": (1, 2), "adding_replicas": (2,), "removing_replicas": ()}
LISTED: dict[str, Any] = {
    "throttle_time_ms": 5,
    "error": 0,
    "error_message": None,
    "topics": ({"topic": "t", "partitions": (MOVE,)},),
}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_version_0_elects_preferred_leaders_alone(version: int) -> None:
    requested = ELECT | ({} if version else {"election_type": PREFERRED})
    assert received_request(ELECT_LEADERS_API, version, ELECT) == requested
    answer = ELECTED | ({} if version else {"error": 0})
    assert received_response(ELECT_LEADERS_API, version, ELECTED) == answer
    check_prefixes_are_rejected(ELECT_LEADERS_API, version, ELECT, ELECTED)


@pytest.mark.parametrize("version", [0, 1])
def test_version_0_may_always_change_the_replication_factor(version: int) -> None:
    api = ALTER_PARTITION_REASSIGNMENTS_API
    default = {} if version else {"may_change_replication_factor": True}
    assert received_request(api, version, ALTER) == ALTER | default
    assert received_response(api, version, ALTERED) == ALTERED | default
    check_prefixes_are_rejected(api, version, ALTER, ALTERED)


def test_running_moves_are_listed() -> None:
    assert received_request(LIST_PARTITION_REASSIGNMENTS_API, 0, LIST) == LIST
    assert received_response(LIST_PARTITION_REASSIGNMENTS_API, 0, LISTED) == LISTED
    check_prefixes_are_rejected(LIST_PARTITION_REASSIGNMENTS_API, 0, LIST, LISTED)


@pytest.mark.parametrize("topics", [None, ()])
@pytest.mark.parametrize(
    ("api", "version"),
    [(ELECT_LEADERS_API, 0), (ELECT_LEADERS_API, 2), (LIST_PARTITION_REASSIGNMENTS_API, 0)],
)
def test_null_is_all_topics_and_none_is_none(
    api: Api, version: int, topics: tuple[()] | None
) -> None:
    found = received_request(api, version, {"topics": topics, "timeout_ms": 1})
    assert found["topics"] == topics


def test_bytes_are_kafkas() -> None:
    assert request_hex(ELECT_LEADERS_API, 0, ELECT) == (
        "00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 00 00 01 00"
    )
    assert request_hex(ELECT_LEADERS_API, 2, ELECT) == (
        "01 02 02 74 02 00 00 00 01 00 00 00 01 00 00"
    )
    partitions = "03 00 00 00 01 00 00 00 00 00 00 00 02 00 54 03 6e 6f 00"
    assert response_hex(ELECT_LEADERS_API, 2, ELECTED) == (
        f"00 00 00 05 00 29 02 02 74 {partitions} 00 00"
    )
    moves = "02 02 74 03 00 00 00 01 03 00 00 00 02 00 00 00 03 00 00 00 00 02 00 00 00 00"
    api = ALTER_PARTITION_REASSIGNMENTS_API
    assert request_hex(api, 0, ALTER) == f"00 00 01 00 {moves}"
    assert request_hex(api, 1, ALTER) == f"00 00 01 00 00 {moves}"
    assert response_hex(api, 1, ALTERED) == f"00 00 00 05 00 00 00 00 02 02 74 {partitions} 00 00"
    assert response_hex(LIST_PARTITION_REASSIGNMENTS_API, 0, LISTED) == (
        "00 00 00 05 00 00 00 02 02 74 02 00 00 00 01"
        " 03 00 00 00 01 00 00 00 02 02 00 00 00 02 01 00 00 00"
    )


@pytest.mark.parametrize(
    "api",
    [ALTER_PARTITION_REASSIGNMENTS_API, ELECT_LEADERS_API, LIST_PARTITION_REASSIGNMENTS_API],
)
def test_other_versions_are_rejected(api: Api) -> None:
    check_versions_are_limited(api)
