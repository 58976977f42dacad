"""Requests of group members: fields of each version, their bytes, and frames that end early."""

from collections.abc import Callable
from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.group_membership import (
    FIND_COORDINATOR_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    SYNC_GROUP_API,
)
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame
from tidemark_broker.kafka_wire.messages.schema import Api

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

Values = dict[str, Any]
Fields = Callable[[int], Values]  # what a version says; what it cannot say has the default


def since(version: int, first: int, value: Any, default: Any = None) -> Any:
    return value if version >= first else default


def join(version: int) -> Values:
    return {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": since(version, 1, 60_000, -1),
        "member_id": "m",
        "group_instance_id": since(version, 5, "i"),
        "protocol_type": "consumer",
        "protocols": ({"name": "range", "metadata": b"\x00\x01"},),
        "reason": since(version, 8, "r"),
    }


def joined(version: int) -> Values:
    member = {
        "member_id": "m",
        "group_instance_id": since(version, 5, "i"),
        "metadata": b"\x00\x01",
    }
    return {
        "throttle_time_ms": since(version, 2, 5, 0),
        "error": 0,
        "generation_id": 3,
        "protocol_type": since(version, 7, "consumer"),
        "protocol": "range",
        "leader_id": "m",
        "skip_assignment": since(version, 9, True, False),
        "member_id": "m",
        "members": (member,),
    }


def find(version: int) -> Values:
    return {
        "key": "g" if version < 4 else "",
        "key_type": since(version, 1, 1, 0),
        "keys": since(version, 4, ("g", "h"), ()),
    }


def coordinator(version: int) -> Values:
    many = {
        "key": "g",
        "broker_id": 2,
        "host": "b",
        "port": 9092,
        "error": 15,
        "message": "m",
    }
    is_single = version < 4
    return {
        "throttle_time_ms": since(version, 1, 5, 0),
        "error": 15 if is_single else 0,
        "message": "n" if 1 <= version < 4 else None,
        "broker_id": 1 if is_single else -1,
        "host": "a" if is_single else "",
        "port": 9093 if is_single else -1,
        "coordinators": () if is_single else (many,),
    }


def heartbeat(version: int) -> Values:
    member = {"group_id": "g", "generation_id": 3, "member_id": "m"}
    return member | {"group_instance_id": since(version, 3, "i")}


def alive(version: int) -> Values:
    return {"throttle_time_ms": since(version, 1, 5, 0), "error": 27}


def leave(version: int) -> Values:
    member = {"member_id": "m", "group_instance_id": "i", "reason": since(version, 5, "r")}
    return {
        "group_id": "g",
        "member_id": "m" if version < 3 else "",
        "members": since(version, 3, (member,), ()),
    }


def left(version: int) -> Values:
    member = {"member_id": "m", "group_instance_id": None, "error": 25}
    return alive(version) | {"members": since(version, 3, (member,), ())}


def sync(version: int) -> Values:
    return heartbeat(version) | {
        "protocol_type": since(version, 5, "consumer"),
        "protocol": since(version, 5, "range"),
        "assignments": ({"member_id": "m", "assignment": b"\x09"},),
    }


def synced(version: int) -> Values:
    return alive(version) | {
        "protocol_type": since(version, 5, "consumer"),
        "protocol": since(version, 5, "range"),
        "assignment": b"\x09",
    }


# With the fields that only older versions have.
COORDINATOR = {"error": 15, "message": "n", "broker_id": 1, "host": "a", "port": 9093}
MESSAGES: list[tuple[Api, Fields, Fields, Values, Values]] = [
    (JOIN_GROUP_API, join, joined, {}, {}),
    (FIND_COORDINATOR_API, find, coordinator, {"key": "g"}, COORDINATOR),
    (HEARTBEAT_API, heartbeat, alive, {}, {}),
    (LEAVE_GROUP_API, leave, left, {"member_id": "m"}, {}),
    (SYNC_GROUP_API, sync, synced, {}, {}),
]
CASES = [
    pytest.param(*message, version, id=f"{message[0].name}-{version}")
    for message in MESSAGES
    for version in range(message[0].min_version, message[0].max_version + 1)
]


@pytest.mark.parametrize(
    ("api", "request_of", "response_of", "older_request", "older_response", "version"), CASES
)
def test_each_version_has_its_fields_and_the_defaults_of_others(
    api: Api,
    request_of: Fields,
    response_of: Fields,
    older_request: Values,
    older_response: Values,
    version: int,
) -> None:
    request = request_of(api.max_version) | older_request
    response = response_of(api.max_version) | older_response
    assert received_request(api, version, request) == request_of(version)
    assert received_response(api, version, response) == response_of(version)
    check_prefixes_are_rejected(api, version, request, response)


@pytest.mark.parametrize(("version", "is_allowed"), [(5, False), (6, False), (7, True), (9, True)])
def test_protocol_of_a_join_may_be_null_from_version_7(version: int, is_allowed: bool) -> None:
    response = joined(version) | {"protocol": None}
    if is_allowed:
        assert received_response(JOIN_GROUP_API, version, response) == response
    else:
        with pytest.raises(MalformedFrame, match="protocol: expected a value"):
            received_response(JOIN_GROUP_API, version, response)


def test_errors_alone_are_complete_responses() -> None:
    error = {"error": 79}
    assert received_response(JOIN_GROUP_API, 9, error)["generation_id"] == -1
    assert received_response(SYNC_GROUP_API, 5, error)["assignment"] == b""
    assert received_response(LEAVE_GROUP_API, 5, error)["members"] == ()


def test_requests_have_kafkas_bytes() -> None:
    consumer, rules = "63 6f 6e 73 75 6d 65 72", "72 61 6e 67 65"
    assert request_hex(JOIN_GROUP_API, 0, join(0)) == (
        f"00 01 67 00 00 27 10 00 01 6d 00 08 {consumer}"
        f" 00 00 00 01 00 05 {rules} 00 00 00 02 00 01"
    )
    assert request_hex(JOIN_GROUP_API, 9, join(9)) == (
        f"02 67 00 00 27 10 00 00 ea 60 02 6d 02 69 09 {consumer} 02 06 {rules} 03 00 01 00"
        " 02 72 00"
    )
    assert request_hex(FIND_COORDINATOR_API, 0, find(0)) == "00 01 67"
    assert request_hex(FIND_COORDINATOR_API, 3, find(3)) == "02 67 01 00"
    assert request_hex(FIND_COORDINATOR_API, 4, find(4)) == "01 03 02 67 02 68 00"
    assert request_hex(HEARTBEAT_API, 3, heartbeat(3)) == "00 01 67 00 00 00 03 00 01 6d 00 01 69"
    assert request_hex(HEARTBEAT_API, 4, heartbeat(4)) == "02 67 00 00 00 03 02 6d 02 69 00"
    assert request_hex(LEAVE_GROUP_API, 2, leave(2)) == "00 01 67 00 01 6d"
    assert request_hex(LEAVE_GROUP_API, 5, leave(5)) == "02 67 02 02 6d 02 69 02 72 00 00"
    assert request_hex(SYNC_GROUP_API, 5, sync(5)) == (
        f"02 67 00 00 00 03 02 6d 02 69 09 {consumer} 06 {rules} 02 02 6d 02 09 00 00"
    )


def test_responses_have_kafkas_bytes() -> None:
    consumer, rules = "63 6f 6e 73 75 6d 65 72", "72 61 6e 67 65"
    assert response_hex(JOIN_GROUP_API, 9, joined(9)) == (
        f"00 00 00 05 00 00 00 00 00 03 09 {consumer} 06 {rules} 02 6d 01 02 6d"
        " 02 02 6d 02 69 03 00 01 00 00"
    )
    assert response_hex(FIND_COORDINATOR_API, 0, coordinator(0)) == (
        "00 0f 00 00 00 01 00 01 61 00 00 23 85"
    )
    assert response_hex(FIND_COORDINATOR_API, 6, coordinator(6)) == (
        "00 00 00 05 02 02 67 00 00 00 02 02 62 00 00 23 84 00 0f 02 6d 00 00"
    )
    assert response_hex(HEARTBEAT_API, 0, alive(0)) == "00 1b"
    assert response_hex(LEAVE_GROUP_API, 4, left(4)) == "00 00 00 05 00 1b 02 02 6d 00 00 19 00 00"
    assert response_hex(SYNC_GROUP_API, 0, synced(0)) == "00 1b 00 00 00 01 09"


@pytest.mark.parametrize("api", [api for api, *_ in MESSAGES])
def test_other_versions_are_rejected(api: Api) -> None:
    check_versions_are_limited(api)
