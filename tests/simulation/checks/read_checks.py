"""I7 and I10: what a reader is shown is intact, was committed, and is the same for everybody; B10:
and by whom.

Asked of a broker's answer at the instant it is given. The judge of I10 knows no excuse: whatever a
bit, a kernel or a power loss did to a disk, a batch is looked at before it leaves the broker.
"""

from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, CorruptBatch, read_header
from tidemark_broker.replication.partition import Partition
from tidemark_protocol.ids import BrokerId

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.replica_audit import ReplicaAudit, is_corrupt
from tests.simulation.checks.violations import Violation

RESPONSE_US = 500_000  # a read waits for records, and what was sent before the cut arrives


def check_in_touch(cluster: ClusterObserver, broker_id: BrokerId, replica: Partition) -> None:
    """B10: a follower that is cut off from its leader for the lag window serves no readers."""
    cut_off_us = cluster.cut_off_us(broker_id)
    if replica.leader is None and cut_off_us > replica.replica_lag_max_ms * 1000 + RESPONSE_US:
        raise Violation(
            "B10",
            f"broker {broker_id} serves readers of {replica.topic}-{replica.partition}"
            f" {cut_off_us / 1e6} s after it was cut off from all others",
        )


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
        if is_corrupt(header, batch):
            raise Violation("I10", f"{audit.who} showed a damaged batch at {header.base_offset}")
        _check_committed(audit, header, batch, high_watermark)


def _check_committed(
    audit: ReplicaAudit, header: BatchHeader, batch: bytes, high_watermark: int
) -> None:
    committed = audit.committed
    if not audit.may_checker(header.last_offset):
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
