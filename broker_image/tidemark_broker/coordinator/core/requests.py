"""What a group coordinator is asked, what it answers, and what it wants done.

Inputs carry a `request_id` that the shell chooses; the answer, now or later, comes back as
`Answer(request_id, ...)`, exactly one for each request.

What happened in groups, and how many there are: for metrics alone, nothing is decided by it.

When something happens to a group, by both clocks that count.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.offsets_records import CommittedOffset, OffsetsRecord

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Protocol:
    """One assignor that a member knows; its metadata is opaque, save for the topics in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """`new_member_id`: what the member is called if it has no name yet, unique for all time
    (Kafka: the client id or instance id, a dash, a random UUID). `requires_member_id`: from
    version 4 on (KIP-394); `may_skip_assignment`: from version 9 on (KIP-814)."""

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
class JoinGroupAnswer:
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
    """`protocol_type` and `protocol` are checked where the version has them (5 on)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # (member id, assignment)


@dataclass(frozen=True, slots=True)
class SyncGroupAnswer:
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
class HeartbeatAnswer:
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
class LeaveGroupAnswer:
    """Up to version 2 the one member's error is the answer's own."""

    error: ErrorCode
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """`retention_ms` -1: the broker's; versions 2 to 4 can name one."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Without a member (empty id, generation -1): a consumer that assigns itself."""

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
class OffsetCommitAnswer:
    """One entry for each partition asked, in their order."""

    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """`partitions` None: all that the group has committed."""

    group_id: str
    partitions: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """`committed` None: nothing is committed (on the wire offset -1, empty metadata)."""

    topic: str
    partition: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer:
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteAnswer:
    error: ErrorCode
    partitions: tuple[PartitionError, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroupAnswer:
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
    """A group that is not there: state `Dead` with GROUP_ID_NOT_FOUND, which versions before 6
    send as NONE."""

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with all that it has committed."""

    described: DescribedGroup
    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True)
class GroupsReport:
    """`groups`: sorted by name, each looked at when it is its turn; those that ended meanwhile, or
    have another coordinator by now, are left out. `is_partial`, asked after the last of them: of
    some groups it could not be said whether they are here, or it is another answer by now."""

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
GroupAnswer = (
    JoinGroupAnswer
    | SyncGroupAnswer
    | HeartbeatAnswer
    | LeaveGroupAnswer
    | OffsetCommitAnswer
    | OffsetFetchAnswer
    | OffsetDeleteAnswer
    | DeleteGroupAnswer
)


# Effects


@dataclass(frozen=True, slots=True)
class Answer:
    request_id: int
    answer: GroupAnswer


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append these as one batch, acks=all, in this leader epoch only. Then report exactly one of
    `on_committed` and `on_refused`; before it, once the wait was too long, `on_late`."""

    append_id: int
    leader_epoch: int
    records: tuple[OffsetsRecord, ...]


Effect = Answer | AppendRecords


@dataclass(slots=True)
class GroupCounts:
    """Since the process began, by all coordinators of a broker together."""

    completed_rebalances: int = 0  # generations whose members were all told
    committed_offsets: int = 0


@dataclass(slots=True)
class GroupCensus:
    """As of now."""

    groups: Counter[str] = field(default_factory=Counter)  # by state
    members: int = 0
    offsets: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """`monotonic_ms`: what sessions and deadlines hang on; it does not go back, nor jump when
    somebody sets the wall clock. `wall_ms`: what is written to the log, where another broker reads
    it, and what offsets expire by."""

    monotonic_ms: int
    wall_ms: int
