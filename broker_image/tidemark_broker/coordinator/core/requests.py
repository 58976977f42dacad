"""Define the requests, answers and effects of a group coordinator.

A request carries a `request_id` that the shell chooses. Its answer, now or later, is one
`Response(request_id, ...)`.

Counts and the census are for metrics alone. `ClockReading` has the two clocks of an event.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tidemark_broker.coordinator.core.offsets_records import CommittedOffset, OffsetsRecord

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignor that a member supports; its metadata is opaque, except for the topics in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A JoinGroup request.

    `new_member_id` is the id for a member without one, unique for all time (Kafka: the client id or
    instance id, a dash, a random UUID). `requires_member_id` is set from version 4 on (KIP-394),
    `may_skip_assignment` from version 9 on (KIP-814).
    """

    group_id: str
    member_id: str
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    group_instance_id: str | None = None
    requires_member_id: bool = True
    may_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResponse:
    error: ErrorCode
    member_id: str = ""
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()  # only the leader is told
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """A SyncGroup request; `protocol_type` and `protocol` are checked from version 5 on."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # (member id, assignment)


@dataclass(frozen=True, slots=True)
class SyncGroupResponse:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse:
    """The answer to LeaveGroup; up to version 2 the one member's error is the answer's own."""

    error: ErrorCode
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """An offset to commit; a `retention_ms` of -1 is the broker's; versions 2 to 4 can set one."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """An OffsetCommit request; a simple consumer's has an empty member id and generation -1."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = -1


@dataclass(frozen=True, slots=True)
class PartitionError:
    topic: str
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """The answer to OffsetCommit: an entry for each partition, in the request's order."""

    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """An OffsetFetch request; `partitions` of None means all that the group has committed."""

    group_id: str
    partitions: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """A fetched offset; `committed` of None is offset -1 with empty metadata on the wire."""

    topic: str
    partition: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    error: ErrorCode
    partitions: tuple[PartitionError, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroupResponse:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """The description of a group.

    A group that does not exist has the state `Dead` and GROUP_ID_NOT_FOUND, which versions before 6
    send as NONE.
    """

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with all its committed offsets."""

    described: DescribedGroup
    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True)
class GroupsReport:
    """The groups of a broker.

    `groups` yields them by name; each is read at its turn, and groups that ended or moved meanwhile
    are left out. `is_partial`, asked after the last one, tells whether some groups may be missing.
    """

    groups: Iterable[GroupReport] = ()
    is_partial: Callable[[], bool] = lambda: False


GroupRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DeleteGroup
)
GroupResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | DeleteGroupResponse
)


# Effects


@dataclass(frozen=True, slots=True)
class Response:
    request_id: int
    answer: GroupResponse


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """An effect: append these records as one batch with acks=all, in this leader epoch only.

    The shell then reports exactly one of `on_committed` and `on_rejected`, and before it `on_late`
    if the wait was too long.
    """

    append_id: int
    leader_epoch: int
    records: tuple[OffsetsRecord, ...]


Effect = Response | AppendRecords


@dataclass(slots=True)
class GroupCounters:
    """Counts since the process started, of all coordinators of a broker together."""

    completed_rebalances: int = 0  # generations whose members were all told
    committed_offsets: int = 0


@dataclass(slots=True)
class GroupGauges:
    """The present numbers of groups and members."""

    groups: Counter[str] = field(default_factory=Counter)  # by state
    members: int = 0
    offsets: int = 0


class GroupOffset(NamedTuple):
    """A committed offset for metrics; `lag_records` is -1 where this broker does not lead."""

    group_id: str
    topic: str
    topic_id: TopicId
    partition: int
    offset: int
    lag_records: int


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time of an event by two clocks.

    Sessions and deadlines use `monotonic_ms`, which neither goes back nor jumps when the wall clock
    is set. `wall_ms` is written to the log, where another broker reads it, and offsets expire by
    it.
    """

    monotonic_ms: int
    wall_ms: int
