"""Requests and responses of one API there and back, as a client and a broker read them."""

from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.frames import read_request_header
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_broker.kafka_wire.messages.schema import Api

Values = dict[str, Any]
CORRELATION_ID = 7
# What the tests' headers have: api key, version, correlation id, client id, tagged fields.
HEADER_BYTES, FLEXIBLE_HEADER_BYTES = 11, 12


def received_request(api: Api, version: int, values: Values) -> Values:
    return _read_request(api, version, _request(api, version, values))


def received_response(api: Api, version: int, values: Values) -> Values:
    frame = _response(api, version, values)
    correlation_id, found = api.decode_response(frame, version)
    assert correlation_id == CORRELATION_ID
    return found


def request_hex(api: Api, version: int, values: Values) -> str:
    """The request after its header."""
    start = FLEXIBLE_HEADER_BYTES if api.is_flexible(version) else HEADER_BYTES
    return _request(api, version, values)[start:].hex(" ")


def response_hex(api: Api, version: int, values: Values) -> str:
    """The response after its header."""
    return _response(api, version, values)[5 if api.is_flexible(version) else 4 :].hex(" ")


def check_prefixes_are_rejected(api: Api, version: int, request: Values, response: Values) -> None:
    """Check that no frame that ends early is read, or fails with another error."""
    frame = _request(api, version, request)
    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            _read_request(api, version, frame[:size])
    frame = _response(api, version, response)
    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            api.decode_response(frame[:size], version)


def check_versions_are_limited(api: Api) -> None:
    for version in (api.min_version - 1, api.max_version + 1):
        with pytest.raises(MalformedFrame, match=f"{api.name}: expected version"):
            api.decode_request(Reader(b""), version)


def _request(api: Api, version: int, values: Values) -> bytes:
    return api.encode_request(CORRELATION_ID, version, "c", values)[4:]


def _response(api: Api, version: int, values: Values) -> bytes:
    return b"".join(api.encode_response(CORRELATION_ID, version, values))[4:]


def _read_request(api: Api, version: int, frame: bytes) -> Values:
    reader = Reader(frame)
    header = read_request_header(reader)
    assert (header.api_key, header.api_version) == (api.api_key, version)
    return api.decode_request(reader, version)
