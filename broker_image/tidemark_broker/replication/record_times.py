"""Check how far from this broker's clock records are dated (INVALID_TIMESTAMP, KIP-937).

Ahead: by the newest timestamp in the batch's header. Behind, which is checked only if the topic
sets it: by each record if the batch can be decompressed here and is not too large, else by the
first one, from the header. A rejected batch is decompressed too, to name its records (KIP-467); one
that cannot be is rejected as a whole. Records without a timestamp (-1) are never rejected. With
LogAppendTime producers' times do not matter.
"""

from collections.abc import Iterable, Sequence

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka_wire.records.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.kafka_wire.records.record_batch import Batch, DecompressionBudget
from tidemark_broker.log.log_config import NO_LIMIT_MS, LogSettings
from tidemark_broker.replication.record_errors import records_rejected
from tidemark_broker.replication.results import ProduceResult, RecordError

_NO_TIMESTAMP = -1
_HINT = "correct the producer's clock, or change the topic's limit"
_STAMPED = "the batch has timestamp type LogAppendTime, which only brokers set"
_STAMPED_HINT = "send it with the timestamp type CreateTime"


def timestamp_error(
    batches: Sequence[Batch], settings: LogSettings, wall_ms: int
) -> ProduceResult | None:
    if rejection := _stamped_error(batches, settings):
        return rejection
    if settings.stamps_append_time:
        return None
    has_earliest = settings.timestamp_before_max_ms != NO_LIMIT_MS
    latest_ms = wall_ms + settings.timestamp_after_max_ms
    first_index = 0
    found: list[RecordError] = []
    for batch in batches:
        is_ahead = batch.header.max_timestamp_ms > latest_ms
        if is_ahead or has_earliest:
            times = _times(batch)
            bad = _out_of_range(times, settings, wall_ms, first_index)
            if not bad and is_ahead:
                return _batch_rejected(batch, settings.timestamp_after_max_ms, wall_ms)
            found += bad
        first_index += batch.header.record_count
    return records_rejected(ErrorCode.INVALID_TIMESTAMP, found, _HINT) if found else None


def _stamped_error(batches: Sequence[Batch], settings: LogSettings) -> ProduceResult | None:
    """Return the error of Kafka's LogValidator if the log stamps records, or none were stamped."""
    first_index = 0
    found: list[RecordError] = []
    for batch in batches:
        header = batch.header
        end_index = first_index + header.record_count
        has_no_time = header.max_timestamp_ms == _NO_TIMESTAMP
        if header.has_append_time and (settings.stamps_append_time or has_no_time):
            found += (RecordError(index, _STAMPED) for index in range(first_index, end_index))
        first_index = end_index
    return records_rejected(ErrorCode.INVALID_TIMESTAMP, found, _STAMPED_HINT) if found else None


def _out_of_range(
    times_ms: Iterable[int], settings: LogSettings, wall_ms: int, first_index: int
) -> list[RecordError]:
    before_ms, after_ms = settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
    earliest_ms = None if before_ms == NO_LIMIT_MS else wall_ms - before_ms
    latest_ms = wall_ms + after_ms
    found = []
    for index, timestamp_ms in enumerate(times_ms, start=first_index):
        if timestamp_ms == _NO_TIMESTAMP:
            continue
        if timestamp_ms > latest_ms:
            found.append(_error(index, timestamp_ms, "after", after_ms, wall_ms))
        elif earliest_ms is not None and timestamp_ms < earliest_ms:
            found.append(_error(index, timestamp_ms, "before", before_ms, wall_ms))
    return found


def _times(batch: Batch) -> list[int]:
    """Return the time of each record.

    Of the first one alone if the batch cannot be decompressed.
    """
    budget = DecompressionBudget()
    try:
        budget.take(batch.header)
        records = budget.records_of(batch.header, batch.data)
        return [record.timestamp_ms for record in records]
    except (UnsupportedCompression, CorruptBatch, ValueError):
        return [batch.header.base_timestamp_ms]


def _error(index: int, timestamp_ms: int, side: str, limit_ms: int, wall_ms: int) -> RecordError:
    return RecordError(
        index,
        f"dated {timestamp_ms}, more than {limit_ms} ms {side} this broker's clock, {wall_ms}"
        f" (message.timestamp.{side}.max.ms)",
    )


def _batch_rejected(batch: Batch, limit_ms: int, wall_ms: int) -> ProduceResult:
    header = batch.header
    return ProduceResult(
        ErrorCode.INVALID_TIMESTAMP,
        message=f"records dated {header.base_timestamp_ms} to {header.max_timestamp_ms} are more"
        f" than {limit_ms} ms after this broker's clock, {wall_ms}"
        f" (message.timestamp.after.max.ms): {_HINT}",
    )
