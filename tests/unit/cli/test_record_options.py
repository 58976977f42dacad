"""Options of produce that are for each record."""

import pytest
from tidemark_cli.arguments import parse
from tidemark_cli.record_input import MOST_RECORD_BYTES, TooLarge
from tidemark_cli.record_options import RecordOptions, record_options, time_ms
from tidemark_client.errors import CommandFailed
from tidemark_client.outcomes import OutgoingRecord, RecordHeader, Rejected


def options(*words: str) -> RecordOptions:
    return record_options(parse(["produce", "orders", *words]))


def test_a_record_is_its_piece_unless_options_say_more() -> None:
    assert options().record(b"a:b\r") == OutgoingRecord(b"a:b\r")
    assert options("-k", "key").record(b"v") == OutgoingRecord(b"v", b"key")


def test_a_separator_parts_key_and_value_once() -> None:
    chosen = options("-K", ":")
    assert chosen.record(b"a:b:c") == OutgoingRecord(b"b:c", b"a")
    assert chosen.record(b":v") == OutgoingRecord(b"v", b"")
    assert chosen.record(b"k:") == OutgoingRecord(b"", b"k")
    assert options("-K", r"\t").record(b"k\tv") == OutgoingRecord(b"v", b"k")


def test_a_record_without_its_separator_is_not_guessed_at() -> None:
    refused = options("-K", ":").record(b"value")
    assert refused == Rejected("INVALID_RECORD", "no key separator ':' in the record")


def test_an_empty_value_is_a_tombstone_where_that_is_asked_for() -> None:
    assert options("-K", ":", "-Z").record(b"k:") == OutgoingRecord(None, b"k")
    assert options("-Z").record(b"v") == OutgoingRecord(b"v")
    assert options().record(b"") == OutgoingRecord(b"")


def test_headers_and_a_time_are_of_every_record() -> None:
    chosen = options("-H", "a=1=2", "-H", "none", "-H", "empty=", "-T", "2026-03-01T12:00:00Z")
    headers = (RecordHeader("a", b"1=2"), RecordHeader("none"), RecordHeader("empty", b""))
    assert chosen.record(b"v") == OutgoingRecord(b"v", None, headers, 1772366400000)


def test_a_delimiter_may_be_escaped() -> None:
    assert options().delimiter == b"\n"
    assert options("-D", r"\0").delimiter == b"\0"
    assert options("-D", ";;").delimiter == b";;"


@pytest.mark.parametrize("piece", [TooLarge(MOST_RECORD_BYTES + 1), b"x" * (MOST_RECORD_BYTES + 1)])
def test_what_is_too_large_for_a_request_is_refused_whole(piece: bytes | TooLarge) -> None:
    refused = options().record(piece)
    assert isinstance(refused, Rejected)
    assert (refused.error, refused.message[:13]) == ("MESSAGE_TOO_LARGE", "8300001 bytes")
    assert isinstance(options("-H", "h=1", "-k", "k").record(b"x" * MOST_RECORD_BYTES), Rejected)


@pytest.mark.parametrize(
    "words",
    [
        ("-k", "a", "-K", ":"),
        ("-K", ""),
        ("-K", r"\q"),
        ("-D", ""),
        ("-T", "soon"),
        ("-T", "-5"),
        ("-T", "1960-01-01"),
        ("-f", "file", "value"),
        tuple(["-H", "a=b"] * 101),
    ],
)
def test_options_that_make_no_sense_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandFailed) as failed:
        options(*words)
    assert failed.value.exit_code == 2


def test_times_are_utc_unless_they_say_so() -> None:
    assert time_ms("1772366400000") == 1772366400000
    assert time_ms("2026-03-01T12:00:00") == 1772366400000
    assert time_ms("2026-03-01T13:00:00+01:00") == 1772366400000
