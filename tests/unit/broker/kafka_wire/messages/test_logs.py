"""DescribeLogDirs and DeleteRecords: fields of each version, their bytes, frames that end early."""

from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.logs import DELETE_RECORDS_API, DESCRIBE_LOG_DIRS_API

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

DESCRIBE = {"topics": ({"topic": "t", "partitions": (1, 2)},)}
DELETE = {
    "topics": ({"topic": "t", "partitions": ({"partition": 1, "offset": -1},)},),
    "timeout_ms": 30_000,
}
DELETED = {
    "throttle_time_ms": 4,
    "topics": (
        {"topic": "t", "partitions": ({"partition": 1, "low_watermark": 2**40, "error": 0},)},
    ),
}


def described(version: int) -> dict[str, Any]:
    """What this version says; what it cannot say has the default."""
    replica = {"partition": 1, "size_bytes": 2**33, "offset_lag": 3, "is_future": False}
    directory = {
        "error": 56,
        "path": "/d",
        "topics": ({"topic": "t", "partitions": (replica,)},),
        "total_bytes": 2**41 if version >= 4 else -1,
        "usable_bytes": 2**40 if version >= 4 else -1,
        "is_cordoned": version >= 5,
    }
    return {
        "throttle_time_ms": 9,
        "error": 31 if version >= 3 else 0,
        "directories": (directory,),
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_each_version_describes_what_it_can(version: int) -> None:
    assert received_request(DESCRIBE_LOG_DIRS_API, version, DESCRIBE) == DESCRIBE
    assert received_response(DESCRIBE_LOG_DIRS_API, version, described(5)) == described(version)
    check_prefixes_are_rejected(DESCRIBE_LOG_DIRS_API, version, DESCRIBE, described(5))


@pytest.mark.parametrize("version", [1, 5])
def test_null_is_all_topics_and_none_is_none(version: int) -> None:
    for topics in (None, ()):
        found = received_request(DESCRIBE_LOG_DIRS_API, version, {"topics": topics})
        assert found == {"topics": topics}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_with_the_same_fields_in_each_version(version: int) -> None:
    assert received_request(DELETE_RECORDS_API, version, DELETE) == DELETE
    assert received_response(DELETE_RECORDS_API, version, DELETED) == DELETED
    check_prefixes_are_rejected(DELETE_RECORDS_API, version, DELETE, DELETED)


def test_bytes_are_kafkas() -> None:
    assert request_hex(DESCRIBE_LOG_DIRS_API, 1, {"topics": None}) == "ff ff ff ff"
    assert request_hex(DESCRIBE_LOG_DIRS_API, 2, {"topics": None}) == "00 00"
    assert response_hex(DESCRIBE_LOG_DIRS_API, 5, described(5)) == (
        "00 00 00 09 00 1f 02 00 38 03 2f 64"  # throttle time, error, directory 56 /d
        " 02 02 74 02 00 00 00 01 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 03 00 00 00"
        " 00 00 02 00 00 00 00 00 00 00 01 00 00 00 00 00 01 00 00"  # sizes, cordoned
    )
    assert request_hex(DELETE_RECORDS_API, 0, DELETE) == (
        "00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 ff ff ff ff ff ff ff ff 00 00 75 30"
    )
    assert response_hex(DELETE_RECORDS_API, 2, DELETED) == (
        "00 00 00 04 02 02 74 02 00 00 00 01 00 00 01 00 00 00 00 00 00 00 00 00 00"
    )


def test_other_versions_are_rejected() -> None:
    check_versions_are_limited(DESCRIBE_LOG_DIRS_API)
    check_versions_are_limited(DELETE_RECORDS_API)
