"""Which replicas here have a corrupt batch, what the controller is told, when they are rebuilt.

The rules are in `replica_damage`; this keeps the count, the report and the log line of each.
"""

import logging
from collections.abc import Callable

from tidemark_protocol.ids import BrokerId, Offset, TopicId

from tidemark_broker.runtime.hosted_replica import HostedReplica
from tidemark_broker.runtime.metrics import CrcFailures
from tidemark_broker.runtime.replica_damage import Damage, is_alone
from tidemark_broker.storage.errors import CorruptBatch

_log = logging.getLogger(__name__)


class DamagedReplicas:
    def __init__(
        self,
        broker_id: BrokerId,
        *,
        failed_replicas: dict[tuple[TopicId, int], str],
        recreate: Callable[[HostedReplica, Damage], None],
    ) -> None:
        """`failed_replicas`: what heartbeats report; `recreate` cuts the log and begins anew."""
        self.crc_failures = CrcFailures()
        self._broker_id = broker_id
        self._failed_replicas = failed_replicas
        self._recreate = recreate

    def note(self, replica: HostedReplica, offset: Offset, error: CorruptBatch, where: str) -> None:
        """A read met a corrupt batch; `where`: as `CrcFailures` counts."""
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
            replica.damage = Damage(self._broker_id, offset, str(error))
        replica.damage.offset = min(replica.damage.offset, offset)
        self.settle(replica)

    def settle(self, replica: HostedReplica) -> None:
        """Reported while somebody else can lead; rebuilt when it may be; over once it is sound."""
        damage, key = replica.damage, (replica.topic_id, replica.partition)
        if damage is None:
            return
        if replica.may_be_rebuilt:
            damage.sound_from, damage.cut_in_epoch = replica.high_watermark, replica.leader_epoch
            self._recreate(replica, damage)
        elif damage.is_over(replica.log.log_end_offset, replica.leader_epoch):
            replica.damage = None
            self._failed_replicas.pop(key, None)
        elif not is_alone(replica.state, self._broker_id):
            self._failed_replicas[key] = damage.reason
