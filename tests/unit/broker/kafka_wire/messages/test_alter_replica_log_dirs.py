"""AlterReplicaLogDirs: fields of each version, its bytes, and frames that end early."""

import pytest
from tidemark_broker.kafka_wire.messages.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS_API as API,
)

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

REQUEST = {"directories": ({"path": "/d", "topics": ({"topic": "t", "partitions": (0, 258)},)},)}
RESPONSE = {
    "throttle_time_ms": 9,
    "topics": ({"topic": "t", "partitions": ({"partition": 258, "error": 57},)},),
}


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_have_all_fields(version: int) -> None:
    assert received_request(API, version, REQUEST) == REQUEST
    assert received_response(API, version, RESPONSE) == RESPONSE
    check_prefixes_are_rejected(API, version, REQUEST, RESPONSE)


def test_bytes_are_kafkas() -> None:
    assert request_hex(API, 1, REQUEST) == (
        "00 00 00 01 00 02 2f 64 00 00 00 01 00 01 74 00 00 00 02 00 00 00 00 00 00 01 02"
    )
    assert request_hex(API, 2, REQUEST) == (
        "02 03 2f 64 02 02 74 03 00 00 00 00 00 00 01 02 00 00 00"  # three structs end
    )
    assert response_hex(API, 2, RESPONSE) == ("00 00 00 09 02 02 74 02 00 00 01 02 00 39 00 00 00")


def test_other_versions_are_rejected() -> None:
    check_versions_are_limited(API)
