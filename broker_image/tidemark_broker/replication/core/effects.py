"""Define the inputs and effects of the replication cores as frozen values.

Inputs are named after the message, effects after what the shell must do. A shell performs a
returned tuple in order.

`LeaderAssignment` and `LeaderSettings` are what makes a broker the leader of a partition.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from tidemark_protocol.partition_state import PartitionState


class LogView(Protocol):
    """What a core may know of a log: positions in memory.

    Implemented by PartitionLog, and by the epoch histories of tests.
    """

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def latest_epoch(self) -> LeaderEpoch: ...
    @property
    def first_epoch(self) -> LeaderEpoch: ...
    def end_offset_for(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None: ...


# ---- inputs


class ReplicaFetch(NamedTuple):
    """A follower's fetch of one partition; what is not given is -1, as on the wire."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    current_leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset = Offset(-1)


class LeaderResponse(NamedTuple):
    """A leader's answer as a follower reads it; on OFFSET_OUT_OF_RANGE the log start is valid."""

    error: ErrorCode
    high_watermark: Offset
    log_start_offset: Offset
    has_records: bool
    diverging_epoch: "DivergingEpoch | None" = None


# ---- a leader's verdict on a fetch


@dataclass(frozen=True, slots=True)
class RejectFetch:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class DivergingEpoch:
    """A divergence at or before `end_offset` of `epoch`: the follower truncates, then asks."""

    epoch: LeaderEpoch
    end_offset: Offset


FetchVerdict = RejectFetch | DivergingEpoch | None  # None: serve it


# ---- effects


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Everything below is committed: complete produces, wake readers, notify followers."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Send (or send again) this proposal to the controller."""

    proposal: IsrProposal


LeaderEffect = HighWatermarkAdvanced | ProposeIsr


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the answer's records, then report through `PartitionFollower.on_appended`."""

    leader_high_watermark: Offset


@dataclass(frozen=True, slots=True)
class FollowLogStart:
    """Advance the log start to the leader's, as far as `PartitionFollower.log_start_at`."""

    leader_start_offset: Offset


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Truncate, then report through `on_truncated`."""

    to_offset: Offset


@dataclass(frozen=True, slots=True)
class RestartLogAt:
    """Drop everything and start at this offset: the leader no longer has what follows our log."""

    offset: Offset


FollowerEffect = HighWatermarkAdvanced | AppendRecords | FollowLogStart | TruncateLog | RestartLogAt


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    commits_by_isr_alone: bool = False  # commitRule: Isr; else |ISR| >= min ISR is needed too
    flushes_always: bool = False  # flush: Always: only durable ends count (S11)
    replica_lag_max_ms: int = 10_000  # replica.lag.time.max.ms


@dataclass(frozen=True, slots=True)
class LeaderAssignment:
    """The state that makes this broker the leader in its present epoch."""

    topic_id: TopicId
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    state: PartitionState
    settings: LeaderSettings
