"""DescribeProducers: its fields and bytes, and frames that end early."""

from typing import Any

from tidemark_broker.kafka_wire.messages.describe_producers import DESCRIBE_PRODUCERS_API as API

from tests.unit.broker.kafka_wire.messages.api_frames import (
    check_prefixes_are_rejected,
    check_versions_are_limited,
    received_request,
    received_response,
    request_hex,
    response_hex,
)

REQUEST = {"topics": ({"topic": "t", "partitions": (1,)},)}
PRODUCER = {
    "producer_id": 2**40,
    "producer_epoch": 70_000,  # an int32 here alone
    "last_sequence": 5,
    "last_timestamp_ms": 6,
    "coordinator_epoch": -1,
    "transaction_start_offset": -1,
}


def answer(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"throttle_time_ms": 0, "topics": ({"topic": "t", "partitions": partitions},)}


FULL = {"partition": 1, "error": 0, "message": None, "producers": (PRODUCER,)}
FAILED = {"partition": 2, "error": 6, "message": "not leader", "producers": ()}


def test_all_fields_come_back() -> None:
    assert received_request(API, 0, REQUEST) == REQUEST
    response = answer(FULL, FAILED)
    assert received_response(API, 0, response) == response
    check_prefixes_are_rejected(API, 0, REQUEST, response)


def test_without_transactions_there_is_no_coordinator_and_no_start() -> None:
    known = {name: PRODUCER[name] for name in list(PRODUCER)[:4]}
    partition = FULL | {"producers": (known,)}
    assert received_response(API, 0, answer(partition)) == answer(FULL)


def test_bytes_are_kafkas() -> None:
    assert request_hex(API, 0, REQUEST) == "02 02 74 02 00 00 00 01 00 00"
    assert response_hex(API, 0, answer(FULL)) == (
        "00 00 00 00 02 02 74 02 00 00 00 01 00 00 00 02"  # partition, error, message, count
        " 00 00 01 00 00 00 00 00 00 01 11 70 00 00 00 05 00 00 00 00 00 00 00 06"
        " ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 00"
    )


def test_other_versions_are_rejected() -> None:
    check_versions_are_limited(API)
