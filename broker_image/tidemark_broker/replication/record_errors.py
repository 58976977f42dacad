"""Reject a produce and name its invalid records, by index and message (KIP-467).

A client then fails these records and knows that the others are valid. Of one request at most
MOST_RECORD_ERRORS are named: each costs more bytes than the smallest record.
"""

from collections.abc import Sequence

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.replication.results import ProduceResult, RecordError

MOST_RECORD_ERRORS = 10_000


def records_rejected(error: ErrorCode, found: Sequence[RecordError], hint: str) -> ProduceResult:
    """Refuse the whole produce for these records. `hint`: what to do, told once."""
    first = found[0]
    more = f", and {len(found) - 1} more records" if len(found) > 1 else ""
    return ProduceResult(
        error,
        message=f"record {first.position} of the batch: {first.message}{more}: {hint}",
        record_errors=tuple(found[:MOST_RECORD_ERRORS]),
    )


def with_more(refused: ProduceResult, times: ProduceResult | None) -> ProduceResult:
    """Add the records of `times` that `refused` does not name.

    The error is then that of `times`, as in Kafka, where INVALID_TIMESTAMP of one record decides
    for the batch.
    """
    if times is None:
        return refused
    named = {found.position for found in refused.record_errors}
    added = [found for found in times.record_errors if found.position not in named]
    if not added:
        return refused
    found = sorted((*refused.record_errors, *added))
    return ProduceResult(
        times.error,
        message=f"{refused.message}; {times.message}",
        record_errors=tuple(found[:MOST_RECORD_ERRORS]),
    )
