"""Bodies of produce requests: JSON in, records out, and back again for a peer.

msgspec checks types and names the place of what does not fit; nothing is built per record but the
record itself. JSON keys and values stay the client's own text with the white space between tokens
removed (numbers keep every digit); `null` means absent. Pure.
"""

import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.formats import EmbeddedFormat
from tidemark_broker.http.limits import HttpLimits
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


class ProducedRecord(msgspec.Struct):
    """What `storage.record_batch.build_batch` takes, with the place that the client asked for."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


class ProducerStamp(NamedTuple):
    """Who an idempotent producer is, and how it counts the first record of this request."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class ProduceBody(NamedTuple):
    records: list[ProducedRecord]
    producer: ProducerStamp | None


_BINARY = msgspec.json.Decoder(BinaryBody)
_JSON = msgspec.json.Decoder(JsonBody)
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def decode_body(body: bytes, embedded_format: EmbeddedFormat, limits: HttpLimits) -> ProduceBody:
    """Raises HttpProblem: 400 when it is not JSON, 422 with the JSON path when it does not fit."""
    decoded: BinaryBody | JsonBody
    try:
        if embedded_format is EmbeddedFormat.BINARY:
            decoded = _BINARY.decode(body)
            records = _binary_records(decoded)
        else:
            # Values stay raw, so nothing else would notice text that is not UTF-8.
            body.decode("utf-8")
            decoded = _JSON.decode(body)
            records = _json_records(decoded, limits)
    except msgspec.ValidationError as error:
        raise HttpProblem(ErrorCode.INVALID_RECORD, f"body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(f"body: {error}") from error
    except RecursionError:
        raise _too_deep("body", limits) from None
    if not 1 <= len(records) <= limits.records:
        raise HttpProblem(
            ErrorCode.INVALID_RECORD,
            f"body: $.records: expected 1 to {limits.records} records, found {len(records)}",
        )
    for index, record in enumerate(records):
        if len(record.headers) > limits.record_headers:
            raise HttpProblem(
                ErrorCode.INVALID_RECORD,
                f"body: $.records[{index}].headers: expected at most {limits.record_headers}, "
                f"found {len(record.headers)}",
            )
    return ProduceBody(records, _producer_stamp(decoded))


def _producer_stamp(body: BinaryBody | JsonBody) -> ProducerStamp | None:
    given = (body.producer_id, body.producer_epoch, body.base_sequence)
    if given == (None, None, None):
        return None
    producer_id, producer_epoch, base_sequence = given
    if producer_id is None or producer_epoch is None or base_sequence is None:
        raise HttpProblem(
            ErrorCode.INVALID_RECORD,
            "body: expected producer_id, producer_epoch and base_sequence together or none of them",
        )
    return ProducerStamp(producer_id, producer_epoch, base_sequence)


def encode_binary(records: Sequence[tuple[int, ProducedRecord]]) -> bytes:
    """The body for a peer: (partition, record) in order, in the binary format."""
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


def _binary_records(body: BinaryBody) -> list[ProducedRecord]:
    return [
        ProducedRecord(
            record.key, record.value, _headers(record.headers), record.partition, record.timestamp
        )
        for record in body.records
    ]


def _json_records(body: JsonBody, limits: HttpLimits) -> list[ProducedRecord]:
    return [
        ProducedRecord(
            _compact(record.key, index, "key", limits),
            _compact(record.value, index, "value", limits),
            _headers(record.headers),
            record.partition,
            record.timestamp,
        )
        for index, record in enumerate(body.records)
    ]


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
    """Of valid JSON. Almost always decided by counting; else every pass takes a level away."""
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
