"""Choose the format of records by Content-Type and Accept.

`application/vnd.kafka.binary.v2+json`: keys and values are base64.
`application/vnd.kafka.json.v2+json` (also plain `application/json`): keys and values are any JSON.
Responses may also be record batches as stored, and a stream of one record a line.
"""

from enum import Enum
from functools import lru_cache

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.problems import HttpProblem

RESPONSE_BYTES_PER_LOG_BYTE = 3  # base64 and member names


class EmbeddedFormat(Enum):
    BINARY = b"application/vnd.kafka.binary.v2+json"
    JSON = b"application/vnd.kafka.json.v2+json"


class ReadFormat(Enum):
    """The format of a response with records, by Accept."""

    BINARY = "binary"
    JSON = "json"
    RECORD_BATCHES = "record batches"
    JSON_LINES = "json lines"
    BINARY_LINES = "binary lines"

    @property
    def embedded(self) -> EmbeddedFormat:
        is_json = self in (ReadFormat.JSON, ReadFormat.JSON_LINES)
        return EmbeddedFormat.JSON if is_json else EmbeddedFormat.BINARY

    @property
    def is_stream(self) -> bool:
        return self in (ReadFormat.JSON_LINES, ReadFormat.BINARY_LINES)


RECORD_BATCH_TYPE = b"application/vnd.kafka.recordbatch"
LINES_TYPE = b"application/x-ndjson"
_BY_TYPE = {
    "application/vnd.kafka.binary.v2+json": EmbeddedFormat.BINARY,
    "application/vnd.kafka.json.v2+json": EmbeddedFormat.JSON,
    "application/json": EmbeddedFormat.JSON,
}
_ANYTHING = {"*/*", "application/*", "application/vnd.kafka.v2+json"}
_SUPPORTED = ", ".join(_BY_TYPE)


@lru_cache(maxsize=256)
def format_of_body(content_type: bytes) -> EmbeddedFormat:
    media_type = content_type.decode("latin-1").partition(";")[0].strip().lower()
    chosen = _BY_TYPE.get(media_type)
    if chosen is None:
        raise HttpProblem(
            ErrorCode.INVALID_REQUEST,
            f"Content-Type: expected one of {_SUPPORTED}; found {media_type[:80]!r}",
            status=415,
        )
    return chosen


def is_record_batches(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == RECORD_BATCH_TYPE


@lru_cache(maxsize=256)
def format_of_response(accept: bytes) -> EmbeddedFormat:
    """Return the format of a response that is a list in JSON."""
    chosen = format_of_read(accept)
    if chosen not in (ReadFormat.BINARY, ReadFormat.JSON):
        raise _not_acceptable(accept, _SUPPORTED)
    return chosen.embedded


@lru_cache(maxsize=256)
def format_of_read(accept: bytes) -> ReadFormat:
    """Return the first acceptable format as listed; quality values only matter when they are 0."""
    if not accept:
        return ReadFormat.BINARY
    for entry in accept.decode("latin-1").lower().split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        if any(part in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for part in parameters):
            continue
        if media_type in _ANYTHING:
            return ReadFormat.BINARY
        if media_type in _BY_TYPE:
            is_json = _BY_TYPE[media_type] is EmbeddedFormat.JSON
            return ReadFormat.JSON if is_json else ReadFormat.BINARY
        if media_type == RECORD_BATCH_TYPE.decode():
            return ReadFormat.RECORD_BATCHES
        if media_type == LINES_TYPE.decode():
            is_binary = "embedded=binary" in parameters
            return ReadFormat.BINARY_LINES if is_binary else ReadFormat.JSON_LINES
    raise _not_acceptable(
        accept, f"{_SUPPORTED}, {RECORD_BATCH_TYPE.decode()}, {LINES_TYPE.decode()}"
    )


def _not_acceptable(accept: bytes, supported: str) -> HttpProblem:
    return HttpProblem(
        ErrorCode.INVALID_REQUEST,
        f"Accept: expected one of {supported}; found {accept[:80]!r}",
        status=406,
    )
