"""Decode bodies of produce requests, and encode them for forwarding.

msgspec checks types and names the place of a mismatch; only the record itself is built per record.
JSON keys and values stay the client's own text with the white space between tokens removed (numbers
keep each digit); `null` means absent.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import EmbeddedFormat
from tidemark_broker.http.problems import HttpProblem, malformed

PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TimestampMs = Annotated[int, Meta(ge=0, le=2**63 - 1)]
ProducerId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
ProducerEpoch = Annotated[int, Meta(ge=0, le=2**15 - 1)]
Sequence32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_JSON_NULL = b"null"


class HeaderBody(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: bytes | None = None


class BinaryRecordBody(msgspec.Struct, forbid_unknown_fields=True):
    value: bytes | None
    key: bytes | None = None
    partition: PartitionNumber | None = None
    headers: list[HeaderBody] = []
    timestamp: TimestampMs | None = None


class JsonRecordBody(msgspec.Struct, forbid_unknown_fields=True):
    value: Raw
    key: Raw = Raw(_JSON_NULL)
    partition: PartitionNumber | None = None
    headers: list[HeaderBody] = []
    timestamp: TimestampMs | None = None


class BinaryBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    records: list[BinaryRecordBody]
    producer_id: ProducerId | None = None
    producer_epoch: ProducerEpoch | None = None
    base_sequence: Sequence32 | None = None


class JsonBody(msgspec.Struct, forbid_unknown_fields=True):
    records: list[JsonRecordBody]
    producer_id: ProducerId | None = None
    producer_epoch: ProducerEpoch | None = None
    base_sequence: Sequence32 | None = None


class TruncatedBody(msgspec.Struct, forbid_unknown_fields=True):
    """A body of either format whose records are not decoded yet."""

    records: list[Raw]
    producer_id: ProducerId | None = None
    producer_epoch: ProducerEpoch | None = None
    base_sequence: Sequence32 | None = None


class ProducedRecord(msgspec.Struct):
    """A record for `build_batch`, with the partition that the client asked for."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


class ProducerStamp(NamedTuple):
    """An idempotent producer, and the sequence of the request's first record."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class ProduceBody(NamedTuple):
    records: list[ProducedRecord]
    producer: ProducerStamp | None


_BINARY = msgspec.json.Decoder(BinaryBody)
_JSON = msgspec.json.Decoder(JsonBody)
_CUT = msgspec.json.Decoder(TruncatedBody)
_BINARY_SLICE = msgspec.json.Decoder(list[BinaryRecordBody])
_JSON_SLICE = msgspec.json.Decoder(list[JsonRecordBody])
_SLICE_PLACE = re.compile(r"\$\[(\d+)\]")
SLICE_BYTES = 64 * 1024  # opened (about a millisecond) before others get a turn
RECORDS_PER_SLICE = 512
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


async def decode_body(
    body: bytes, embedded_format: EmbeddedFormat, limits: HttpLimits
) -> ProduceBody:
    """Decode a body.

    A large one is split into its records first, which costs little; these are decoded in slices
    between which other tasks run. Raises HttpProblem: 400 when it is not JSON, 422 with the JSON
    path of a mismatch.
    """
    try:
        if embedded_format is EmbeddedFormat.JSON:
            body.decode("utf-8")  # values stay raw, so nothing else would notice
        if len(body) <= SLICE_BYTES:
            whole = (_BINARY if embedded_format is EmbeddedFormat.BINARY else _JSON).decode(body)
            records = _produced(whole.records, 0, limits)
            envelope: BinaryBody | JsonBody | TruncatedBody = whole
        else:
            envelope = _CUT.decode(body)
            _check_count(len(envelope.records), limits)
            records = await _open_in_slices(envelope.records, embedded_format, limits)
    except msgspec.ValidationError as error:
        raise HttpProblem(ErrorCode.INVALID_RECORD, f"body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(f"body: {error}") from error
    except RecursionError:
        raise _too_deep("body", limits) from None
    _check_count(len(records), limits)
    return ProduceBody(records, _producer_stamp(envelope))


async def _open_in_slices(
    cut: list[Raw], embedded_format: EmbeddedFormat, limits: HttpLimits
) -> list[ProducedRecord]:
    decode = (_BINARY_SLICE if embedded_format is EmbeddedFormat.BINARY else _JSON_SLICE).decode
    records: list[ProducedRecord] = []
    first = 0
    while first < len(cut):
        end, size_bytes = first, 0
        while end < len(cut) and end - first < RECORDS_PER_SLICE and size_bytes < SLICE_BYTES:
            size_bytes += len(memoryview(cut[end]))
            end += 1
        try:
            opened = decode(b"[" + b",".join(cut[first:end]) + b"]")
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(_with_place(str(error), first)) from error
        records += _produced(opened, first, limits)
        first = end
        await asyncio.sleep(0)
    return records


def _with_place(message: str, first: int) -> str:
    """Return the message with the place in the whole body instead of a slice."""
    return _SLICE_PLACE.sub(lambda found: f"$.records[{first + int(found[1])}]", message)


def _check_count(count: int, limits: HttpLimits) -> None:
    if not 1 <= count <= limits.records:
        raise HttpProblem(
            ErrorCode.INVALID_RECORD,
            f"body: $.records: expected 1 to {limits.records} records, found {count}",
        )


def _producer_stamp(body: BinaryBody | JsonBody | TruncatedBody) -> ProducerStamp | None:
    given = (body.producer_id, body.producer_epoch, body.base_sequence)
    if given == (None, None, None):
        return None
    producer_id, producer_epoch, base_sequence = given
    if producer_id is None or producer_epoch is None or base_sequence is None:
        raise HttpProblem(
            ErrorCode.INVALID_RECORD,
            "body: expected all or none of producer_id, producer_epoch and base_sequence",
        )
    return ProducerStamp(producer_id, producer_epoch, base_sequence)


def encode_binary(records: Sequence[tuple[int, ProducedRecord]]) -> bytes:
    """Return the body for another broker: (partition, record) in order, in the binary format."""
    return msgspec.json.encode(
        BinaryBody(
            [
                BinaryRecordBody(
                    value=record.value,
                    key=record.key,
                    partition=partition,
                    headers=[HeaderBody(name, value) for name, value in record.headers],
                    timestamp=record.timestamp_ms,
                )
                for partition, record in records
            ]
        )
    )


def _headers(headers: list[HeaderBody]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header.key, header.value) for header in headers) if headers else ()


def _produced(
    bodies: Sequence[BinaryRecordBody | JsonRecordBody], first: int, limits: HttpLimits
) -> list[ProducedRecord]:
    """Return records; `first` is how many records of the request come before."""
    found = []
    for index, body in enumerate(bodies, start=first):
        if len(body.headers) > limits.record_headers:
            raise HttpProblem(
                ErrorCode.INVALID_RECORD,
                f"body: $.records[{index}].headers: expected at most {limits.record_headers}, "
                f"found {len(body.headers)}",
            )
        key, value = body.key, body.value
        if isinstance(body, JsonRecordBody):
            key = _compact(body.key, index, "key", limits)
            value = _compact(body.value, index, "value", limits)
        headers = _headers(body.headers)
        found.append(ProducedRecord(key, value, headers, body.partition, body.timestamp))
    return found


def _compact(raw: Raw, index: int, member: str, limits: HttpLimits) -> bytes | None:
    text = bytes(raw)
    if text == _JSON_NULL:
        return None
    if text[0] not in b"[{":
        return text
    if is_deeper_than(text, limits.json_depth):
        raise _too_deep(f"body: $.records[{index}].{member}", limits)
    return msgspec.json.format(text, indent=-1)


def is_deeper_than(text: bytes, most: int) -> bool:
    """Return whether valid JSON is nested deeper; counting almost always decides."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    brackets = _TEXTS.sub(b"", text).translate(None, _NOT_BRACKETS)
    for _ in range(most):
        if not brackets:
            return False
        # Leaves only: replaced by a byte that is not a bracket, so that one pass is one level.
        brackets = brackets.replace(b"[]", b".").replace(b"{}", b".").replace(b".", b"")
    return bool(brackets)


def _too_deep(place: str, limits: HttpLimits) -> HttpProblem:
    return HttpProblem(
        ErrorCode.INVALID_RECORD,
        f"{place}: expected at most {limits.json_depth} levels of nesting, found more",
    )
