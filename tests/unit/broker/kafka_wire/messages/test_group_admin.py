"""Lists, descriptions and deletions of groups: fields of each version, bytes, early ends."""

from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.authorized_operations import NOT_REQUESTED
from tidemark_broker.kafka_wire.messages.group_admin import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    LIST_GROUPS_API,
    OFFSET_DELETE_API,
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

DESCRIBE = {"groups": ("g", ""), "include_authorized_operations": True}
DELETE = {"groups": ("g",)}
LIST = {"states": ("Stable",), "types": ("classic", "consumer")}
OFFSETS = {"group_id": "g", "topics": ({"topic": "t", "partitions": ({"partition": 1},)},)}


def described(version: int) -> dict[str, Any]:
    """What this version says; what it cannot say has the default."""
    member = {
        "member_id": "m",
        "group_instance_id": "i" if version >= 4 else None,
        "client_id": "c",
        "client_host": "/h",
        "metadata": b"\x00\x01",
        "assignment": b"",
    }
    group = {
        "error": 0,
        "message": "n" if version >= 6 else None,
        "group_id": "g",
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol": "range",
        "members": (member,),
        "authorized_operations": 8 if version >= 3 else NOT_REQUESTED,
    }
    return {"throttle_time_ms": 5 if version >= 1 else 0, "groups": (group,)}


def deleted(version: int) -> dict[str, Any]:
    group = {"group_id": "g", "error": 68, "message": "members" if version >= 3 else None}
    return {"throttle_time_ms": 5, "groups": (group,)}


def listed(version: int) -> dict[str, Any]:
    group = {
        "group_id": "g",
        "protocol_type": "consumer",
        "state": "Empty" if version >= 4 else "",
        "type": "consumer" if version >= 5 else "classic",
    }
    return {"throttle_time_ms": 5 if version >= 1 else 0, "error": 0, "groups": (group,)}


OFFSETS_DELETED: dict[str, Any] = {
    "error": 0,
    "throttle_time_ms": 5,
    "topics": ({"topic": "t", "partitions": ({"partition": 1, "error": 86},)},),
}


@pytest.mark.parametrize("version", range(7))
def test_each_version_describes_what_it_can(version: int) -> None:
    requested = DESCRIBE | {"include_authorized_operations": version >= 3}
    assert received_request(DESCRIBE_GROUPS_API, version, DESCRIBE) == requested
    assert received_response(DESCRIBE_GROUPS_API, version, described(6)) == described(version)
    check_prefixes_are_rejected(DESCRIBE_GROUPS_API, version, DESCRIBE, described(6))


def test_group_with_an_error_has_no_members_and_no_state() -> None:
    failed = {"groups": ({"error": 16, "group_id": "g"},)}
    (group,) = received_response(DESCRIBE_GROUPS_API, 6, failed)["groups"]
    assert (group["members"], group["state"], group["protocol"]) == ((), "", "")
    assert group["authorized_operations"] == -(2**31)


@pytest.mark.parametrize("version", range(4))
def test_deletion_of_each_group_has_its_error_and_from_version_3_a_message(version: int) -> None:
    assert received_request(DELETE_GROUPS_API, version, DELETE) == DELETE
    assert received_response(DELETE_GROUPS_API, version, deleted(3)) == deleted(version)
    check_prefixes_are_rejected(DELETE_GROUPS_API, version, DELETE, deleted(3))


@pytest.mark.parametrize("version", range(6))
def test_lists_are_filtered_by_state_from_version_4_and_by_type_from_5(version: int) -> None:
    states = LIST["states"] if version >= 4 else ()
    types = LIST["types"] if version >= 5 else ()
    assert received_request(LIST_GROUPS_API, version, LIST) == {"states": states, "types": types}
    assert received_response(LIST_GROUPS_API, version, listed(5)) == listed(version)
    check_prefixes_are_rejected(LIST_GROUPS_API, version, LIST, listed(5))


def test_offsets_are_deleted_by_partition() -> None:
    assert received_request(OFFSET_DELETE_API, 0, OFFSETS) == OFFSETS
    assert received_response(OFFSET_DELETE_API, 0, OFFSETS_DELETED) == OFFSETS_DELETED
    check_prefixes_are_rejected(OFFSET_DELETE_API, 0, OFFSETS, OFFSETS_DELETED)


def test_requests_have_kafkas_bytes() -> None:
    describe, lists = DESCRIBE_GROUPS_API, LIST_GROUPS_API
    assert request_hex(describe, 2, DESCRIBE) == "00 00 00 02 00 01 67 00 00"
    assert request_hex(describe, 4, DESCRIBE) == "00 00 00 02 00 01 67 00 00 01"
    assert request_hex(describe, 5, DESCRIBE) == "03 02 67 01 01 00"
    assert request_hex(DELETE_GROUPS_API, 1, DELETE) == "00 00 00 01 00 01 67"
    assert request_hex(DELETE_GROUPS_API, 2, DELETE) == "02 02 67 00"
    assert [request_hex(lists, version, LIST) for version in (2, 3)] == ["", "00"]
    assert request_hex(lists, 4, LIST) == "02 07 53 74 61 62 6c 65 00"
    assert request_hex(OFFSET_DELETE_API, 0, OFFSETS) == (
        "00 01 67 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01"
    )


def test_responses_have_kafkas_bytes() -> None:
    assert response_hex(DELETE_GROUPS_API, 0, deleted(3)) == (
        "00 00 00 05 00 00 00 01 00 01 67 00 44"
    )
    assert response_hex(LIST_GROUPS_API, 0, listed(5)) == (
        "00 00 00 00 00 01 00 01 67 00 08 63 6f 6e 73 75 6d 65 72"
    )
    # The error is before the throttle time, which no other response here has.
    assert response_hex(OFFSET_DELETE_API, 0, {"error": 69, "throttle_time_ms": 5}) == (
        "00 45 00 00 00 05 00 00 00 00"
    )
    assert response_hex(DESCRIBE_GROUPS_API, 6, described(6)) == (
        "00 00 00 05 02 00 00 02 6e 02 67 07 53 74 61 62 6c 65"
        " 09 63 6f 6e 73 75 6d 65 72 06 72 61 6e 67 65"
        " 02 02 6d 02 69 02 63 03 2f 68 03 00 01 01 00"  # one member
        " 00 00 00 08 00 00"
    )


@pytest.mark.parametrize(
    "api", [DESCRIBE_GROUPS_API, DELETE_GROUPS_API, LIST_GROUPS_API, OFFSET_DELETE_API]
)
def test_other_versions_are_rejected(api: Api) -> None:
    check_versions_are_limited(api)
