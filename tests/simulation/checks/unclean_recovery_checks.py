"""S14, and unclean elections: who leads without proof has the longest log of those that count.

Reports are taken from logs that stand still, so what controllers compared is what is there when the
election is stored; a process that died since has lost of it, and gained nothing.
"""

from dataclasses import replace

from tidemark_operator.api.broker import BrokerRecord
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_protocol.ids import BrokerId, LeaderEpoch
from tidemark_protocol.partition_state import Member

from tests.simulation.checks.cluster_observer import ClusterObserver, LiveBroker
from tests.simulation.checks.slice_checks import LONGEST_LOG, SliceEvent
from tests.simulation.checks.violations import Violation

# A write may land that late after it was decided, and an unclean election is decided among those
# that were active then.
ACTIVE_FOR_US = 2_000_000

LogEnd = tuple[int, int]  # (last epoch, log end offset)


class UncleanRecoveryChecker:
    def __init__(self, cluster: ClusterObserver) -> None:
        self._cluster = cluster
        self._active_since_us: dict[BrokerId, int] = {}

    def on_broker(self, before: BrokerRecord | None, after: BrokerRecord) -> None:
        is_there = after.is_live and not after.is_stopping
        was_there = before is not None and before.is_live and not before.is_stopping
        is_same = before is not None and before.broker_epoch == after.broker_epoch
        if not is_there:
            self._active_since_us.pop(after.broker_id, None)
        elif not (was_there and is_same):
            self._active_since_us[after.broker_id] = self._cluster.now_us

    def on_elected(self, value: PartitionSlice, event: SliceEvent) -> None:
        """By the longest log or uncleanly. Raises Violation."""
        state = event.state
        before = replace(state, leader_epoch=LeaderEpoch(state.leader_epoch - 1))
        is_chosen = self._cluster.is_chosen(event.topic_id, before, state.leader)
        # A bit that flips cuts a log before or after it is reported, and may lie in its epoch.
        if is_chosen or self._cluster.has_flipped_bits:
            return
        led = self._end_at(event, state.leader)
        if led is None or led[0].partitions.broker_epoch != state.leader_broker_epoch:
            return  # what it held went with its process, which the controller does not know yet
        for broker_id in state.replicas:
            other = self._end_at(event, broker_id)
            if other is None or other[1] <= led[1] or not self._counts(value, event, other[0]):
                continue
            raise Violation(
                "S14",
                f"{value.name}: {event.kind}: {state}, whose log ends at {led[1]} (epoch, offset);"
                f" that of broker {broker_id} at {other[1]}",
            )

    def _end_at(self, event: SliceEvent, broker_id: BrokerId) -> tuple[LiveBroker, LogEnd] | None:
        """None: it has no log that could lead."""
        broker = self._cluster.live_broker(broker_id)
        if broker is None:
            return None
        replica = broker.partitions.hosted(event.topic_id, event.partition)
        if replica is None or replica.log.failure or replica.corruption is not None:
            return None
        return broker, (replica.log.latest_epoch, replica.log.log_end_offset)

    def _counts(self, value: PartitionSlice, event: SliceEvent, broker: LiveBroker) -> bool:
        """The longest of all is that of every replica, whoever is fenced."""
        record = self._cluster.broker_records().get(broker.broker_id)
        if record is None or record.broker_epoch != broker.partitions.broker_epoch:
            return False  # of a life that nobody heard of
        member = Member(broker.broker_id, record.broker_epoch)
        if self._cluster.is_lost(event.topic_id, event.partition, member):
            return False
        if event.kind == LONGEST_LOG:
            return True
        # The controller fences, and lets go who wants to stop, and writes it down afterwards.
        known = self._cluster.last_known_broker(broker.broker_id, value.controller_epoch)
        is_there = known is None or (known.is_live and not known.is_stopping)
        since_us = self._active_since_us.get(broker.broker_id, self._cluster.now_us)
        return is_there and self._cluster.now_us - since_us >= ACTIVE_FOR_US
