"""Records of one partition as record batches, in order.

One batch, unless it would pass `batch_bytes` (the topic's max.message.bytes: then the next
begins, so that a large request is not refused as one too large batch) or the records bring
timestamps of their own that differ (a batch built here has one timestamp). A record costs some two
microseconds, and ten with many headers, so others get the loop every few hundred.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from tidemark_broker.http.produce_bodies import ProducedRecord, ProducerStamp
from tidemark_broker.storage.record_batch import HEADER_BYTES, add_records, finish_batch

RECORD_OVERHEAD_BYTES = 30  # lengths, deltas and attributes of one record, at most
HEADER_OVERHEAD_BYTES = 10
MAX_UTF8_BYTES = 4
RECORDS_PER_SLICE = 256
SIZED_PER_SLICE = 1024  # records of which only the size is looked at
NO_PRODUCER = ProducerStamp(-1, -1, -1)


class RecordTooLarge(Exception):
    """One record alone makes a batch above the limit. `position`: its place in the request."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"record {position}: {message}")
        self.position = position
        self.message = message


class NotOneBatch(Exception):
    """An idempotent producer's request that would become several."""


async def build_batches(
    records: Sequence[ProducedRecord],
    *,
    now_ms: int,
    batch_bytes: int,
    producer: ProducerStamp = NO_PRODUCER,
) -> bytes:
    """Raises RecordTooLarge; NotOneBatch, with a producer: a retry must find the whole of what the
    first try wrote or none of it, and a failover may leave one batch of two."""
    batches: list[bytes] = []
    position = 0
    async for chunk in _chunks(records, batch_bytes - HEADER_BYTES):
        if batches and producer is not NO_PRODUCER:
            raise NotOneBatch(
                "with a producer_id the records of a request are one batch: expected less than "
                f"{batch_bytes} bytes (max.message.bytes of the topic) and one timestamp"
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
                f"a record makes a batch of {len(batch)} bytes: expected at most {batch_bytes} "
                "(max.message.bytes of the topic)",
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
