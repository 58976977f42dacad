"""What a replica knows of idempotent producers, by its batches and what was committed (I8, S24)."""

from itertools import islice

from tidemark_broker.kafka_wire.records.record_batch import BatchHeader
from tidemark_broker.log.producer_state_entry import WINDOW_BATCHES, last_sequence_of

from tests.simulation.checks.replica_audit import ReplicaAudit
from tests.simulation.checks.violations import Violation


def check_is_no_duplicate(audit: ReplicaAudit, requested: BatchHeader) -> str:
    """It is refused, so it must be none of that producer's last batches there. What to count."""
    # Compaction keeps the last one for sure.
    known = 1 if audit.committed.is_compacted else WINDOW_BATCHES
    for header in islice(audit.written_by(requested.producer_id), known):
        if header.producer_epoch == requested.producer_epoch and (
            header.base_sequence == requested.base_sequence
            and header.last_offset_delta == requested.last_offset_delta
        ):
            why = f"as a gap, although it is at offset {header.base_offset}"
            raise _rejected_wrongly(audit, requested, why)
        if header.base_sequence == 0:
            break  # what lies before it is of another epoch, or of before the producer expired
    return "out of order"


def check_is_forgotten(audit: ReplicaAudit, requested: BatchHeader) -> str:
    """S24: it is refused as of an unknown producer, so that has written nothing there, or is quiet
    for long. What to count."""
    last = next(audit.written_by(requested.producer_id), None)
    if last is None or audit.is_unreliable:
        return "unknown producer"
    known = (last.producer_id, last.producer_epoch, last_sequence_of(last))
    if not audit.committed.expiry.may_be_over(*known):
        why = f"as unknown, although it wrote offset {last.base_offset}"
        raise _rejected_wrongly(audit, requested, why)
    return "expired producer"


def _rejected_wrongly(audit: ReplicaAudit, requested: BatchHeader, why: str) -> Violation:
    sequence = f"sequence {requested.base_sequence} of producer {requested.producer_id}"
    return Violation("I8", f"{audit.who}: refused {sequence} {why}")


def check_knows_producers(audit: ReplicaAudit, epoch: int) -> None:
    """Elected in that leader epoch, it goes on where each producer's committed sequences end, also
    where compaction took the records away that had them."""
    log, committed = audit.replica.log, audit.committed
    if max(committed.led, default=epoch) > epoch:
        return  # it hears of its epoch late: its successor has committed already
    is_reported = log.log_start_offset == 0 and audit.is_readable  # else a lost snapshot is missed
    if not is_reported or log.log_end_offset < committed.end_offset:
        return
    if committed.lost_from is not None or audit.is_unreliable:
        return
    for producer_id, *last in committed.last_sequences():
        if committed.expiry.may_be_over(producer_id, *last):
            continue
        entry = log.producers.get(producer_id)
        known = None if entry is None else [entry.producer_epoch, entry.last_sequence]
        if known is None or known < last:
            raise Violation(
                "I8",
                f"{audit.who}, elected in leader epoch {epoch}, knows {known} as (epoch, last"
                f" sequence) of producer {producer_id}, committed is {last}",
            )
