"""I7 and I10: what a reader is shown is intact, was committed, and is the same for everybody.

Asked of a broker's answer at the instant it is given. The judge of I10 knows no excuse: whatever a
bit, a kernel or a power loss did to a disk, a batch is looked at before it leaves the broker.
"""

from tidemark_broker.storage.record_batch import BatchHeader, CorruptBatch, read_header

from tests.simulator.replica_audit import ReplicaAudit, is_damaged
from tests.simulator.violations import Violation


def check_shown(audit: ReplicaAudit, data: bytes, high_watermark: int) -> None:
    """Raises Violation."""
    position = 0
    while position < len(data):
        try:
            header = read_header(data, position)
        except CorruptBatch as error:
            raise Violation("I10", f"{audit.who} showed what is no batch: {error}") from error
        batch = data[position : position + header.size_bytes]
        position += header.size_bytes
        if is_damaged(header, batch):
            raise Violation("I10", f"{audit.who} showed a damaged batch at {header.base_offset}")
        _check_committed(audit, header, batch, high_watermark)


def _check_committed(
    audit: ReplicaAudit, header: BatchHeader, batch: bytes, high_watermark: int
) -> None:
    committed = audit.committed
    if not audit.may_judge(header.last_offset):
        return
    if not audit.is_readable and header.next_offset > committed.end_offset:
        return
    if header.next_offset > min(high_watermark, committed.end_offset):
        raise Violation(
            "I7",
            f"{audit.who} showed offset {header.base_offset} at watermark"
            f" {high_watermark}; committed ends at {committed.end_offset}",
        )
    committed.check_shown(header, batch, audit.who)
