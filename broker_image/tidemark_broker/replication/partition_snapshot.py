"""Define what /metrics shows of one replica, as one consistent snapshot.

It is taken between two awaits of the broker's loop, so a high watermark that goes back without a
new epoch is a finding, not an artefact.

`IsrChanges` counts how often the ISR of a partition lost and gained members while this broker led
it, and why. It counts from the states that were applied, so a change that an election brings counts
with the leader that it assigns. The numbers are only for /metrics and the audit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tidemark_protocol.controller_messages import BrokerState, IsrProposal
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset, TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_broker.replication.core.replica_digest import BoundaryDigest


class ShrinkReason(Enum):
    LAG = "lag"  # this leader proposed it: the member fell behind
    FENCED = "fenced"  # the controller took it out: dead, silent or unclean
    PLANNED = "planned"  # it was stopping in order


class IsrChanges:
    """Of one replica: plain counts, as a dict in each of thousands would take 230 bytes."""

    __slots__ = ("_fenced", "_lag", "_planned", "expands")

    def __init__(self) -> None:
        self._lag = self._fenced = self._planned = 0
        self.expands = 0

    @property
    def shrinks(self) -> tuple[tuple[ShrinkReason, int], ...]:
        return (
            (ShrinkReason.LAG, self._lag),
            (ShrinkReason.FENCED, self._fenced),
            (ShrinkReason.PLANNED, self._planned),
        )

    def note(
        self,
        before: PartitionState,
        after: PartitionState,
        brokers: Mapping[BrokerId, BrokerState],
        proposal: IsrProposal | None,
    ) -> None:
        """Count a change; `proposal` is this leader's own that was pending during `before`."""
        left = before.in_sync_ids - after.in_sync_ids
        proposed = (
            None if proposal is None else {m.broker_id for m in proposal.new_in_sync_replicas}
        )
        reasons = {_reason(broker_id, brokers, proposed) for broker_id in left}
        self._lag += ShrinkReason.LAG in reasons
        self._fenced += ShrinkReason.FENCED in reasons
        self._planned += ShrinkReason.PLANNED in reasons
        self.expands += bool(after.in_sync_ids - before.in_sync_ids)


def _reason(
    broker_id: BrokerId, brokers: Mapping[BrokerId, BrokerState], proposed: set[BrokerId] | None
) -> ShrinkReason:
    known = brokers.get(broker_id)
    if known is not None and known.is_stopping:
        return ShrinkReason.PLANNED
    return (
        ShrinkReason.LAG
        if proposed is not None and broker_id not in proposed
        else ShrinkReason.FENCED
    )


@dataclass(frozen=True, slots=True)
class FollowerSnapshot:
    """A follower as its leader sees it; `caught_up_age_ms` is -1 if never in this epoch."""

    broker_id: BrokerId
    lag_records: int
    caught_up_age_ms: int
    in_sync: bool


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """A replica at one moment.

    `followers` is empty unless it leads; `state` is None before the first push. `is_retained` if
    its topic was deleted and its data is kept.
    """

    topic: str
    topic_id: TopicId
    partition: int
    is_leader: bool
    leader_epoch: LeaderEpoch
    epoch_start_offset: Offset  # -1: none
    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    size_bytes: int
    state: PartitionState | None
    replica_lag_max_ms: int
    followers: tuple[FollowerSnapshot, ...]
    isr_shrinks: tuple[tuple[ShrinkReason, int], ...]
    isr_expands: int
    truncated_records: int
    committed_truncated_records: int
    election_gap_records: int = 0
    largest_append_records: int = 0
    producer_ids: int = 0
    duplicate_batches: int = 0
    digest: BoundaryDigest | None = None
    is_retained: bool = False


def follower_snapshots(leader: PartitionLeader, now_ms: int) -> tuple[FollowerSnapshot, ...]:
    in_sync = leader.state.in_sync_ids
    found = []
    for broker_id in leader.state.replicas:
        replica = leader.follower(broker_id)
        if replica is None:
            continue
        # Equal ends are caught up however long ago that was noticed.
        age_ms = max(0, now_ms - replica.last_caught_up_ms)
        if replica.log_end_offset == leader.log_end_offset:
            age_ms = 0
        elif replica.last_caught_up_ms < 0:
            age_ms = -1
        found.append(
            FollowerSnapshot(
                broker_id,
                lag_records=leader.log_end_offset - max(0, replica.log_end_offset),
                caught_up_age_ms=age_ms,
                in_sync=broker_id in in_sync,
            )
        )
    return tuple(found)


def follower_ends(leader: PartitionLeader) -> tuple[tuple[BrokerId, Offset], ...]:
    """Return the log end offset of each follower by its last fetch; -1: none yet."""
    found = ((each, leader.follower(each)) for each in leader.state.replicas)
    return tuple((each, follower.log_end_offset) for each, follower in found if follower)
