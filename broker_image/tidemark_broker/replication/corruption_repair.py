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
from tidemark_broker.log.corruption_marker import KnownDamage
from tidemark_broker.log.errors import NO_ROOM_ERRORS
from tidemark_broker.metrics.broker_metrics import CrcFailures
from tidemark_broker.replication.core.corruption import Damage, is_alone
from tidemark_broker.replication.partition import Partition

_log = logging.getLogger(__name__)


class DamagedReplicas:
    def __init__(
        self,
        broker_id: BrokerId,
        *,
        failed_replicas: dict[tuple[TopicId, int], str],
        recreate: Callable[[Partition, Damage], None],
        fail_storage: Callable[[Exception], None],
    ) -> None:
        """Create an empty set; heartbeats report `failed_replicas`.

        `recreate` truncates the log and creates the replica again.
        """
        self.crc_failures = CrcFailures()
        self.on_damage: Callable[[Partition], None] = lambda replica: None
        self._broker_id = broker_id
        self._failed_replicas = failed_replicas
        self._recreate = recreate
        self._fail_storage = fail_storage
        self._has_disk_failed = False  # a failing one may take seconds for each try

    def note(self, replica: Partition, offset: Offset, error: CorruptBatch, where: str) -> None:
        """Record a corrupt batch that a read found; `where` is as `CrcFailures` counts."""
        self.crc_failures.note(where)
        if replica.damage is None or replica.damage.sound_from is not None:
            _log.error(
                "corrupt batch on the disk",
                extra={
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "offset": offset,
                    "high_watermark": replica.high_watermark,
                    "error": str(error),
                },
            )
            previous = replica.damage
            replica.damage = Damage(self._broker_id, offset, str(error), error.is_unreadable)
            replica.damage.owe(previous)
        replica.damage.offset = min(replica.damage.offset, offset)
        replica.damage.is_unreadable &= error.is_unreadable
        self.on_damage(replica)
        self.settle(replica)

    def remember(self, replica: Partition) -> None:
        """Restore what an earlier process knew when its log is opened.

        Recovery may have truncated the corruption since, or retention deleted it: the replica is
        rebuilt from there all the same.
        """
        known = replica.log.damage_mark.damage
        if known is None:
            return
        offset = max(known.offset, replica.log.segments[0].base_offset)
        replica.damage = Damage(self._broker_id, offset, known.reason, known.is_unreadable)
        if known.is_reported:
            self._failed_replicas[replica.topic_id, replica.partition] = known.reason

    def note_heard(self, replica: Partition) -> bool:
        """Record that the controller knows; return whether its leader may be asked now."""
        damage = replica.damage
        if damage is None:
            return False
        is_news = not damage.is_heard
        damage.is_heard = True
        self.settle(replica)
        return is_news

    def settle(self, replica: Partition) -> None:
        """Report the replica while another can lead, rebuild it if allowed, end when it is
        valid.
        """
        damage, key = replica.damage, (replica.topic_id, replica.partition)
        if damage is None:
            self._take_off_mark(replica)
        elif replica.follower is not None and replica.may_be_rebuilt:
            shared_end = replica.follower.shared_end(replica.log.log_end_offset)
            damage.cut(shared_end, replica.leader_epoch)
            self._recreate(replica, damage)
        elif damage.is_over(replica.log.log_end_offset, replica.leader_epoch):
            replica.damage = None
            self._failed_replicas.pop(key, None)
            self._take_off_mark(replica)
        else:
            is_reported = key in self._failed_replicas
            is_reported = is_reported or not is_alone(replica.state, self._broker_id)
            self._mark(
                replica,
                KnownDamage(damage.offset, damage.reason, is_reported, damage.is_unreadable),
            )
            if is_reported:
                self._failed_replicas[key] = damage.reason

    def _mark(self, replica: Partition, damage: KnownDamage) -> None:
        """Mark the log, also one that rejects writes: the next process must know.

        A log that is removed needs no mark.
        """
        if replica.log.is_removed or self._has_disk_failed:
            return
        try:
            replica.log.damage_mark.set(damage)
        except OSError as error:
            if error.errno not in NO_ROOM_ERRORS:  # else tried again, with every tick
                self._has_disk_failed = True
                self._fail_storage(error)

    def _take_off_mark(self, replica: Partition) -> None:
        mark = replica.log.damage_mark
        if mark.damage is None or replica.log.failure or replica.log.owes_truncation:
            return
        try:
            mark.take_off()
        except OSError as error:
            self._fail_storage(error)
