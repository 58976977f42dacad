"""How far from this broker's clock records may be dated (Kafka's INVALID_TIMESTAMP, KIP-937).

Ahead: by the newest timestamp that the batch's header has. Behind, which no topic asks for unless
it is set: by every record where the batch can be opened here and is not too large, else by the
first one, as the header has it. With LogAppendTime nobody asks what producers say.
"""

from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.runtime.results import ProduceResult
from tidemark_broker.storage.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.storage.opening import OpeningBudget
from tidemark_broker.storage.record_batch import Batch
from tidemark_broker.storage.settings import NO_LIMIT_MS, LogSettings


def timestamp_refusal(
    batches: Iterable[Batch], settings: LogSettings, wall_ms: int
) -> ProduceResult | None:
    latest_ms = wall_ms + settings.timestamp_after_max_ms
    for batch in batches:
        if batch.header.max_timestamp_ms > latest_ms:
            return _refused("after", settings.timestamp_after_max_ms, batch, wall_ms)
        limit_ms = settings.timestamp_before_max_ms
        if limit_ms != NO_LIMIT_MS and _oldest_ms(batch) < wall_ms - limit_ms:
            return _refused("before", limit_ms, batch, wall_ms)
    return None


def _oldest_ms(batch: Batch) -> int:
    budget = OpeningBudget()
    try:
        budget.take(batch.header)
        records = budget.records_of(batch.header, batch.data)
        return min(record.timestamp_ms for record in records)
    except (UnsupportedCompression, CorruptBatch, ValueError):
        return batch.header.base_timestamp_ms


def _refused(side: str, limit_ms: int, batch: Batch, wall_ms: int) -> ProduceResult:
    header = batch.header
    return ProduceResult(
        ErrorCode.INVALID_TIMESTAMP,
        message=f"records dated {header.base_timestamp_ms} to {header.max_timestamp_ms} are more"
        f" than {limit_ms} ms {side} this broker's clock, {wall_ms}"
        f" (message.timestamp.{side}.max.ms): set the producer's clock right, or the topic's limit",
    )
