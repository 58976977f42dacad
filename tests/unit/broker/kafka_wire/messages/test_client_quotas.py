"""Quotas of clients: fields of each version, their bytes, and frames that end early."""

from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.client_quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
)
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

DEFAULT_CLIENT = ({"entity_type": "client-id", "entity_name": None},)
ONE_CLIENT = ({"entity_type": "client-id", "entity_name": "c"},)
DESCRIBE: dict[str, Any] = {
    "components": ({"entity_type": "client-id", "match_type": 0, "match": "c"},),
    "strict": True,
}
DESCRIBED: dict[str, Any] = {
    "throttle_time_ms": 1,
    "error": 0,
    "error_message": None,
    "entries": (
        {"entity": ONE_CLIENT, "values": ({"key": "producer_byte_rate", "value": 1024.5},)},
        {"entity": DEFAULT_CLIENT, "values": ()},
    ),
}
ALTER: dict[str, Any] = {
    "entries": (
        {
            "entity": DEFAULT_CLIENT,
            "ops": ({"key": "k", "value": -0.5, "remove": False},),
        },
        {"entity": ONE_CLIENT, "ops": ({"key": "k", "value": 0.0, "remove": True},)},
    ),
    "validate_only": True,
}
ALTERED: dict[str, Any] = {
    "throttle_time_ms": 0,
    "entries": ({"error": 42, "error_message": "no", "entity": ONE_CLIENT},),
}


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_have_all_fields(version: int) -> None:
    assert received_request(DESCRIBE_CLIENT_QUOTAS_API, version, DESCRIBE) == DESCRIBE
    assert received_response(DESCRIBE_CLIENT_QUOTAS_API, version, DESCRIBED) == DESCRIBED
    check_prefixes_are_rejected(DESCRIBE_CLIENT_QUOTAS_API, version, DESCRIBE, DESCRIBED)
    assert received_request(ALTER_CLIENT_QUOTAS_API, version, ALTER) == ALTER
    assert received_response(ALTER_CLIENT_QUOTAS_API, version, ALTERED) == ALTERED
    check_prefixes_are_rejected(ALTER_CLIENT_QUOTAS_API, version, ALTER, ALTERED)


@pytest.mark.parametrize("version", [0, 1])
def test_failed_description_has_null_in_the_place_of_entries(version: int) -> None:
    failed = {"throttle_time_ms": 0, "error": 42, "error_message": "no", "entries": None}
    assert received_response(DESCRIBE_CLIENT_QUOTAS_API, version, failed) == failed


@pytest.mark.parametrize("version", [0, 1])
def test_type_of_an_entity_is_never_null(version: int) -> None:
    wrong = {"components": ({"entity_type": None, "match_type": 0, "match": None},), "strict": True}
    with pytest.raises(MalformedFrame, match="entity_type: expected a value"):
        received_request(DESCRIBE_CLIENT_QUOTAS_API, version, wrong)


def test_bytes_are_kafkas() -> None:
    text = "63 6c 69 65 6e 74 2d 69 64"
    assert request_hex(DESCRIBE_CLIENT_QUOTAS_API, 0, DESCRIBE) == (
        f"00 00 00 01 00 09 {text} 00 00 01 63 01"
    )
    assert request_hex(DESCRIBE_CLIENT_QUOTAS_API, 1, DESCRIBE) == f"02 0a {text} 00 02 63 00 01 00"
    one = {"entries": ALTER["entries"][:1], "validate_only": True}
    assert request_hex(ALTER_CLIENT_QUOTAS_API, 1, one) == (
        f"02 02 0a {text} 00 00"  # one entry of one entity without a name
        " 02 02 6b bf e0 00 00 00 00 00 00 00 00 00"  # k = -0.5; operation and entry end
        " 01 00"
    )
    assert response_hex(ALTER_CLIENT_QUOTAS_API, 0, ALTERED) == (
        f"00 00 00 00 00 00 00 01 00 2a 00 02 6e 6f 00 00 00 01 00 09 {text} 00 01 63"
    )


def test_other_versions_are_rejected() -> None:
    check_versions_are_limited(DESCRIBE_CLIENT_QUOTAS_API)
    check_versions_are_limited(ALTER_CLIENT_QUOTAS_API)
