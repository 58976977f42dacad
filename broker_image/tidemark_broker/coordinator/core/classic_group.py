"""Keep one group of the classic protocol: its members, its generation and its assignment.

States and the order of checks are those of Apache Kafka's ClassicGroup and GroupMetadataManager
(4.x). A generation has one leader, and an assignment is accepted from that leader alone. The
assignment is answered only after the log holds it, so that the next coordinator knows it too.
Committed offsets and the table of groups are elsewhere; transactions are rejected, and KIP-848
groups do not exist.
"""

from enum import Enum

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.member import (
    CONSUMER_PROTOCOL_TYPE,
    Member,
    loaded_member,
    shared_protocols,
    subscribed_topics,
    voted_protocol,
)
from tidemark_broker.coordinator.core.offsets_records import (
    GroupKey,
    GroupMetadata,
    OffsetsRecord,
    encode_key,
    encode_metadata,
)
from tidemark_broker.coordinator.core.pending_appends import PendingAppends, group_error
from tidemark_broker.coordinator.core.requests import (
    NO_GENERATION,
    ClockReading,
    GroupCounters,
    Heartbeat,
    JoinedMember,
    JoinGroupResponse,
    OffsetCommit,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)


class GroupState(Enum):
    """The states of a group, with Kafka's names for clients as values."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """A group and its generations; `GroupMembership` decides who joins and leaves."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        pending_appends: PendingAppends,
        now: ClockReading,
        *,
        counts: GroupCounters,
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.pending_appends = pending_appends
        self._counts = counts
        self.state = GroupState.EMPTY
        self.state_since_ms = now.wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        self.pending_members: dict[str, int] = {}  # ids given out, until when they may join
        self.is_new_member_added = False
        self.has_initial_rebalance = False
        self.topics: frozenset[str] | None = frozenset()  # None: may be any
        self._awaited_syncs: dict[str, None] = {}
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._initial_wait_left_ms = 0

    # What holds

    @property
    def is_simple(self) -> bool:
        """Return whether the group has only offsets, of consumers without membership."""
        return not self.protocol_type

    @property
    def size_bytes(self) -> int:
        return sum(member.size_bytes for member in self.members.values())

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = [member.expires_ms for member in self.members.values()]
        deadlines += self.pending_members.values()
        deadlines += [
            deadline
            for deadline in (self._join_deadline_ms, self._sync_deadline_ms)
            if deadline is not None
        ]
        return min(deadlines, default=None)

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        shared = shared_protocols(self.members.values())
        return self.protocol_type == protocol_type and any(
            protocol.name in shared for protocol in protocols
        )

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the error for a request of this member, or NONE.

        The earlier process of a static member gets FENCED_INSTANCE_ID and must not rejoin
        (KIP-345).
        """
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_of_generation(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        error = self.check_member(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def check_commit(self, commit: OffsetCommit, now: ClockReading) -> ErrorCode:
        is_simple_commit = commit.generation_id < 0
        if is_simple_commit and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if is_simple_commit and not commit.member_id and commit.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID  # only members may commit for a group that has any
        error = self._check_of_generation(
            commit.member_id, commit.group_instance_id, commit.generation_id
        )
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS  # nothing is assigned in this generation yet
        self.believe_in(self.members[commit.member_id], now)
        return ErrorCode.NONE

    # Requests of members

    def on_heartbeat(self, heartbeat: Heartbeat, now: ClockReading) -> ErrorCode:
        error = self._check_of_generation(
            heartbeat.member_id, heartbeat.group_instance_id, heartbeat.generation_id
        )
        if error is not ErrorCode.NONE:
            return error
        self.believe_in(self.members[heartbeat.member_id], now)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def on_sync(self, request_id: int, sync: SyncGroup, now: ClockReading) -> None:
        error = self._check_sync(sync)
        if error is not ErrorCode.NONE:
            self.pending_appends.answer(request_id, SyncGroupResponse(error))
            return
        member = self.members[sync.member_id]
        self._awaited_syncs.pop(member.member_id, None)
        if self.state is GroupState.STABLE:
            self.believe_in(member, now)
            self._response_sync(request_id, member)
            return
        if member.sync_request_id is not None:  # the client gave up on that request
            self._reject_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_request_id = request_id
        if self._may_assign(member):
            self._store_assignment(dict(sync.assignments), now)

    def _check_sync(self, sync: SyncGroup) -> ErrorCode:
        error = self._check_of_generation(
            sync.member_id, sync.group_instance_id, sync.generation_id
        )
        if error is not ErrorCode.NONE:
            return error
        if sync.protocol_type is not None and sync.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if sync.protocol is not None and sync.protocol != self.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _may_assign(self, member: Member) -> bool:
        return member.member_id == self.leader_id

    def _store_assignment(self, assignments: dict[str, bytes], now: ClockReading) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        generation_id = self.generation_id

        def settle(error: ErrorCode, settled: ClockReading) -> None:
            is_current = self._is_assigning(generation_id)
            if is_current and error is ErrorCode.NONE:
                self._become_stable(settled)
            elif is_current:
                self._reject_syncs(group_error(error))
                self.prepare_rebalance(settled)

        record = self.record(now)
        assert record.value is not None
        if len(record.value) > self.settings.max_group_bytes:
            settle(ErrorCode.MESSAGE_TOO_LARGE, now)
            return
        self.pending_appends.append((record,), settle)

    def _is_assigning(self, generation_id: int) -> bool:
        """Return whether the group still waits for the assignment of this generation.

        A rebalance may have begun while the assignment was being appended.
        """
        return self.state is GroupState.COMPLETING_REBALANCE and generation_id == self.generation_id

    def _become_stable(self, now: ClockReading) -> None:
        self._become(GroupState.STABLE, now)
        for member in self.members.values():
            if member.sync_request_id is not None:
                request_id, member.sync_request_id = member.sync_request_id, None
                self._response_sync(request_id, member)
                self.believe_in(member, now)

    def _response_sync(self, request_id: int, member: Member) -> None:
        response = SyncGroupResponse(
            ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment
        )
        self.pending_appends.answer(request_id, response)

    def _reject_syncs(self, error: ErrorCode) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.sync_request_id is not None:
                self._reject_sync(member, error)

    def _reject_sync(self, member: Member, error: ErrorCode) -> None:
        assert member.sync_request_id is not None
        self.pending_appends.answer(member.sync_request_id, SyncGroupResponse(error))
        member.sync_request_id = None

    def fence_sync(self, member: Member) -> None:
        """Answer the SyncGroup of a static member that another client has replaced."""
        self._awaited_syncs.pop(member.member_id, None)
        if member.sync_request_id is not None:
            self._reject_sync(member, ErrorCode.FENCED_INSTANCE_ID)

    # Rebalances

    def rebalance_or_complete_join(self, now: ClockReading) -> None:
        """Begin or complete a rebalance after members or their metadata changed."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(now)
        elif self.state is not GroupState.DEAD:
            self.prepare_rebalance(now)

    def prepare_rebalance(self, now: ClockReading) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._reject_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_deadline_ms = None
        self._awaited_syncs.clear()
        self.has_initial_rebalance = self.state is GroupState.EMPTY
        self._become(GroupState.PREPARING_REBALANCE, now)
        if self.has_initial_rebalance:
            # More members are about to come: one rebalance for all of them, not one for each.
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self.rebalance_timeout_ms)
            self._initial_wait_left_ms = self.rebalance_timeout_ms - delay_ms
            self._join_deadline_ms = now.monotonic_ms + delay_ms
            self.is_new_member_added = False
        else:
            self._join_deadline_ms = now.monotonic_ms + self.rebalance_timeout_ms
            self.maybe_complete_join(now)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def maybe_complete_join(self, now: ClockReading) -> None:
        """Complete the join phase if all members have joined.

        The first rebalance of a group ends by time alone.
        """
        if self.has_initial_rebalance or self.pending_members:
            return
        if all(member.is_awaiting_join for member in self.members.values()):
            self._complete_join(now)

    def _on_join_deadline(self, now: ClockReading) -> None:
        if self.has_initial_rebalance and self.is_new_member_added and self._initial_wait_left_ms:
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self._initial_wait_left_ms)
            self._initial_wait_left_ms -= delay_ms
            self.is_new_member_added = False
            self._join_deadline_ms = now.monotonic_ms + delay_ms
            return
        self._complete_join(now)

    def _complete_join(self, now: ClockReading) -> None:
        for member in tuple(self.members.values()):
            if not member.is_awaiting_join and member.group_instance_id is None:
                self.forget_member(member)
        if self.members and not self._elect_joined_leader():
            # Only static members are left, and none has come back: they have until their sessions
            # end, which removes them.
            self._join_deadline_ms = now.monotonic_ms + max(1, self.rebalance_timeout_ms)
            return
        self._join_deadline_ms = None
        self.has_initial_rebalance = False
        self.generation_id += 1
        self._awaited_syncs.clear()
        if not self.members:
            self._become_empty(now)
            return
        self.protocol = voted_protocol(self.members)
        self.topics = (
            subscribed_topics(self.members.values(), self.protocol)
            if self.protocol_type == CONSUMER_PROTOCOL_TYPE
            else None
        )
        self._become(GroupState.COMPLETING_REBALANCE, now)
        self._counts.completed_rebalances += 1
        for member in self.members.values():
            self._awaited_syncs[member.member_id] = None
            member.is_new = False
            self.believe_in(member, now)
            self.response_join(member, self.joined_response(member))
        self._sync_deadline_ms = now.monotonic_ms + self.rebalance_timeout_ms

    def _become_empty(self, now: ClockReading) -> None:
        self.protocol = None
        self.topics = frozenset()
        self._become(GroupState.EMPTY, now)
        # Nobody waits for it: without this record the next coordinator would expect the former
        # members until their sessions end.
        self.pending_appends.append((self.record(now),), lambda _error, _now: None)

    def _elect_joined_leader(self) -> bool:
        """Keep the leader if it rejoined, else elect a joined member.

        Returns False if no member joined.
        """
        if self.leader_id is not None and self.members[self.leader_id].is_awaiting_join:
            return True
        joined = (member.member_id for member in self.members.values() if member.is_awaiting_join)
        elected = next(joined, None)
        if elected is None:
            return False
        self.leader_id = elected
        return True

    def _become(self, state: GroupState, now: ClockReading) -> None:
        self.state = state
        self.state_since_ms = now.wall_ms

    def joined_response(
        self, member: Member, *, tells_members: bool = True, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """Return the JoinGroup answer for `member`; the group leader's has all members."""
        members: tuple[JoinedMember, ...] = ()
        if tells_members and member.member_id == self.leader_id:
            members = tuple(
                JoinedMember(
                    other.member_id, other.group_instance_id, other.metadata_of(self.protocol)
                )
                for other in self.members.values()
            )
        return JoinGroupResponse(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol,
            self.leader_id or "",
            members,
            skip_assignment,
        )

    def response_join(self, member: Member, answer: JoinGroupResponse) -> None:
        if member.join_request_id is not None:
            request_id, member.join_request_id = member.join_request_id, None
            self.pending_appends.answer(request_id, answer)

    # Members that come to an end

    def believe_in(self, member: Member, now: ClockReading) -> None:
        member.expires_ms = now.monotonic_ms + member.session_timeout_ms

    def remove_member(self, member: Member, now: ClockReading) -> None:
        """Remove a member that left or timed out, and rebalance.

        Its waiting requests are answered, because its client may be alive after all.
        """
        self.forget_member(member)
        self.rebalance_or_complete_join(now)

    def forget_member(self, member: Member) -> None:
        refused = JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
        self.response_join(member, refused)
        if member.sync_request_id is not None:
            self._reject_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self._awaited_syncs.pop(member.member_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def on_tick(self, now: ClockReading) -> None:
        """Do what is due. Call it at `next_deadline_ms`, or at any other time."""
        for member_id in [
            id_ for id_, until in self.pending_members.items() if until <= now.monotonic_ms
        ]:
            del self.pending_members[member_id]
            if self.state is GroupState.PREPARING_REBALANCE:
                self.maybe_complete_join(now)
        for member in tuple(self.members.values()):
            if member.member_id not in self.members or member.expires_ms > now.monotonic_ms:
                continue
            if member.is_believed_in:
                self.believe_in(member, now)
            else:
                self.remove_member(member, now)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now.monotonic_ms:
            self._on_join_deadline(now)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now.monotonic_ms:
            self._on_sync_deadline(now)

    def _on_sync_deadline(self, now: ClockReading) -> None:
        """Remove the members that have not sent SyncGroup, so that the others no longer wait."""
        self._sync_deadline_ms = None
        late = [self.members[id_] for id_ in self._awaited_syncs if id_ in self.members]
        for member in late:
            self.forget_member(member)
        if late:
            self.prepare_rebalance(now)

    # The log

    def record(self, now: ClockReading) -> OffsetsRecord:
        metadata = GroupMetadata(
            self.protocol_type or "",
            self.generation_id,
            self.protocol,
            self.leader_id,
            now.wall_ms,
            tuple(member.stored(self.protocol) for member in self.members.values()),
        )
        return OffsetsRecord(encode_key(GroupKey(self.group_id)), encode_metadata(metadata))

    def load(self, metadata: GroupMetadata, now: ClockReading) -> None:
        """Restore the group from its newest record.

        Each member gets a full session timeout from now.
        """
        self.generation_id = max(0, metadata.generation_id)
        self.protocol_type = metadata.protocol_type or None
        self.protocol = metadata.protocol
        for stored in metadata.members:
            member = loaded_member(stored, metadata.protocol)
            self.members[member.member_id] = member
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id
            self.believe_in(member, now)
        self.leader_id = metadata.leader_id if metadata.leader_id in self.members else None
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_since_ms = metadata.state_since_ms
        if self.members:
            self.topics = (
                subscribed_topics(self.members.values(), self.protocol)
                if self.protocol_type == CONSUMER_PROTOCOL_TYPE
                else None
            )

    def resign(self) -> None:
        """Answer waiting members NOT_COORDINATOR: this broker no longer coordinates."""
        self.state = GroupState.DEAD
        for member in self.members.values():
            self.response_join(
                member,
                JoinGroupResponse(ErrorCode.NOT_COORDINATOR, member.member_id, NO_GENERATION),
            )
            if member.sync_request_id is not None:
                self._reject_sync(member, ErrorCode.NOT_COORDINATOR)
