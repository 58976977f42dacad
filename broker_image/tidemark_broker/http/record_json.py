"""Render record batches as a JSON list of records, for one fetch response.

Decoding records costs microseconds each, so other tasks run every few hundred, and a response holds
a bounded number: `next_offset` says where to continue. Control batches are skipped. A key or value
that is requested as JSON but is not JSON ends a response before its record. If it is the first
record there is a problem instead, with its offset and the next: nothing is guessed, and readers are
not blocked.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import msgspec
from msgspec import Raw
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.media_types import RESPONSE_BYTES_PER_LOG_BYTE, EmbeddedFormat
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.kafka_wire.records.record_batch import (
    BatchHeader,
    Record,
    opened,
    read_header,
    records_of,
)

RECORDS_PER_SLICE = 256
_RAW_NULL = Raw(b"null")
_LINES = msgspec.json.Encoder()


class _Header(msgspec.Struct, gc=False):
    key: str
    value: bytes | None


class _BinaryRecord(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[_Header]


class _JsonRecord(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Raw
    value: Raw
    headers: list[_Header]


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    body: bytes
    next_offset: int


class UnrenderableRecords(HttpProblem):
    """An error: the first record cannot be shown in this format, or its batch is corrupt.

    `next_offset` is after what this format can never show. A corrupt batch is read again: a broker
    repairs it.
    """

    def __init__(
        self, error: ErrorCode, detail: str, *, offset: int, next_offset: int, status: int = 0
    ) -> None:
        members = {"offset": offset, "next_offset": next_offset}
        super().__init__(error, detail, status=status, members=members)
        self.next_offset = next_offset


class RecordRenderer:
    """A renderer of what one fetch of one partition returned, from `offset` on."""

    def __init__(
        self,
        topic: str,
        partition: int,
        embedded_format: EmbeddedFormat,
        *,
        most_records: int,
        most_decompressed_bytes: int,
        reserve: Callable[[int], AbstractContextManager[None]],
        as_lines: bool = False,
    ) -> None:
        """Create a renderer; with `as_lines` it writes one record a line instead of a list.

        `reserve` is called for what batches decompress to, beyond their bytes in the log.
        """
        self._topic = topic
        self._partition = partition
        self._is_binary = embedded_format is EmbeddedFormat.BINARY
        self._most_records = most_records
        self._most_decompressed_bytes = most_decompressed_bytes
        self._reserve = reserve
        self._as_lines = as_lines

    async def render(self, data: bytes, offset: int) -> FetchedRecords:
        """Render up to the first record that cannot be rendered.

        Raises UnrenderableRecords if that is the first one, and what `reserve` raises.
        """
        pieces: list[bytes] = []
        rendered: list[_BinaryRecord | _JsonRecord] = []
        next_offset = offset
        count = looked_at = 0
        try:
            with ExitStack() as reserved:
                for record, following in self._records(data, reserved):
                    if record is not None and record.offset >= offset:
                        if count == self._most_records:
                            break
                        rendered.append(self._record(record))
                        count += 1
                    next_offset = max(next_offset, following)
                    looked_at += 1
                    if looked_at % RECORDS_PER_SLICE == 0:
                        if rendered:
                            pieces.append(self._encoded(rendered))
                            rendered.clear()
                        await asyncio.sleep(0)
        except UnrenderableRecords:
            if next_offset == offset:
                raise
        except CorruptBatch as error:
            if next_offset == offset:
                raise UnrenderableRecords(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self._place}: {error}",
                    offset=offset,
                    next_offset=offset,
                ) from error
        if rendered:
            pieces.append(self._encoded(rendered))
        if self._as_lines:
            return FetchedRecords(b"".join(pieces), next_offset)
        return FetchedRecords(b"[" + b",".join(pieces) + b"]", next_offset)

    def _records(self, data: bytes, reserved: ExitStack) -> Iterator[tuple[Record | None, int]]:
        """Yield (record, offset after it); after a batch (None, offset after the batch).

        What would decompress to more than a response should hold is left to the next one, except
        the first batch.
        """
        view = memoryview(data)
        position = decompressed_bytes = 0
        while position < len(view) and decompressed_bytes < self._most_decompressed_bytes:
            header = read_header(view, position)
            batch = view[position : position + header.size_bytes]
            if not header.is_control:
                body = self._opened(header, batch)
                decompressed_bytes += len(body)
                inflated_bytes = max(0, len(body) - header.size_bytes)
                reserved.enter_context(self._reserve(inflated_bytes * RESPONSE_BYTES_PER_LOG_BYTE))
                for record in records_of(header, body):
                    yield record, record.offset + 1
            yield None, header.next_offset
            position += header.size_bytes

    def _opened(self, header: BatchHeader, batch: memoryview) -> bytes:
        try:
            return opened(header, batch)
        except UnsupportedCompression as error:
            raise UnrenderableRecords(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"{self._place}, offset {header.base_offset}: {error}: read it over the Kafka"
                " protocol",
                offset=header.base_offset,
                next_offset=header.next_offset,
                status=406,
            ) from error

    def _encoded(self, rendered: "list[_BinaryRecord | _JsonRecord]") -> bytes:
        if self._as_lines:
            return _LINES.encode_lines(rendered)
        return msgspec.json.encode(rendered)[1:-1]

    @property
    def _place(self) -> str:
        return f"partition {self._topic}-{self._partition}"

    def _record(self, record: Record) -> _BinaryRecord | _JsonRecord:
        headers = [_Header(name, value) for name, value in record.headers]
        if self._is_binary:
            return _BinaryRecord(
                self._topic,
                self._partition,
                record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                headers,
            )
        return _JsonRecord(
            self._topic,
            self._partition,
            record.offset,
            record.timestamp_ms,
            self._raw(record.key, record.offset, "key"),
            self._raw(record.value, record.offset, "value"),
            headers,
        )

    def _raw(self, data: bytes | None, offset: int, member: str) -> Raw:
        if data is None:
            return _RAW_NULL
        try:
            data.decode()  # raw JSON is not checked for UTF-8 by the decoder
            return msgspec.json.decode(data, type=Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnrenderableRecords(
                ErrorCode.INVALID_RECORD,
                f"{self._place}, offset {offset}: expected JSON as its {member} ({error}): "
                f"send Accept: {EmbeddedFormat.BINARY.value.decode()}, or continue at"
                f" offset {offset + 1}",
                offset=offset,
                next_offset=offset + 1,
                status=406,
            ) from error
