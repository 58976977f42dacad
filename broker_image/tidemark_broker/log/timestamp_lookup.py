"""Find the first record at or after a timestamp, by time index, headers and records."""

from collections.abc import Iterable

from tidemark_protocol.ids import Offset

from tidemark_broker.kafka_wire.records.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.kafka_wire.records.record_batch import DecompressionBudget, check_crc
from tidemark_broker.log.errors import LocalLogCorrupt
from tidemark_broker.log.segment import PlacedBatch, Segment
from tidemark_broker.log.unreadable_sectors import unreadable_is_corrupt

MOST_BATCHES = 8  # opened in one look-up, which is one piece of work for the broker's loop


def first_record_from(
    segments: Iterable[Segment], timestamp_ms: int, *, log_start_offset: Offset
) -> tuple[Offset, int] | None:
    """Return (offset, timestamp) of the first record not earlier, or None.

    For a batch whose records cannot be read here it is the batch's first offset: never one too
    late. So too once a lookup has decompressed much, which happens only if headers claim more than
    their records have. Raises LocalLogCorrupt, OSError.
    """
    budget = DecompressionBudget(MOST_BATCHES)
    for segment in segments:
        if segment.next_offset <= log_start_offset:
            continue
        try:
            with unreadable_is_corrupt():
                found = _record_in(segment, timestamp_ms, log_start_offset, budget)
        except CorruptBatch as error:
            raise LocalLogCorrupt(segment.next_offset - 1, error) from error
        if found is not None:
            return found
    return None


def _record_in(
    segment: Segment, timestamp_ms: int, log_start_offset: Offset, budget: DecompressionBudget
) -> tuple[Offset, int] | None:
    for placed in segment.batches_reaching(timestamp_ms):
        found = _record_from(segment, placed, timestamp_ms, log_start_offset, budget)
        if found is not None:
            return found
    return None


def _record_from(
    segment: Segment,
    placed: PlacedBatch,
    timestamp_ms: int,
    log_start_offset: Offset,
    budget: DecompressionBudget,
) -> tuple[Offset, int] | None:
    position, header = placed
    if header.last_offset < log_start_offset:
        return None
    first = max(header.base_offset, log_start_offset), header.max_timestamp_ms
    try:
        budget.take(header)
    except UnsupportedCompression:
        return first
    batch = memoryview(segment.file.read_at(position, header.size_bytes))
    check_crc(header, batch, position)
    try:
        for record in budget.records_of(header, batch):
            if record.offset >= log_start_offset and record.timestamp_ms >= timestamp_ms:
                return record.offset, record.timestamp_ms
    except (UnsupportedCompression, CorruptBatch):
        return first  # the batch is whole: this is how its producer packed it
    return None
