"""Kafka's primitive types out of untrusted bytes: values, bounds and budgets."""

import struct
from collections.abc import Callable

import pytest
from tidemark_broker.kafka_wire.messages.primitives import (
    INT16,
    MalformedFrame,
    Reader,
    array_length,
    compact_string,
    nullable_string,
    tagged_field,
    topic_id_from_bytes,
    topic_id_to_bytes,
    unsigned_varint,
)
from tidemark_protocol.ids import TopicId

TOPIC_ID = TopicId("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("read", "size", "data", "value"),
    [
        (Reader.int8, 1, "80", -128),
        (Reader.int16, 2, "7fff", 2**15 - 1),
        (Reader.int32, 4, "fffffffe", -2),
        (Reader.int64, 8, "8000000000000000", -(2**63)),
    ],
)
def test_integers_are_signed_and_big_endian_and_never_read_beyond_the_end(
    read: Callable[[Reader], int], size: int, data: str, value: int
) -> None:
    reader = Reader(bytes.fromhex(data) + b"x")
    assert (read(reader), reader.position) == (value, size)
    for end in range(size):
        short = Reader(bytes(end))
        with pytest.raises(MalformedFrame, match=f"expected {size} more bytes, found {end}"):
            read(short)
        assert short.position == 0


@pytest.mark.parametrize("size", [-1, 4, 2**31])
def test_sizes_below_zero_or_beyond_the_end_are_rejected(size: int) -> None:
    reader = Reader(b"abcd")
    reader.take(1)
    with pytest.raises(MalformedFrame, match=f"at byte 1: expected {size} more bytes, found 3"):
        reader.take(size)


def test_fields_of_a_layout_are_read_together() -> None:
    reader = Reader(b"\x00\x01\x00\x00\x00\x02x")
    assert reader.fields(struct.Struct(">hi")) == (1, 2)
    assert reader.position == 6


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_varints_have_the_low_bits_first(value: int, encoded: str) -> None:
    assert unsigned_varint(value).hex() == encoded


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14, 2**28, 2**32 - 1])
def test_varints_round_trip(value: int) -> None:
    assert Reader(unsigned_varint(value)).unsigned_varint() == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\x7f",
        b"\x80\x80\x80\x80\x10",
        b"\x80" * 20,
    ],
)
def test_hostile_varints_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        Reader(data).unsigned_varint()


def test_a_count_that_cannot_fit_is_refused_before_anything_is_made() -> None:
    reader = Reader(unsigned_varint(2**31) + b"\x00" * 100)
    with pytest.raises(MalformedFrame, match="elements of 33 or more bytes, expected at most"):
        reader.count(smallest_bytes=33)


def test_a_frame_has_a_budget_of_elements_however_long_it_is() -> None:
    reader = Reader(2 * (unsigned_varint(10_001) + bytes(10_000)))
    assert reader.count(smallest_bytes=1) == 10_000
    reader.take(10_000)
    with pytest.raises(MalformedFrame, match="at most 6000"):
        reader.count(smallest_bytes=1)


def test_a_struct_has_a_budget_of_tagged_fields() -> None:
    assert len(Reader(b"\x64" + b"\x00\x00" * 100).tagged_fields((0,))) == 100
    with pytest.raises(MalformedFrame, match="101 tagged fields, expected at most 100"):
        Reader(b"\x65" + b"\x00\x00" * 101).tagged_fields()


def test_tagged_fields_count_against_the_frame_and_unknown_ones_are_passed_over() -> None:
    reader = Reader((b"\x02" + b"\x07\x01x" + b"\x08\x00") * 2, most_elements=3)
    assert [tag for tag, _ in reader.tagged_fields((8,))] == [8]
    assert (reader.position, reader.elements_left) == (6, 1)
    with pytest.raises(MalformedFrame, match="2 tagged fields, expected at most 1"):
        reader.tagged_fields()


def test_tagged_fields_that_cannot_fit_are_refused() -> None:
    for data in (b"\xff\xff\xff\x7f", b"\x01\x00\x05ab", b"\x02\x00\x00"):
        with pytest.raises(MalformedFrame):
            Reader(data).tagged_fields()


@pytest.mark.parametrize("is_flexible", [True, False])
@pytest.mark.parametrize("count", [-1, 0, 1, 200])
def test_lengths_of_arrays_round_trip_and_minus_one_is_null(count: int, is_flexible: bool) -> None:
    reader = Reader(array_length(count, is_flexible=is_flexible) + bytes(200), most_elements=200)
    assert reader.count(smallest_bytes=1, is_flexible=is_flexible) == count
    assert reader.elements_left == 200 - max(count, 0)


@pytest.mark.parametrize("text", [None, "", "a", "\u00e9" * 100])
def test_strings_round_trip_and_null_is_not_empty(text: str | None) -> None:
    assert Reader(compact_string(text)).compact_string() == text
    assert Reader(nullable_string(text)).nullable_string() == text


def test_strings_have_kafkas_bytes() -> None:
    assert compact_string("ab") == b"\x03ab"
    assert nullable_string("ab") == b"\x00\x02ab"


@pytest.mark.parametrize("text", ["ab", "\u00e9"])
def test_strings_that_are_cut_are_rejected(text: str) -> None:
    for encoded, read in (
        (compact_string(text), Reader.compact_string),
        (nullable_string(text), Reader.nullable_string),
    ):
        for end in range(len(encoded)):
            with pytest.raises(MalformedFrame):
                read(Reader(encoded[:end]))


def test_strings_that_are_not_utf_8_are_rejected() -> None:
    for data, read in (
        (b"\x02\xff", Reader.compact_string),
        (INT16.pack(1) + b"\xff", Reader.nullable_string),
    ):
        with pytest.raises(MalformedFrame, match="not UTF-8"):
            read(Reader(data))


def test_bytes_are_a_view_of_the_frame() -> None:
    frame = bytearray(b"\x03ab\x01\x00")
    reader = Reader(frame)
    views = [reader.compact_bytes() for _ in range(3)]
    frame[1:3] = b"xy"
    assert [None if view is None else bytes(view) for view in views] == [b"xy", b"", None]


def test_topic_ids_are_the_sixteen_bytes_of_their_uuid() -> None:
    raw = bytes.fromhex(TOPIC_ID.replace("-", ""))
    assert topic_id_to_bytes(TOPIC_ID) == raw
    assert topic_id_from_bytes(raw) == Reader(raw).topic_id() == TOPIC_ID
    with pytest.raises(MalformedFrame):
        Reader(raw[:15]).topic_id()


def test_tagged_fields_that_are_known_are_read_in_the_order_sent() -> None:
    data = b"\x03" + tagged_field(9, b"nine") + tagged_field(8, b"") + tagged_field(300, b"\x05")
    found = Reader(data).tagged_fields((8, 9, 300))
    assert [tag for tag, _ in found] == [9, 8, 300]
    contents = [bytes(reader.data) for _, reader in found]
    assert contents == [b"nine", b"", b"\x05"]


def test_bytes_after_the_last_field_are_rejected_where_none_may_be() -> None:
    reader = Reader(b"\x00\x00")
    reader.int8()
    with pytest.raises(MalformedFrame, match="expected the end of the frame, found 1 more bytes"):
        reader.expect_end()
    reader.int8()
    reader.expect_end()
