"""Read and write record batches over HTTP (`application/vnd.kafka.recordbatch`).

Batches of clients are not opened: compression, keys, idempotent producers and timestamps stay as
they are. Only headers are read, for offsets.

`build_batches` makes record batches of one partition's records: one batch, unless it would exceed
`batch_bytes` (the topic's max.message.bytes: then the next begins, so that a large request is not
rejected as one too large batch) or the records have timestamps of their own that differ (a batch
built here has one timestamp). A record costs some two microseconds, and ten with many headers, so
other tasks run every few hundred.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.record_batch_writer import HEADER_BYTES, finish_batch

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.http.produce_bodies import ProducedRecord, ProducerStamp
from tidemark_broker.http.produce_results import PRODUCE_RESPONSE_TYPE
from tidemark_broker.http.response import Response
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import add_records, read_header

BATCHES_PER_SLICE = 500


class BatchesWritten(msgspec.Struct, frozen=True):
    """The `offset` of the first record and `last_offset`; -1: written without acknowledgement."""

    partition: int
    offset: int
    last_offset: int


def offsets_in(body: bytes, limits: HttpLimits) -> int:
    """Return how many offsets the batches of a request take.

    Raises HttpProblem (422).
    """
    view = memoryview(body)
    position = count = batches = 0
    try:
        while position < len(view):
            header = read_header(view, position)
            position += header.size_bytes
            count += header.last_offset_delta + 1
            batches += 1
            if batches > limits.batches:
                raise _invalid(f"expected at most {limits.batches} batches, found more")
        if position > len(view):
            raise _invalid(
                f"expected complete batches, found the last {position - len(view)} bytes missing"
            )
    except CorruptBatch as error:
        raise _invalid(str(error)) from error
    if not batches:
        raise _invalid("expected a record batch, found an empty body")
    return count


def batches_response(partition: int, base_offset: int, offset_count: int) -> Response:
    last_offset = base_offset + offset_count - 1 if base_offset >= 0 else -1
    written = BatchesWritten(partition, base_offset, last_offset)
    return Response(200, msgspec.json.encode({"offsets": [written]}), PRODUCE_RESPONSE_TYPE)


async def next_offset_of(data: bytes, offset: int) -> int:
    """Return the offset after the last batch read; `offset` if there is none."""
    view = memoryview(data)
    position = batches = 0
    while position < len(view):
        header = read_header(view, position)
        position += header.size_bytes
        offset = max(offset, header.next_offset)
        batches += 1
        if batches % BATCHES_PER_SLICE == 0:
            await asyncio.sleep(0)
    return offset


def _invalid(detail: str) -> HttpProblem:
    return HttpProblem(ErrorCode.INVALID_RECORD, f"body: {detail}")


RECORD_OVERHEAD_BYTES = 30  # lengths, deltas and attributes of one record, at most
HEADER_OVERHEAD_BYTES = 10
MAX_UTF8_BYTES = 4
RECORDS_PER_SLICE = 256
SIZED_PER_SLICE = 1024  # records of which only the size is looked at
NO_PRODUCER = ProducerStamp(-1, -1, -1)


class RecordTooLarge(Exception):
    """An error: one record alone makes a batch above the limit.

    `position` is its place in the request.
    """

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"record {position}: {message}")
        self.position = position
        self.message = message


class SpansSeveralBatches(Exception):
    """An error: an idempotent producer's request would become several batches."""


async def build_batches(
    records: Sequence[ProducedRecord],
    *,
    now_ms: int,
    batch_bytes: int,
    producer: ProducerStamp = NO_PRODUCER,
) -> bytes:
    """Build record batches of one partition's records.

    Raises RecordTooLarge; SpansSeveralBatches, with a producer: a retry must find all of what the
    first attempt wrote or none of it, and a failover may leave one batch of two.
    """
    batches: list[bytes] = []
    position = 0
    async for chunk in _chunks(records, batch_bytes - HEADER_BYTES):
        if batches and producer is not NO_PRODUCER:
            raise SpansSeveralBatches(
                "body: with a producer_id expected one batch, of one timestamp and at most "
                f"{batch_bytes} bytes (max.message.bytes of the topic), found several: send fewer"
                " records per request"
            )
        timestamp_ms = chunk[0].timestamp_ms
        body = bytearray(HEADER_BYTES)
        for first in range(0, len(chunk), RECORDS_PER_SLICE):
            if first:
                await asyncio.sleep(0)
            add_records(body, chunk[first : first + RECORDS_PER_SLICE], first_delta=first)
        batch = finish_batch(
            body,
            len(chunk),
            now_ms if timestamp_ms is None else timestamp_ms,
            producer.producer_id,
            producer.producer_epoch,
            producer.base_sequence,
        )
        if len(batch) > batch_bytes:
            raise RecordTooLarge(
                position,
                f"expected a batch of at most {batch_bytes} bytes (max.message.bytes of the topic),"
                f" found {len(batch)}",
            )
        batches.append(batch)
        position += len(chunk)
    return batches[0] if len(batches) == 1 else b"".join(batches)


async def _chunks(
    records: Sequence[ProducedRecord], chunk_bytes: int
) -> AsyncIterator[Sequence[ProducedRecord]]:
    begin = size = 0
    timestamp_ms = records[0].timestamp_ms
    for index, record in enumerate(records):
        record_bytes = _size_bytes_at_most(record)
        is_full = size + record_bytes > chunk_bytes and index > begin
        if is_full or record.timestamp_ms != timestamp_ms:
            yield records[begin:index]
            begin, size, timestamp_ms = index, 0, record.timestamp_ms
        size += record_bytes
        if index % SIZED_PER_SLICE == SIZED_PER_SLICE - 1:
            await asyncio.sleep(0)
    yield records[begin:]


def _size_bytes_at_most(record: ProducedRecord) -> int:
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += HEADER_OVERHEAD_BYTES + MAX_UTF8_BYTES * len(name) + len(value or b"")
    return size
