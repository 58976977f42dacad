"""Error codes against kafka-python's, an independent table: numbers, names and who may retry."""

from inspect import getmembers, isclass
from typing import Any

import kafka.errors
import pytest
from tidemark_protocol.error_codes import RETRIABLE_ERRORS, ErrorCode

CLASSES: list[tuple[str, Any]] = getmembers(kafka.errors, isclass)
THEIRS = {
    error.errno: error
    for _, error in CLASSES
    if issubclass(error, kafka.errors.BrokerResponseError)
}
# Kafka's `Errors` has other names for these than kafka-python.
OTHER_NAMES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UNKNOWN",
    ErrorCode.NONE: "NO_ERROR",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    ErrorCode.MESSAGE_TOO_LARGE: "MESSAGE_SIZE_TOO_LARGE",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "INVALID_REPLICATION_ASSIGNMENT",
}
NEWER = {ErrorCode.REBOOTSTRAP_REQUIRED}  # KIP-1102
# kafka-python does not retry it: Kafka's CorruptRecordException is retriable.
ONLY_OURS = {ErrorCode.CORRUPT_MESSAGE}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in NEWER])
def test_code_has_the_number_of_its_name_in_kafka(code: ErrorCode) -> None:
    assert THEIRS[code].message == OTHER_NAMES.get(code, code.name)


def test_errors_that_a_client_may_retry_are_retriable_in_kafka() -> None:
    retriable = {code for code in RETRIABLE_ERRORS if THEIRS[code].retriable}
    assert retriable == RETRIABLE_ERRORS - ONLY_OURS


def test_lasting_errors_are_not_retriable() -> None:
    lasting = {
        *(ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.MESSAGE_TOO_LARGE),
        *(ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION, ErrorCode.UNSUPPORTED_VERSION),
        *(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH),
    }
    assert not lasting & RETRIABLE_ERRORS
