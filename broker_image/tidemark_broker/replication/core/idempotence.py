"""Decide about a batch of an idempotent producer: append, answer as before, or reject (I8).

Kafka's ProducerAppendInfo, except for a producer id that the partition does not know: Kafka accepts
any sequence then (KIP-360), we only 0 (docs/decisions/0011). Followers check nothing: they record
what the leader appended. There is one small function per rule.
"""

from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.kafka_wire.records.record_batch import BatchHeader
from tidemark_broker.log.producer_state_entry import (
    NO_PRODUCER_ID,
    SEQUENCES,
    ProducerBatch,
    ProducerEntry,
    ProducerStateEntries,
    last_sequence_of,
)

# Each costs about half a kilobyte; beyond this a partition takes no new ones until some expire.
# None is ever dropped early: a retry of a dropped one would be appended a second time (I8).
MAX_PRODUCERS = 50_000


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is already in the log, at this offset; acknowledged once that is committed."""

    first_offset: Offset
    end_offset: Offset
    timestamp_ms: int  # its largest


@dataclass(frozen=True, slots=True)
class RejectBatch:
    error: ErrorCode
    message: str


ProducerVerdict = Duplicate | RejectBatch | None  # None: append it


def malformed_producer(header: BatchHeader) -> str:
    """Return a sentence about impossible producer fields, or ""."""
    producer_id = header.producer_id
    if header.is_transactional:
        return (
            "a transactional batch: transactions are not supported, send it without the"
            " transactional bit"
        )
    if producer_id == NO_PRODUCER_ID:
        return ""  # the other two say nothing then; clients send -1 or 0
    if producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        return (
            "expected producer id, epoch and base sequence from 0 on (or producer id -1), found "
            f"{producer_id}, {header.producer_epoch}, {header.base_sequence}"
        )
    return ""


def check_sequence(header: BatchHeader, producers: ProducerStateEntries) -> ProducerVerdict:
    """Check a well-formed batch with a producer id; `producers` are as of the log's end."""
    entry = producers.get(header.producer_id)
    if entry is None:
        return _check_unknown(header, producers)
    if header.producer_epoch == entry.producer_epoch:
        return _check_known(header, entry)
    if _is_fenced(header, entry):
        return RejectBatch(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id}: expected epoch {entry.producer_epoch} or later,"
            f" found {header.producer_epoch}: request a new epoch",
        )
    if _may_begin(header):
        return None
    return RejectBatch(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}, new epoch {header.producer_epoch}: expected base "
        f"sequence 0, found {header.base_sequence}",
    )


def _check_known(header: BatchHeader, entry: ProducerEntry) -> ProducerVerdict:
    if _is_next(header, entry):  # the usual case; no batch of five is as long as all sequences
        return None
    duplicate = _find_duplicate(header, entry)
    if duplicate is not None:
        end_offset = Offset(duplicate.last_offset + 1)
        return Duplicate(duplicate.first_offset, end_offset, duplicate.timestamp_ms)
    return RejectBatch(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}, epoch {header.producer_epoch}: expected base"
        f" sequence {(entry.last_sequence + 1) % SEQUENCES}, found {header.base_sequence},"
        " which is not a duplicate of a recent batch",
    )


def _check_unknown(header: BatchHeader, producers: ProducerStateEntries) -> ProducerVerdict:
    if not _may_begin(header):
        return RejectBatch(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"producer {header.producer_id} has no state in this partition (new or expired):"
            f" expected base sequence 0, found {header.base_sequence}: request a new epoch"
            " and start at 0",
        )
    if _is_full(producers):
        return RejectBatch(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"{len(producers)} producer IDs were active within producer.id.expiration.ms,"
            " the maximum of a partition: use producer IDs longer, or lower that config",
        )
    return None


# guard: older-producer-epoch-is-fenced (B8)
def _is_fenced(header: BatchHeader, entry: ProducerEntry) -> bool:
    return header.producer_epoch < entry.producer_epoch


# guard: unknown-producer-begins-at-zero (B8)
def _may_begin(header: BatchHeader) -> bool:
    """Return whether it may be the first batch of a producer id or of an epoch of it."""
    return header.base_sequence == 0


# guard: duplicate-is-found (I8)
def _find_duplicate(header: BatchHeader, entry: ProducerEntry) -> ProducerBatch | None:
    first = header.base_sequence
    last = last_sequence_of(header)
    for batch in reversed(entry.window):
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    return None


# guard: sequence-is-next (B8)
def _is_next(header: BatchHeader, entry: ProducerEntry) -> bool:
    return header.base_sequence == (entry.last_sequence + 1) % SEQUENCES


def _is_full(producers: ProducerStateEntries) -> bool:
    return len(producers) >= MAX_PRODUCERS
