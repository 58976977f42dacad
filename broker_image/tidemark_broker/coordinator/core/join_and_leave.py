"""Decide how members join a group and leave it: JoinGroup and LeaveGroup.

A member id is assigned before the member counts (KIP-394). A static member comes back under a new
id (KIP-345), without a rebalance where nothing changes for the others (KIP-814). A leader that
rejoins always starts a rebalance: KIP-429 needs it for what a cooperative assignor revokes first.
"""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.classic_group import ClassicGroup, GroupState
from tidemark_broker.coordinator.core.member import Member, new_member, voted_protocol
from tidemark_broker.coordinator.core.pending_appends import group_error
from tidemark_broker.coordinator.core.requests import (
    ClockReading,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
)


class GroupMembership:
    def __init__(self, group: ClassicGroup) -> None:
        self._group = group
        self._pending_appends = group.pending_appends
        self._settings = group.settings

    def on_join(self, request_id: int, join: JoinGroup, now: ClockReading) -> None:
        error = self._check_join(join)
        if error is not ErrorCode.NONE:
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED and join.member_id in self._group.members:
                self._group.remove_member(self._group.members[join.member_id], now)
            self._reject(request_id, error, join.member_id)
        elif join.member_id:
            self._join_known(request_id, join, now)
        elif join.group_instance_id is not None:
            self._join_static(request_id, join, now)
        elif join.requires_member_id:
            until_ms = now.monotonic_ms + join.session_timeout_ms
            self._group.pending_members[join.new_member_id] = until_ms
            self._reject(request_id, ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id)
        else:
            self._add(request_id, join.new_member_id, join, now)

    def _reject(self, request_id: int, error: ErrorCode, member_id: str) -> None:
        self._pending_appends.answer(request_id, JoinGroupResponse(error, member_id))

    def _check_join(self, join: JoinGroup) -> ErrorCode:
        group = self._group
        if not self._is_room_for(join):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.supports(join.protocol_type, join.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not join.member_id or join.member_id in group.pending_members:
            return ErrorCode.NONE
        return group.check_member(join.member_id, join.group_instance_id)

    def _is_room_for(self, join: JoinGroup) -> bool:
        """Return whether the group's limits admit the member.

        Assigned ids without a member count as well: they cost memory, and each may become a member.
        """
        group = self._group
        previous = group.members.get(self._previous_id(join))
        size_bytes = group.size_bytes - (previous.size_bytes if previous is not None else 0)
        size_bytes += sum(len(known.name) + len(known.metadata) for known in join.protocols)
        if size_bytes > self._settings.max_group_bytes:
            return False
        if group.state is GroupState.PREPARING_REBALANCE:
            # A group that was allowed to grow larger shrinks to the limit as members come back.
            if previous is not None and previous.is_awaiting_join:
                return True
            joined = sum(member.is_awaiting_join for member in group.members.values())
            given_out = 0 if join.member_id else len(group.pending_members)
            return joined + given_out < self._settings.max_members
        if previous is not None or join.member_id in group.pending_members:
            return True
        return len(group.members) + len(group.pending_members) < self._settings.max_members

    def _previous_id(self, join: JoinGroup) -> str:
        if join.member_id or join.group_instance_id is None:
            return join.member_id
        return self._group.static_members.get(join.group_instance_id, "")

    def _add(self, request_id: int, member_id: str, join: JoinGroup, now: ClockReading) -> None:
        group = self._group
        group.pending_members.pop(member_id, None)
        member = new_member(member_id, join)
        member.join_request_id = request_id
        member.expires_ms = now.monotonic_ms + self._settings.new_member_join_timeout_ms
        if not group.members:
            group.protocol_type = join.protocol_type
            group.leader_id = member_id
        if group.leader_id is None:
            group.leader_id = member_id
        group.members[member_id] = member
        if join.group_instance_id is not None:
            group.static_members[join.group_instance_id] = member_id
        if group.has_initial_rebalance:
            group.is_new_member_added = True
        group.rebalance_or_complete_join(now)

    def _join_known(self, request_id: int, join: JoinGroup, now: ClockReading) -> None:
        group = self._group
        if join.member_id in group.pending_members:
            self._add(request_id, join.member_id, join, now)
            return
        member = group.members[join.member_id]
        if self._is_responded_at_once(member, join):
            member.take_over(join)
            group.believe_in(member, now)
            self._pending_appends.answer(request_id, group.joined_response(member))
            return
        self._wait_for_join(request_id, member, join, now)
        group.rebalance_or_complete_join(now)

    def _is_responded_at_once(self, member: Member, join: JoinGroup) -> bool:
        """Return whether a rejoin changes nothing for the others.

        The member's answer was lost, or it reacts to a rebalance that is over.
        """
        if member.protocols != join.protocols:
            return False
        if self._group.state is GroupState.COMPLETING_REBALANCE:
            return True
        is_leader = member.member_id == self._group.leader_id
        return self._group.state is GroupState.STABLE and not is_leader

    def _wait_for_join(
        self, request_id: int, member: Member, join: JoinGroup, now: ClockReading
    ) -> None:
        if member.join_request_id is not None:  # the client gave up on that request
            self._reject(member.join_request_id, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.take_over(join)
        member.join_request_id = request_id
        self._group.believe_in(member, now)

    # Static members

    def _join_static(self, request_id: int, join: JoinGroup, now: ClockReading) -> None:
        assert join.group_instance_id is not None
        previous_id = self._group.static_members.get(join.group_instance_id)
        if previous_id is None:
            self._add(request_id, join.new_member_id, join, now)
            return
        group = self._group
        leader_before = group.leader_id
        protocols_before = group.members[previous_id].protocols
        member = self._rename(previous_id, join.new_member_id)
        self._wait_for_join(request_id, member, join, now)
        if group.state is not GroupState.STABLE or voted_protocol(group.members) != group.protocol:
            group.rebalance_or_complete_join(now)
            return

        def settle(error: ErrorCode, settled: ClockReading) -> None:
            if member.join_request_id != request_id or group.state is not GroupState.STABLE:
                return  # a rebalance came in between and will answer
            if error is ErrorCode.NONE:
                self._response_replaced(member, join, leader_before, settled)
                return
            member.join_request_id = None
            member.protocols = protocols_before
            self._rename(member.member_id, previous_id)
            self._reject(request_id, group_error(error), "")

        self._pending_appends.append((group.record(now),), settle)

    def _rename(self, previous_id: str, member_id: str) -> Member:
        """Give a static member a new id; requests with the former id are fenced."""
        group = self._group
        member = group.members[previous_id]
        group.response_join(member, JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, previous_id))
        group.fence_sync(member)
        group.members = {
            (member_id if id_ == previous_id else id_): other
            for id_, other in group.members.items()
        }
        member.member_id = member_id
        assert member.group_instance_id is not None
        group.static_members[member.group_instance_id] = member_id
        if group.leader_id == previous_id:
            group.leader_id = member_id
        return member

    def _response_replaced(
        self, member: Member, join: JoinGroup, leader_before: str | None, now: ClockReading
    ) -> None:
        group = self._group
        group.believe_in(member, now)
        if join.may_skip_assignment:
            is_leader = member.member_id == group.leader_id
            group.response_join(member, group.joined_response(member, skip_assignment=is_leader))
            return
        # An older client that heard it leads would assign anew, in a generation that has an
        # assignment. So it is told its former id leads: it follows (KIP-345).
        response = group.joined_response(member, tells_members=False)
        group.response_join(
            member,
            JoinGroupResponse(
                ErrorCode.NONE,
                response.member_id,
                response.generation_id,
                response.protocol_type,
                response.protocol,
                leader_before or "",
            ),
        )

    # Leaving

    def on_leave(
        self, leave: LeaveGroup, now: ClockReading
    ) -> tuple[tuple[LeavingMember, ErrorCode], ...]:
        """Remove each member by itself, then begin one rebalance for all of them."""
        results = []
        has_any_left = False
        for leaving in leave.members:
            error = self._leave(leaving)
            results.append((leaving, error))
            has_any_left = has_any_left or error is ErrorCode.NONE
        if has_any_left and self._group.state is not GroupState.EMPTY:
            self._group.rebalance_or_complete_join(now)
        return tuple(results)

    def _leave(self, leaving: LeavingMember) -> ErrorCode:
        group = self._group
        if self._was_pending(leaving):
            return ErrorCode.NONE
        member_id = leaving.member_id
        if not member_id and leaving.group_instance_id is not None:  # an administrator removes it
            member_id = group.static_members.get(leaving.group_instance_id, "")
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is ErrorCode.NONE:
            group.forget_member(group.members[member_id])
        return error

    def _was_pending(self, leaving: LeavingMember) -> bool:
        if leaving.group_instance_id is not None:
            return False
        return self._group.pending_members.pop(leaving.member_id, None) is not None
