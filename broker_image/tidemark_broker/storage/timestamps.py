"""The first record at or after a timestamp: by time index, headers, then one batch's records."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import Offset

from tidemark_broker.storage.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.storage.record_batch import check_crc, read_records
from tidemark_broker.storage.segment import PlacedBatch, Segment

MOST_INFLATED_BYTES = 8 * 1024 * 1024  # of one batch


def first_record_from(
    segments: Iterable[Segment], timestamp_ms: int, *, log_start_offset: Offset
) -> tuple[Offset, int] | None:
    """(offset, timestamp), or None. Raises CorruptBatch, OSError.

    In batches whose records cannot be read here, the first offset of the batch: never too late a
    one. So too once a look-up has opened much, which only headers that say more than their records
    bring.
    """
    budget = _Budget()
    for segment in segments:
        if segment.next_offset <= log_start_offset:
            continue
        for placed in segment.batches_reaching(timestamp_ms):
            found = _record_from(segment, placed, timestamp_ms, log_start_offset, budget)
            if found is not None:
                return found
    return None


@dataclass(slots=True)
class _Budget:
    """Of one look-up, which is one piece of work for the broker's loop."""

    batches: int = 8
    records: int = 50_000


def _record_from(
    segment: Segment,
    placed: PlacedBatch,
    timestamp_ms: int,
    log_start_offset: Offset,
    budget: _Budget,
) -> tuple[Offset, int] | None:
    position, header = placed
    if header.last_offset < log_start_offset:
        return None
    first = max(header.base_offset, log_start_offset), header.max_timestamp_ms
    budget.batches -= 1
    budget.records -= header.record_count
    if budget.batches < 0 or budget.records < 0:
        return first
    batch = memoryview(segment.file.read_at(position, header.size_bytes))
    check_crc(header, batch, position)
    try:
        for record in read_records(batch, most_inflated_bytes=MOST_INFLATED_BYTES):
            if record.offset >= log_start_offset and record.timestamp_ms >= timestamp_ms:
                return record.offset, record.timestamp_ms
    except (UnsupportedCompression, CorruptBatch):
        return first  # the batch is whole: this is how its producer packed it
    return None
