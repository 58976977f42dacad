"""I9: below min.insync.replicas nothing is acknowledged to acks=all, and no watermark moves. S11:
what is acknowledged with `flush: Always` is on the disk of whoever acknowledges."""

from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_broker.replication.partition import Partition
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import FLUSH_ALWAYS, PartitionState

from tests.simulation.checks.violations import Violation


def has_enough(state: PartitionState) -> bool:
    return len(state.in_sync_replicas) >= state.min_insync_replicas


def check_acknowledged(
    broker_id: BrokerId, replica: Partition, acks: int, base_offset: int
) -> None:
    """Raises Violation."""
    _check_is_on_disk(replica, acks, base_offset)
    leader = replica.leader
    if leader is not None and acks == -1 and not has_enough(leader.state):
        raise Violation(
            "I9",
            f"broker {broker_id} acknowledged in {replica.topic}-{replica.partition} under"
            f" {leader.state}",
        )


def _check_is_on_disk(replica: Partition, acks: int, base_offset: int) -> None:
    """S11: with `flush: Always` nobody acknowledges what its own disk does not have; with acks=0
    nobody is told. Raises Violation."""
    topic, recovery_point = replica.topic_state, replica.log.recovery_point
    if acks == 0 or topic is None or topic.flush != FLUSH_ALWAYS or base_offset < recovery_point:
        return
    raise Violation(
        "S11",
        f"{replica.topic}-{replica.partition}: offset {base_offset} was acknowledged with acks"
        f" {acks}, and what is past {recovery_point} is not synced",
    )


class MinInsyncChecker:
    def __init__(self) -> None:
        # Of leaders, as last looked at.
        self._watermarks: dict[Partition, tuple[PartitionState, int]] = {}

    def look(self, replica: Partition, leader: PartitionLeader) -> None:
        """KIP-966: under one state below min ISR the watermark stands still. Raises Violation."""
        state, high_watermark = leader.state, leader.high_watermark
        before = self._watermarks.get(replica)
        self._watermarks[replica] = (state, high_watermark)
        if before is None or before[0] != state or before[1] >= high_watermark:
            return
        if not has_enough(state) and not leader.settings.commits_by_isr_alone:
            raise Violation(
                "I9",
                f"{replica.topic}-{replica.partition}: high watermark {before[1]} became"
                f" {high_watermark} below min ISR: {state}",
            )
