"""I9: below min.insync.replicas nothing is acknowledged to acks=all, and no watermark moves."""

from tidemark_broker.replication.leader import PartitionLeader
from tidemark_broker.runtime.hosted_replica import HostedReplica
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState

from tests.simulator.violations import Violation


def has_enough(state: PartitionState) -> bool:
    return len(state.in_sync_replicas) >= state.min_insync_replicas


def check_acknowledged(
    broker_id: BrokerId, replica: HostedReplica, leader: PartitionLeader
) -> None:
    """Raises Violation."""
    if not has_enough(leader.state):
        raise Violation(
            "I9",
            f"broker {broker_id} acknowledged in {replica.topic}-{replica.partition} under"
            f" {leader.state}",
        )


class MinInsyncJudge:
    def __init__(self) -> None:
        # Of leaders, as last looked at.
        self._watermarks: dict[HostedReplica, tuple[PartitionState, int]] = {}

    def look(self, replica: HostedReplica, leader: PartitionLeader) -> None:
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
