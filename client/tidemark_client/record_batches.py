"""Encode records as the broker's log stores them (`application/vnd.kafka.recordbatch`).

The broker appends such a batch as it is. As JSON it would decode base64 for each record, and build
the batch itself.
"""

from collections.abc import Sequence

from tidemark_protocol.record_batch_writer import (
    HEADER_BYTES,
    as_int64,
    encode_record,
    finish_batch,
)

from tidemark_client.outcomes import OutgoingRecord, ProducerIdentity

CONTENT_TYPE = "application/vnd.kafka.recordbatch"
_NO_PRODUCER = (ProducerIdentity(-1, -1), -1)


def encode_batch(
    records: Sequence[OutgoingRecord],
    *,
    now_ms: int,
    numbered_as: tuple[ProducerIdentity, int] | None = None,
) -> bytes:
    """Return one batch of the records, which are at least one.

    `now_ms` is the time of those without one. `numbered_as` is an idempotent producer and the
    sequence of the first record.
    """
    first = records[0].timestamp_ms
    base_ms = now_ms if first is None else first
    max_ms = base_ms
    body = bytearray(HEADER_BYTES)
    for delta, record in enumerate(records):
        timestamp_ms = record.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = now_ms
        max_ms = max(max_ms, timestamp_ms)
        body += encode_record(
            delta,
            timestamp_ms - base_ms and as_int64(timestamp_ms - base_ms),
            record.key,
            record.value,
            [(header.key, header.value) for header in record.headers],
        )
    identity, sequence = numbered_as or _NO_PRODUCER
    return finish_batch(
        body,
        len(records),
        base_ms,
        identity.producer_id,
        identity.producer_epoch,
        sequence,
        max_timestamp_ms=max_ms,
    )
