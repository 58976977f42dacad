"""Records as text that loses nothing: for people, as JSON, or by a format as kcat has it.

For people a backslash begins an escape: `\\n`, `\\t`, `\\x00` for control characters, `\\xff` for a
byte that is no UTF-8, `\\\\` for a backslash. In JSON a key or value that is no UTF-8 is in base64,
as `keyBase64` or `valueBase64`. A format writes the bytes as they are, but for a terminal, which
control characters could do harm to.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType
from tidemark_client.outcomes import ConsumedRecord, RecordHeader

from tidemark_cli.terminal_text import escaped, visible_json

NULL = "(null)"
FORMAT_HELP = (
    "%t topic, %p partition, %o offset, %k key, %s or %v value, %K and %S sizes of key and value "
    "(-1: null), %T timestamp in ms, %h headers, and \\n \\r \\t \\0 \\\\ \\xHH"
)
_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_BACKSLASHED = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}

Writer = Callable[[Iterable[ConsumedRecord]], bytes]


class BadFormat(ValueError):
    """Report an invalid format; the message names the position."""


def lines_for_people(records: Iterable[ConsumedRecord]) -> bytes:
    """`partition:offset`, the key if there is one, and the value, with tabs between."""
    return "".join(map(_line, records)).encode()


def _line(record: ConsumedRecord) -> str:
    key = "" if record.key is None else f"{escaped(record.key)}\t"
    return f"{record.partition}:{record.offset}\t{key}{_shown_value(record.value)}\n"


def _shown_value(value: bytes | None) -> str:
    if value is None:
        return NULL
    text = escaped(value)
    return f"\\{text}" if text == NULL else text


class _JsonHeader(msgspec.Struct, gc=False):
    name: str
    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = msgspec.field(default=UNSET, name="valueBase64")


class _JsonRecord(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | UnsetType | None
    key_base64: bytes | UnsetType = msgspec.field(name="keyBase64")
    value: str | UnsetType | None
    value_base64: bytes | UnsetType = msgspec.field(name="valueBase64")
    headers: list[_JsonHeader]


_JSON = msgspec.json.Encoder()


def json_lines(records: Iterable[ConsumedRecord]) -> bytes:
    text = _JSON.encode_lines([_json_record(record) for record in records]).decode()
    return visible_json(text).encode()


def _json_record(record: ConsumedRecord) -> _JsonRecord:
    return _JsonRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        *_text_or_base64(record.key),
        *_text_or_base64(record.value),
        [_JsonHeader(header.key, *_text_or_base64(header.value)) for header in record.headers],
    )


def _text_or_base64(
    data: bytes | None,
) -> tuple[str | UnsetType | None, bytes | UnsetType]:
    if data is None:
        return None, UNSET
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, data


def writer_of_format(text: str, *, is_terminal: bool) -> Writer:
    """FORMAT_HELP says what there is. Raises BadFormat."""
    shown: Callable[[bytes], bytes] = _escaped_bytes if is_terminal else bytes
    parts: list[bytes | Callable[[ConsumedRecord], bytes]] = []
    end = 0
    for match in _TOKEN.finditer(text):
        parts.append(text[end : match.start()].encode(errors="surrogateescape"))
        parts.append(_part(match, shown))
        end = match.end()
    parts.append(text[end:].encode(errors="surrogateescape"))
    pieces = [part for part in parts if part != b""]

    def write(records: Iterable[ConsumedRecord]) -> bytes:
        return b"".join(
            piece if isinstance(piece, bytes) else piece(record)
            for record in records
            for piece in pieces
        )

    return write


def _part(
    match: re.Match[str], shown: Callable[[bytes], bytes]
) -> bytes | Callable[[ConsumedRecord], bytes]:
    token = match[1]
    if token is None:
        return unescaped(match[0], f"at {match.start()}")
    known: dict[str, bytes | Callable[[ConsumedRecord], bytes]] = {
        "%": b"%",
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: shown(record.key or b""),
        "s": lambda record: shown(record.value or b""),
        "v": lambda record: shown(record.value or b""),
        "K": lambda record: b"%d" % _size(record.key),
        "S": lambda record: b"%d" % _size(record.value),
        "T": lambda record: b"%d" % record.timestamp_ms,
        "h": lambda record: _headers(record.headers, shown),
    }
    if token not in known:
        tokens = " ".join(f"%{name}" for name in known)
        raise BadFormat(f"one of {tokens}, found %{token} at {match.start()}")
    return known[token]


def unescaped(text: str, place: str = "") -> bytes:
    """Return the bytes that a format's escapes stand for.

    Raises BadFormat.
    """

    def meaning(match: re.Match[str]) -> str:
        word = match[1]
        if len(word) == 3:
            return bytes([int(word[1:], 16)]).decode(errors="surrogateescape")
        if word not in _BACKSLASHED:
            known = r"\n \r \t \0 \\ \xHH"
            raise BadFormat(f"one of {known}, found \\{word} {place}".rstrip())
        return _BACKSLASHED[word].decode()

    return re.sub(r"\\(x[0-9a-fA-F]{2}|.?)", meaning, text, flags=re.DOTALL).encode(
        errors="surrogateescape"
    )


def _escaped_bytes(data: bytes) -> bytes:
    return escaped(data).encode()


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(headers: Sequence[RecordHeader], shown: Callable[[bytes], bytes]) -> bytes:
    """Format headers as kcat does: `name=value,name=value`; without a value, `name=NULL`."""
    return b",".join(
        shown(header.key.encode())
        + b"="
        + (b"NULL" if header.value is None else shown(header.value))
        for header in headers
    )
