"""What consume prints tells every record from every other, and does no harm to a terminal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json
from tidemark_cli.record_text import (
    BadFormat,
    json_lines,
    lines_for_people,
    unescaped,
    writer_of_format,
)
from tidemark_cli.terminal_text import escaped
from tidemark_client.outcomes import ConsumedRecord, RecordHeader

ANY = (
    st.none() | st.binary(max_size=8) | st.sampled_from([b"(null)", b"\\xff", b"\xff", b"\\(null)"])
)


def record(
    value: bytes | None, key: bytes | None = None, headers: tuple[RecordHeader, ...] = ()
) -> ConsumedRecord:
    return ConsumedRecord("orders", 2, 7, key, value, 1000, headers)


def test_a_byte_and_its_escape_are_told_apart() -> None:
    assert lines_for_people([record(b"\xff")]) == b"2:7\t\\xff\n"
    assert lines_for_people([record(b"\\xff")]) == b"2:7\t\\\\xff\n"
    assert json.decode(json_lines([record(b"\xff")]))["valueBase64"] == "/w=="
    assert json.decode(json_lines([record(b"\\xff")]))["value"] == "\\xff"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"a\r\n\0\tb", r"a\r\n\x00\tb"),
        (b"\x1b[2J\x7f", r"\x1b[2J\x7f"),
        ("\x9b2J ü \u202e \u2028".encode(), r"\u009b2J ü \u202e \u2028"),
        (b"C:\\dir", r"C:\\dir"),
        ("naïve 日本".encode(), "naïve 日本"),
    ],
)
def test_control_characters_are_escaped(value: bytes, text: str) -> None:
    assert escaped(value) == text


@settings(max_examples=30)
@given(ANY, ANY, ANY, ANY)
def test_two_records_that_differ_look_different(
    key: bytes | None, value: bytes | None, other_key: bytes | None, other: bytes | None
) -> None:
    one, two = record(value, key), record(other, other_key)
    is_same = (key, value) == (other_key, other)
    for write in (lines_for_people, json_lines):
        assert (write([one]) == write([two])) is is_same
        assert write([one]).count(b"\n") == 1


@settings(max_examples=30)
@given(ANY, ANY)
def test_json_gives_the_bytes_back(key: bytes | None, value: bytes | None) -> None:
    headers = (RecordHeader("name", value),)
    (line,) = json_lines([record(value, key, headers)]).splitlines()
    found = json.decode(line)
    for name, data, place in (
        ("key", key, found),
        ("value", value, found),
        ("value", value, found["headers"][0]),
    ):
        text = place.get(name)
        raw = json.decode(json.encode(place.get(f"{name}Base64")), type=bytes | None)
        assert (None if text is None else text.encode()) == data or raw == data
    assert not any(0x7F <= ord(character) <= 0x9F for character in line.decode())


def test_a_format_has_kcats_tokens() -> None:
    headers = (RecordHeader("a", b"1"), RecordHeader("b"))
    write = writer_of_format(r"%t[%p] %o %T %k=%s|%v %K %S %h %%\t\x41\0\n", is_terminal=False)
    assert write([record(b"\xff\n", b"k", headers)]) == (
        b"orders[2] 7 1000 k=\xff\n|\xff\n 1 2 a=1,b=NULL %\tA\0\n"
    )
    assert write([record(None)]) == b"orders[2] 7 1000 =| -1 -1  %\tA\0\n"


def test_a_format_is_escaped_on_a_terminal_alone() -> None:
    assert writer_of_format("%s", is_terminal=False)([record(b"\x1b[2J")]) == b"\x1b[2J"
    assert writer_of_format("%s\n", is_terminal=True)([record(b"\x1b[2J")]) == b"\\x1b[2J\n"


@pytest.mark.parametrize("text", ["%q", "%", "\\q", "\\", "\\x4"])
def test_a_format_that_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="one of "):
        writer_of_format(text, is_terminal=False)


def test_escapes_of_an_argument() -> None:
    assert unescaped(r"\n\r\t\0\\\xff:") == b"\n\r\t\0\\\xff:"
