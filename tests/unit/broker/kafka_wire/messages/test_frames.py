"""Frames out of a byte stream, however it is cut, and hostile lengths."""

import pytest
from tidemark_broker.kafka_wire.messages.frames import (
    FrameSplitter,
    RequestHeader,
    framed,
    read_request_header,
    request_header,
    skip_header_tags,
)
from tidemark_broker.kafka_wire.messages.primitives import (
    INT32,
    MalformedFrame,
    Reader,
    unsigned_varint,
)


def stream_of(*frames: bytes) -> bytes:
    return b"".join(INT32.pack(len(frame)) + frame for frame in frames)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 7, 11, 1000])
def test_frames_come_out_whole_however_the_stream_is_cut(step: int) -> None:
    frames = [b"first", b"", b"x" * 300, b"last"]
    stream = stream_of(*frames)
    splitter = FrameSplitter(max_frame_bytes=300)
    found = [
        bytes(frame)
        for start in range(0, len(stream), step)
        for frame in splitter.feed(stream[start : start + step])
    ]
    assert found == frames


@pytest.mark.parametrize("size", [-1, -(2**31), 301, 2**31 - 1])
@pytest.mark.parametrize("step", [1, 4])
def test_hostile_lengths_are_refused_before_anything_is_held(size: int, step: int) -> None:
    splitter = FrameSplitter(max_frame_bytes=300)
    stream = INT32.pack(size)
    with pytest.raises(MalformedFrame, match=f"a frame of {size} bytes: expected 0 to 300"):
        for start in range(0, 4, step):
            splitter.feed(stream[start : start + step])


def test_a_hostile_length_behind_a_good_frame_is_refused() -> None:
    splitter = FrameSplitter(max_frame_bytes=300)
    with pytest.raises(MalformedFrame):
        splitter.feed(stream_of(b"good") + INT32.pack(-5))


def test_request_headers_round_trip() -> None:
    reader = Reader(request_header(1, 17, 42, "who") + b"body")
    assert read_request_header(reader) == RequestHeader(1, 17, 42, "who")
    skip_header_tags(reader)
    assert reader.data[reader.position :] == b"body"


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x01\x00\x11\x00\x00\x00", b"\x00\x01\x00\x11\x00\x00\x00\x2a\x00\x09ab"]
)
def test_cut_headers_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_request_header(Reader(data))


def test_a_client_id_that_is_not_text_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="not UTF-8"):
        read_request_header(Reader(b"\x00\x01\x00\x11\x00\x00\x00\x2a\x00\x02\xff\xfe"))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14, 2**28, 2**32 - 1])
def test_varints_round_trip(value: int) -> None:
    assert Reader(unsigned_varint(value)).unsigned_varint() == value


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x7f", b"\x80" * 20]
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


def test_a_frame_in_parts_is_preceded_by_its_length() -> None:
    assert b"".join(framed([b"ab", bytearray(b"c")])) == b"\x00\x00\x00\x03abc"
