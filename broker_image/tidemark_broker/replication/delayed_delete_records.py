"""Wait until no live replica has a record below an offset: the partition's low watermark.

Kafka's Partition.lowWatermarkIfLeader: the least log start of the leader and of the replicas whose
brokers are live, as their fetches say; of one that has not said it is unknown. DeleteRecords waits
for it (KIP-107): a leader elected later then begins no earlier. It is checked when a follower
fetches, and now and then, because leaders and live brokers change too.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, Offset

from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.replica_manager import ReplicaManager

UNKNOWN = Offset(-1)
LOOK_SECONDS = 0.25
MAX_WAIT_MS = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class DeleteRecordsTarget:
    """The offset to wait for, of one partition that this broker leads."""

    topic: str
    partition: int
    offset: Offset


@dataclass(frozen=True, slots=True)
class LowWatermark:
    error: ErrorCode
    offset: Offset = UNKNOWN


class DelayedDeleteRecords:
    def __init__(self, partitions: ReplicaManager, fetches: FollowerFetchHandler) -> None:
        self._partitions = partitions
        self._fetches = fetches

    async def wait(
        self, awaited: Sequence[DeleteRecordsTarget], timeout_ms: int
    ) -> list[LowWatermark]:
        """Wait until all are reached or rejected; return the results in the order asked.

        The others get REQUEST_TIMED_OUT.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + max(0, min(timeout_ms, MAX_WAIT_MS)) / 1000
        fetched = asyncio.Event()
        self._fetches.listeners[fetched.set] = None
        try:
            while True:
                found = [self._check(each) for each in awaited]
                left_s = deadline_s - loop.time()
                if left_s <= 0 or all(each.error is not _WAITS for each in found):
                    return found
                timer = loop.call_later(min(LOOK_SECONDS, left_s), fetched.set)
                await fetched.wait()
                timer.cancel()
                fetched.clear()
        finally:
            del self._fetches.listeners[fetched.set]

    def _check(self, awaited: DeleteRecordsTarget) -> LowWatermark:
        replica = self._partitions.find_leading(awaited.topic, awaited.partition)
        if isinstance(replica, ErrorCode):
            return LowWatermark(replica)
        offset = self._low_watermark(replica)
        return LowWatermark(ErrorCode.NONE if offset >= awaited.offset else _WAITS, offset)

    def _low_watermark(self, replica: Partition) -> Offset:
        assert replica.leader is not None
        reported = self._fetches.log_starts((replica.topic_id, replica.partition))
        followers = [
            reported.get(broker_id, UNKNOWN)
            for broker_id in replica.leader.state.replicas
            if broker_id != self._partitions.broker_id and self._is_live(broker_id)
        ]
        return min([replica.log.log_start_offset, *followers])

    def _is_live(self, broker_id: BrokerId) -> bool:
        broker = self._partitions.metadata.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced


_WAITS = ErrorCode.REQUEST_TIMED_OUT  # of one that is not reached, whenever it is looked at
