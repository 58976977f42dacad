"""Turn pieces of input into records by the options of `tidemark produce`."""

import argparse
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark_client.errors import EXIT_USAGE, CommandFailed
from tidemark_client.outcomes import OutgoingRecord, RecordHeader, Rejected

from tidemark_cli.batching import size_of
from tidemark_cli.record_input import MOST_RECORD_BYTES, TooLarge
from tidemark_cli.record_text import BadFormat, unescaped

MOST_HEADERS = 100  # of the HTTP API
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RecordOptions:
    delimiter: bytes = b"\n"
    key: bytes | None = None
    key_separator: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()
    timestamp_ms: int | None = None
    empty_is_null: bool = False

    def record(self, piece: bytes | TooLarge) -> OutgoingRecord | Rejected:
        """Return the record of a piece of input, or the reason why nothing of it is written."""
        if isinstance(piece, TooLarge):
            return _too_large(piece.size_bytes)
        key, value = self.key, piece
        if self.key_separator is not None:
            key, separator, value = piece.partition(self.key_separator)
            if not separator:
                text = self.key_separator.decode(errors="backslashreplace")
                return Rejected("INVALID_RECORD", f"no key separator {text!r} in the record")
        is_null = self.empty_is_null and not value
        record = OutgoingRecord(None if is_null else value, key, self.headers, self.timestamp_ms)
        size_bytes = size_of(record)
        return record if size_bytes <= MOST_RECORD_BYTES else _too_large(size_bytes)


def _too_large(size_bytes: int) -> Rejected:
    found = f"{size_bytes} bytes, and a request holds at most {MOST_RECORD_BYTES}"
    return Rejected("MESSAGE_TOO_LARGE", found)


def add_record_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        default=[],
        metavar="PATH",
        help="send this file as one record, repeatable (-: all of stdin)",
    )
    parser.add_argument("-k", "--key", help="key of every record")
    parser.add_argument(
        "-K",
        "--key-separator",
        metavar="SEP",
        help="separator of key and value in each record, as in -K :",
    )
    parser.add_argument(
        "-D",
        "--delimiter",
        metavar="SEP",
        default="\\n",
        help="ends a record on stdin (default \\n); escapes: \\n \\r \\t \\0 \\xHH",
    )
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="header of every record, repeatable; NAME alone has no value",
    )
    parser.add_argument(
        "-T",
        "--timestamp",
        metavar="MS|TIME",
        help="timestamp of every record, in ms since 1970 or such as 2026-03-01T12:00:00Z "
        "(default: now)",
    )
    parser.add_argument(
        "-Z", "--null", action="store_true", help="write an empty value as null, a tombstone"
    )


def record_options(arguments: argparse.Namespace) -> RecordOptions:
    """Read the options.

    Raises CommandFailed.
    """
    if arguments.key is not None and arguments.key_separator is not None:
        raise _bad("--key or --key-separator", "both")
    if arguments.values and arguments.file:
        raise _bad("records as arguments or as --file", "both")
    if len(arguments.header) > MOST_HEADERS:
        raise _bad(f"at most {MOST_HEADERS} headers", str(len(arguments.header)))
    separator = arguments.key_separator
    return RecordOptions(
        delimiter=_separator("--delimiter", arguments.delimiter),
        key=None if arguments.key is None else _bytes(arguments.key),
        key_separator=None if separator is None else _separator("--key-separator", separator),
        headers=tuple(map(_header, arguments.header)),
        timestamp_ms=None if arguments.timestamp is None else time_ms(arguments.timestamp),
        empty_is_null=arguments.null,
    )


def time_ms(text: str, option: str = "--timestamp") -> int:
    """Parse milliseconds since 1970, or an ISO 8601 time (UTC unless it has an offset)."""
    if text.isascii() and text.isdecimal() and int(text) <= MAX_INT64:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.fromtimestamp(-1, UTC)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    if found.timestamp() < 0:
        raise _bad(f"{option} in ms since 1970, or a time such as 2026-03-01T12:00:00Z", repr(text))
    return int(found.timestamp() * 1000)


def _separator(option: str, text: str) -> bytes:
    try:
        separator = unescaped(text)
    except BadFormat as error:
        raise _bad(f"{option} with {error}", repr(text)) from error
    if not separator:
        raise _bad(f"{option} of at least one byte", repr(text))
    return separator


def _header(text: str) -> RecordHeader:
    name, equals, value = text.partition("=")
    return RecordHeader(name, _bytes(value) if equals else None)


def _bytes(argument: str) -> bytes:
    return argument.encode(errors="surrogateescape")


def _bad(expected: str, found: str) -> CommandFailed:
    return CommandFailed(
        expected=expected,
        found=found,
        to_do="see `tidemark produce --help`",
        exit_code=EXIT_USAGE,
    )
