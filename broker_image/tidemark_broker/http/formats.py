"""The two embedded formats of records in JSON, chosen by Content-Type and Accept.

`application/vnd.kafka.binary.v2+json`: keys and values are base64.
`application/vnd.kafka.json.v2+json` (also plain `application/json`): keys and values are any
JSON.
"""

from enum import Enum
from functools import lru_cache

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.problems import HttpProblem


class EmbeddedFormat(Enum):
    BINARY = b"application/vnd.kafka.binary.v2+json"
    JSON = b"application/vnd.kafka.json.v2+json"


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


@lru_cache(maxsize=256)
def format_of_answer(accept: bytes) -> EmbeddedFormat:
    """The first acceptable one as listed; quality values only matter when they are 0."""
    if not accept:
        return EmbeddedFormat.BINARY
    for entry in accept.decode("latin-1").lower().split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        if any(part in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for part in parameters):
            continue
        if media_type in _ANYTHING:
            return EmbeddedFormat.BINARY
        if media_type in _BY_TYPE:
            return _BY_TYPE[media_type]
    raise HttpProblem(
        ErrorCode.INVALID_REQUEST,
        f"Accept: expected one of {_SUPPORTED}; found {accept[:80]!r}",
        status=406,
    )
