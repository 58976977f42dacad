"""ListConfigResources: fields of both versions, their bytes, and frames that end early."""

from tidemark_broker.kafka_wire.messages.list_config_resources import CLIENT_METRICS
from tidemark_broker.kafka_wire.messages.list_config_resources import (
    LIST_CONFIG_RESOURCES_API as API,
)

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

REQUEST = {"resource_types": (2, 4)}
RESPONSE = {
    "throttle_time_ms": 3,
    "error": 0,
    "resources": ({"resource": "t", "resource_type": 2},),
}


def test_version_0_is_of_client_metrics_alone() -> None:
    assert received_request(API, 0, REQUEST) == {"resource_types": (CLIENT_METRICS,)}
    metrics = ({"resource": "t", "resource_type": CLIENT_METRICS},)
    assert received_response(API, 0, RESPONSE) == RESPONSE | {"resources": metrics}
    check_prefixes_are_rejected(API, 0, REQUEST, RESPONSE)


def test_version_1_names_the_types() -> None:
    assert received_request(API, 1, REQUEST) == REQUEST
    assert received_response(API, 1, RESPONSE) == RESPONSE
    check_prefixes_are_rejected(API, 1, REQUEST, RESPONSE)


def test_failed_response_has_no_resources() -> None:
    assert received_response(API, 1, {"error": 35})["resources"] == ()


def test_bytes_are_kafkas() -> None:
    assert request_hex(API, 0, REQUEST) == "00"
    assert request_hex(API, 1, REQUEST) == "03 02 04 00"
    assert response_hex(API, 0, RESPONSE) == "00 00 00 03 00 00 02 02 74 00 00"
    assert response_hex(API, 1, RESPONSE) == "00 00 00 03 00 00 02 02 74 02 00 00"


def test_other_versions_are_rejected() -> None:
    check_versions_are_limited(API)
