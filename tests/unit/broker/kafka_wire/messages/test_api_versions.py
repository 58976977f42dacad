"""ApiVersions: each version's bytes, and how an unknown version is answered."""

import pytest
from tidemark_broker.kafka_wire.messages.api_versions import (
    MeantNode,
    SupportedApi,
    decode_api_versions_request,
    encode_api_versions_response,
)
from tidemark_broker.kafka_wire.messages.frames import RequestHeader
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_protocol.error_codes import ErrorCode

SUPPORTED = (SupportedApi(1, 15, 17), SupportedApi(18, 0, 4))


def responded(version: int) -> str:
    header = RequestHeader(18, version, 7, None)
    return b"".join(encode_api_versions_response(header, SUPPORTED)).hex(" ")


def test_version_0() -> None:
    assert responded(0) == (
        "00 00 00 16 00 00 00 07 00 00 00 00 00 02 00 01 00 0f 00 11 00 12 00 00 00 04"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_versions_1_and_2_add_the_throttle_time(version: int) -> None:
    assert responded(version) == (
        "00 00 00 1a 00 00 00 07 00 00 00 00 00 02 00 01 00 0f 00 11 00 12 00 00 00 04 00 00 00 00"
    )


@pytest.mark.parametrize("version", [3, 4, 5])
def test_flexible_versions_keep_the_plain_response_header(version: int) -> None:  # KIP-511
    assert responded(version) == (
        "00 00 00 1a 00 00 00 07 00 00 03 00 01 00 0f 00 11 00 00 12 00 00 00 04 00 00 00 00 00 00"
    )


def test_produce_is_told_from_version_0_so_that_old_clients_compress() -> None:  # KAFKA-18659
    response = b"".join(
        encode_api_versions_response(RequestHeader(18, 0, 7, None), (SupportedApi(0, 3, 12),))
    )
    assert response.hex(" ").endswith("00 00 00 00 00 0c")


@pytest.mark.parametrize("version", [6, 99, -1])
def test_an_unknown_version_is_answered_in_version_0_with_what_is_known(version: int) -> None:
    assert responded(version) == "00 00 00 10 00 00 00 07 00 23 00 00 00 01 00 12 00 00 00 04"


def test_request_bodies_are_checked() -> None:
    decode_api_versions_request(Reader(b""), 2)
    decode_api_versions_request(Reader(b"\x00\x04lib\x021\x00"), 4)
    for version, body in ((0, b"x"), (3, b""), (4, b"\x00\x04li"), (4, b"\x00\x04lib\x021\x00x")):
        with pytest.raises(MalformedFrame):
            decode_api_versions_request(Reader(body), version)


def test_a_client_may_say_whom_it_means() -> None:
    client = b"\x00\x04lib\x021"
    named = client + b"\x03ab\x00\x00\x00\x07\x00"
    assert decode_api_versions_request(Reader(named), 5) == MeantNode("ab", 7)
    unnamed = client + b"\x00\xff\xff\xff\xff\x00"
    assert decode_api_versions_request(Reader(unnamed), 5) == MeantNode()


def test_with_an_error_no_api_is_told() -> None:
    header = RequestHeader(18, 5, 7, None)
    error = ErrorCode.REBOOTSTRAP_REQUIRED
    response = b"".join(encode_api_versions_response(header, SUPPORTED, error)).hex(" ")
    assert response == "00 00 00 0c 00 00 00 07 00 81 01 00 00 00 00 00"
