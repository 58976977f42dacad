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
from tidemark_broker.kafka_wire.messages.primitives import INT32, MalformedFrame, Reader


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


def test_a_frame_in_parts_is_preceded_by_its_length() -> None:
    assert b"".join(framed([b"ab", bytearray(b"c")])) == b"\x00\x00\x00\x03abc"
