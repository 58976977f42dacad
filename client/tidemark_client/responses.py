"""Read bodies and headers of the broker's HTTP API into values.

What is not understood counts against certainty: a produce response that cannot be read has an
unknown outcome.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from tidemark_protocol.error_codes import RETRIABLE_ERRORS, ErrorCode

from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import (
    ConsumedRecord,
    OffsetRange,
    ProducerIdentity,
    RecordPage,
    ReplicaDigest,
)

NOT_WRITTEN = "not_written"
_RECORDS = msgspec.json.Decoder(tuple[ConsumedRecord, ...])


class _Offsets(msgspec.Struct):
    offsets: list[msgspec.Raw]  # of thousands only the first one is read


_OFFSETS = msgspec.json.Decoder(_Offsets)


@dataclass(frozen=True, slots=True)
class Problem:
    """A rejection; `is_certainly_not_written` only if the broker said so explicitly."""

    error: str
    message: str
    is_retriable: bool
    is_certainly_not_written: bool


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    offset: int
    error: Problem | None = None


class Redirected(Exception):
    """A 307 to the leader, or to the nearer replica that it names.

    `url` is the origin without a path, empty if it could not be read.
    """

    def __init__(self, location: str, requested_url: str, *, is_to_nearer: bool = False) -> None:
        parts = urlsplit(location)
        has_origin = parts.scheme in ("http", "https") and bool(parts.netloc)
        self.url = f"{parts.scheme}://{parts.netloc}" if has_origin else ""
        self.is_to_nearer = is_to_nearer
        super().__init__(f"{requested_url} redirects to {location or 'no location'}")


def read_problem(status: int, body: bytes) -> Problem:
    """Read a problem details body (RFC 9457); a body of another kind is not conclusive."""
    fields = _mapping(body)
    error = str(fields.get("error", "")) or f"HTTP_{status}"
    message = str(
        fields.get("detail") or fields.get("title") or body[:200].decode(errors="replace")
    )
    # A broker that has not heard yet of a partition that was added says that there is none. This
    # client asks for those that some broker named, so it asks again.
    may_be_new = error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    return Problem(
        error=error,
        message=message,
        is_retriable=may_be_new or bool(fields.get("retriable", is_retriable_name(error))),
        is_certainly_not_written=fields.get("outcome") == NOT_WRITTEN,
    )


def read_produce_response(body: bytes, *, acks: str = "all") -> ProduceResponse:
    """Read the first entry of `offsets`: all records of one request are one batch.

    With acks=0 its offset is -1.
    """
    try:
        entries = _OFFSETS.decode(body).offsets
    except (msgspec.DecodeError, UnicodeDecodeError):
        entries = []
    entry = _mapping(bytes(entries[0])) if entries else {}
    if not entry:
        return ProduceResponse(-1, _unreadable(body))
    offset = entry.get("offset")
    least = -1 if acks == "0" else 0
    if isinstance(offset, int) and offset >= least and not entry.get("error_code"):
        return ProduceResponse(offset)
    error = str(entry.get("error") or "")
    if not error:
        return ProduceResponse(-1, _unreadable(body))
    return ProduceResponse(
        -1,
        Problem(
            error=error,
            message=str(entry.get("message", "")),
            is_retriable=bool(entry.get("retriable", is_retriable_name(error))),
            is_certainly_not_written=entry.get("outcome") == NOT_WRITTEN,
        ),
    )


def read_producer(body: bytes) -> ProducerIdentity:
    fields = _mapping(body)
    producer_id, producer_epoch = fields.get("producer_id"), fields.get("producer_epoch")
    if not isinstance(producer_id, int) or not isinstance(producer_epoch, int):
        raise UnreadableResponse(f"expected a producer id and epoch, found {body[:200]!r}")
    return ProducerIdentity(producer_id, producer_epoch)


def read_record_list(body: bytes) -> tuple[ConsumedRecord, ...]:
    """Read records in the binary format."""
    try:
        return _RECORDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = f"{error}: {body[:200]!r}"
        raise UnreadableResponse(f"expected a list of records in base64, found {found}") from error


def read_topic_ids(headers: Mapping[str, str]) -> dict[str, str]:
    """Return topic ids by topic name, from the headers of a consumer's poll."""
    entries = headers.get("tidemark-topic-ids", "").split(", ")
    named = (entry.partition("=") for entry in entries if entry)
    return {topic: topic_id for topic, _, topic_id in named}


def read_records(offset: int, headers: Mapping[str, str], body: bytes) -> RecordPage:
    records = read_record_list(body)
    after_last = records[-1].offset + 1 if records else offset
    return RecordPage(
        records=records,
        high_watermark=_header(headers, "tidemark-high-watermark", -1),
        next_offset=_header(headers, "tidemark-next-offset", after_last),
        topic_id=headers.get("tidemark-topic-id", ""),
    )


def read_offset_range(body: bytes) -> OffsetRange:
    fields = _mapping(body)
    start = _first_number(fields, "beginning_offset", "log_start_offset", "earliest")
    end = _first_number(fields, "high_watermark", "end_offset", "latest")
    return OffsetRange(start, end)


def read_replica(body: bytes) -> ReplicaDigest:
    try:
        return msgspec.json.decode(body, type=ReplicaDigest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UnreadableResponse(f"expected a replica's digest: {error}") from error


def is_retriable_name(error: str) -> bool:
    return error in ErrorCode.__members__ and ErrorCode[error] in RETRIABLE_ERRORS


def _unreadable(body: bytes) -> Problem:
    return Problem(
        "UNREADABLE_ANSWER",
        f"expected offsets, found {body[:200]!r}",
        is_retriable=False,
        is_certainly_not_written=False,
    )


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _mapping(body: bytes) -> Mapping[str, Any]:
    decoded = _decode(body)
    return decoded if isinstance(decoded, dict) else {}


def _header(headers: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(headers.get(name, default))
    except ValueError:
        raise UnreadableResponse(f"expected a number in {name}, found {headers[name]!r}") from None


def _first_number(fields: Mapping[str, Any], *names: str) -> int:
    for name in names:
        if isinstance(fields.get(name), int):
            return int(fields[name])
    raise UnreadableResponse(f"expected a number {names[0]!r}, found {dict(fields)}")
