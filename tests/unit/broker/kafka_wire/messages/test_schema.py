"""Tables of fields: versions, null, tags, and bounded work on hostile counts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_broker.kafka_wire.messages.frames import read_request_header
from tidemark_broker.kafka_wire.messages.group_admin import DESCRIBE_GROUPS_API
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTES,
    INT,
    LONG,
    STRING,
    TOPIC_ID,
    ZERO_TOPIC_ID,
    Api,
    ArrayOf,
    Field,
    NullableStruct,
    Struct,
    topic_array,
)

THING = Api(
    api_key=99,
    name="Thing",
    min_version=0,
    max_version=3,
    first_flexible_version=2,
    request=Struct(
        Field("name", STRING, nullable_since=1),
        Field("id", TOPIC_ID, since=1, default=ZERO_TOPIC_ID),
        Field("topics", topic_array(Field("partition", INT), Field("offset", LONG))),
        Field("payload", BYTES, nullable_since=0),
        Field("is_last", BOOLEAN, until=2, default=False),
        Field("cursor", NullableStruct(Field("at", INT)), since=2, nullable_since=2),
        Field("rack", STRING, since=3, tag=0, default=""),
    ),
    response=Struct(Field("numbers", ArrayOf(INT), nullable_since=0)),
)
VALUES: dict[str, Any] = {
    "name": "n",
    "id": "00112233-4455-6677-8899-aabbccddeeff",
    "topics": ({"topic": "t", "partitions": ({"partition": 1, "offset": 2**40},)},),
    "payload": b"xyz",
    "is_last": True,
    "cursor": {"at": 5},
    "rack": "west",
}


def request(version: int, values: dict[str, Any] = VALUES) -> bytes:
    return THING.encode_request(7, version, "me", values)[4:]


def decoded(frame: bytes, version: int) -> dict[str, Any]:
    reader = Reader(frame)
    assert read_request_header(reader).api_version == version
    return THING.decode_request(reader, version)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_each_version_carries_its_fields_and_reads_defaults_for_others(version: int) -> None:
    expected = dict(VALUES)
    if version < 1:
        expected["id"] = ZERO_TOPIC_ID
    if version < 2:
        expected["cursor"] = None
    if version < 3:
        expected["rack"] = ""
    else:
        expected["is_last"] = False
    assert decoded(request(version), version) == expected


def test_null_is_refused_where_a_version_does_not_allow_it() -> None:
    without_name = VALUES | {"name": None, "cursor": None}
    assert decoded(request(3, without_name), 3)["name"] is None
    with pytest.raises(MalformedFrame, match="name: expected a value"):
        decoded(request(0, without_name), 0)


@pytest.mark.parametrize("version", [4, 5])
def test_null_among_the_elements_of_an_array_is_refused(version: int) -> None:
    names = {"groups": ("g", None), "include_authorized_operations": False}
    reader = Reader(DESCRIBE_GROUPS_API.encode_request(7, version, "me", names)[4:])
    read_request_header(reader)
    with pytest.raises(MalformedFrame, match="found null"):
        DESCRIBE_GROUPS_API.decode_request(reader, version)


def test_an_answer_comes_back() -> None:
    for version in (1, 2):
        frame = b"".join(THING.encode_response(8, version, {"numbers": (1, -2)}))
        assert THING.decode_response(frame[4:], version) == (8, {"numbers": (1, -2)})


@pytest.mark.parametrize("version", [1, 3])
def test_every_cut_is_refused(version: int) -> None:
    frame = request(version)
    for size in range(12, len(frame)):
        with pytest.raises(MalformedFrame):
            decoded(frame[:size], version)
    assert decoded(frame + b"abc", version) == decoded(frame, version)  # as Kafka


def test_a_count_beyond_the_frame_or_the_budget_reserves_nothing() -> None:
    for version, count in ((1, b"\x7f\xff\xff\xff"), (2, b"\xff\xff\xff\xff\x07")):
        head = b"\x00\x00\x00\x08" + (b"\x00" if version == 2 else b"")
        with pytest.raises(MalformedFrame, match="elements of 1 or more bytes, expected at most"):
            THING.decode_response(head + count + bytes(100), version)
    many = b"\x00\x00\x00\x08" + (1_000_000).to_bytes(4, "big") + bytes(4_000_000)
    with pytest.raises(MalformedFrame, match="at most 100000"):
        THING.decode_response(many, 1)


@given(st.integers(0, 3), st.binary(max_size=200))
def test_random_bytes_are_decoded_or_refused(version: int, body: bytes) -> None:
    try:
        THING.decode_request(Reader(body), version)
    except MalformedFrame:
        return
