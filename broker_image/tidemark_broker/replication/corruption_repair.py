"""Track replicas with a corrupt batch: report them to the controller, and rebuild them.

The rules are in `core/corruption`; this keeps the count, the report, the log line of each, and the
mark in its log's directory: a replica that was reported failed is so after a restart too (decision
0066). The mark is durable before the report, and stays until the truncation is: a lost kernel
brings back what was truncated (S29).
"""

import logging
from collections.abc import Callable

from tidemark_protocol.ids import BrokerId, Offset, TopicId

from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.log.corruption_marker import KnownCorruption
from tidemark_broker.log.errors import NO_ROOM_ERRORS
from tidemark_broker.metrics.broker_metrics import CrcFailures
from tidemark_broker.replication.core.corruption import Corruption, is_alone
from tidemark_broker.replication.partition import Partition

_log = logging.getLogger(__name__)


class CorruptionRepair:
    def __init__(
        self,
        broker_id: BrokerId,
        *,
        failed_replicas: dict[tuple[TopicId, int], str],
        recreate: Callable[[Partition, Corruption], None],
        fail_storage: Callable[[Exception], None],
        on_corruption: Callable[[Partition], None],
    ) -> None:
        """Create an empty set; heartbeats report `failed_replicas`.

        `recreate` truncates the log and creates the replica again; `on_corruption` is called once
        a read found a corrupt batch.
        """
        self.crc_failures = CrcFailures()
        self._broker_id = broker_id
        self._failed_replicas = failed_replicas
        self._recreate = recreate
        self._fail_storage = fail_storage
        self._on_corruption = on_corruption
        self._has_disk_failed = False  # a failing one may take seconds for each try

    def note(self, replica: Partition, offset: Offset, error: CorruptBatch, where: str) -> None:
        """Record a corrupt batch that a read found; `where` is as `CrcFailures` counts."""
        self.crc_failures.note(where)
        if replica.corruption is None or replica.corruption.valid_from is not None:
            _log.error(
                "corrupt batch on disk",
                extra={
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "offset": offset,
                    "high_watermark": replica.high_watermark,
                    "error": str(error),
                },
            )
            previous = replica.corruption
            replica.corruption = Corruption(
                self._broker_id, offset, str(error), error.is_unreadable
            )
            replica.corruption.require_refetch(previous)
        replica.corruption.offset = min(replica.corruption.offset, offset)
        replica.corruption.is_unreadable &= error.is_unreadable
        self._on_corruption(replica)
        self.settle(replica)

    def remember(self, replica: Partition) -> None:
        """Restore what an earlier process knew when its log is opened.

        Recovery may have truncated the corruption since, or retention deleted it: the replica is
        rebuilt from there all the same.
        """
        known = replica.log.corruption_marker.corruption
        if known is None:
            return
        offset = max(known.offset, replica.log.segments[0].base_offset)
        replica.corruption = Corruption(self._broker_id, offset, known.reason, known.is_unreadable)
        if known.is_reported:
            self._failed_replicas[replica.topic_id, replica.partition] = known.reason

    def record_acknowledged(self, replica: Partition) -> bool:
        """Record that the controller knows; return whether its leader may be asked now."""
        corruption = replica.corruption
        if corruption is None:
            return False
        is_change = not corruption.is_acknowledged
        corruption.is_acknowledged = True
        self.settle(replica)
        return is_change

    def settle(self, replica: Partition) -> None:
        """Report the replica while another can lead, rebuild it if allowed, or end the repair.

        It ends when the replica is valid.
        """
        corruption, key = replica.corruption, (replica.topic_id, replica.partition)
        if corruption is None:
            self._remove_marker(replica)
        elif replica.follower is not None and replica.may_be_rebuilt:
            shared_end = replica.follower.shared_end(replica.log.log_end_offset)
            corruption.cut(shared_end, replica.leader_epoch)
            self._recreate(replica, corruption)
        elif corruption.is_over(replica.log.log_end_offset, replica.leader_epoch):
            replica.corruption = None
            self._failed_replicas.pop(key, None)
            self._remove_marker(replica)
        else:
            is_reported = key in self._failed_replicas
            is_reported = is_reported or not is_alone(replica.state, self._broker_id)
            self._mark(
                replica,
                KnownCorruption(
                    corruption.offset, corruption.reason, is_reported, corruption.is_unreadable
                ),
            )
            if is_reported:
                self._failed_replicas[key] = corruption.reason

    def _mark(self, replica: Partition, corruption: KnownCorruption) -> None:
        """Mark the log, also one that rejects writes: the next process must know.

        A log that is removed needs no mark.
        """
        if replica.log.is_removed or self._has_disk_failed:
            return
        try:
            replica.log.corruption_marker.set(corruption)
        except OSError as error:
            if error.errno not in NO_ROOM_ERRORS:  # else tried again, with every tick
                self._has_disk_failed = True
                self._fail_storage(error)

    def _remove_marker(self, replica: Partition) -> None:
        mark = replica.log.corruption_marker
        if mark.corruption is None or replica.log.failure or replica.log.owes_truncation:
            return
        try:
            mark.remove()
        except OSError as error:
            self._fail_storage(error)
