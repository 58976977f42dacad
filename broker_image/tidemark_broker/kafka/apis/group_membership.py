"""Answer JoinGroup v0-9, SyncGroup v0-5, Heartbeat v0-4 and LeaveGroup v0-5 of classic groups.

A member without an id gets `<instance or client id>-<random UUID>`, as in Kafka. Up to version 2 of
LeaveGroup the one member's error is the answer's own.
"""

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.requests import (
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka.network.response_writer import ResponseWriter
from tidemark_broker.kafka_wire.messages.group_membership import (
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    SYNC_GROUP_API,
)
from tidemark_broker.kafka_wire.messages.schema import Values

_FIRST_JOIN_WITH_MEMBER_ID_REQUIRED = 4  # KIP-394
_FIRST_JOIN_WITH_NULL_PROTOCOL = 7
_FIRST_JOIN_WITH_SKIP_ASSIGNMENT = 9  # KIP-814
_FIRST_LEAVE_WITH_MEMBERS = 3  # KIP-345

NewUuid = Callable[[], UUID]


def group_member_handlers(
    groups: GroupCoordinatorService, answering: ResponseWriter, new_uuid: NewUuid
) -> tuple[ApiHandler, ...]:
    requested = GroupMembers(groups, new_uuid)
    return (
        answering.async_handler(JOIN_GROUP_API, requested.join),
        answering.async_handler(SYNC_GROUP_API, requested.sync),
        answering.async_handler(HEARTBEAT_API, requested.heartbeat),
        answering.async_handler(LEAVE_GROUP_API, requested.leave),
    )


class GroupMembers:
    def __init__(self, groups: GroupCoordinatorService, new_uuid: NewUuid) -> None:
        self._groups = groups
        self._new_uuid = new_uuid

    async def join(self, request: KafkaRequest, requested: Values) -> Values:
        version = request.version
        client_id = request.header.client_id or ""
        instance_id = requested["group_instance_id"]
        rebalance_timeout_ms = requested["rebalance_timeout_ms"]
        if rebalance_timeout_ms < 0 and version == 0:  # which has no such field
            rebalance_timeout_ms = requested["session_timeout_ms"]
        join = JoinGroup(
            group_id=requested["group_id"],
            member_id=requested["member_id"],
            new_member_id=f"{instance_id or client_id}-{self._new_uuid()}",
            client_id=client_id,
            client_host=f"/{request.client_host}",
            session_timeout_ms=requested["session_timeout_ms"],
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=requested["protocol_type"],
            protocols=tuple(
                Protocol(known["name"], bytes(known["metadata"]))
                for known in requested["protocols"]
            ),
            group_instance_id=instance_id,
            requires_member_id=version >= _FIRST_JOIN_WITH_MEMBER_ID_REQUIRED,
            may_skip_assignment=version >= _FIRST_JOIN_WITH_SKIP_ASSIGNMENT,
        )
        found = await ask(self._groups, join, JoinGroupResponse)
        no_protocol = None if version >= _FIRST_JOIN_WITH_NULL_PROTOCOL else ""
        return {
            "error": found.error,
            "generation_id": found.generation_id,
            "protocol_type": found.protocol_type,
            "protocol": found.protocol if found.protocol is not None else no_protocol,
            "leader_id": found.leader_id,
            "skip_assignment": found.skip_assignment,
            "member_id": found.member_id,
            "members": tuple(
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "metadata": member.metadata,
                }
                for member in found.members
            ),
        }

    async def sync(self, request: KafkaRequest, requested: Values) -> Values:
        sync = SyncGroup(
            requested["group_id"],
            requested["generation_id"],
            requested["member_id"],
            requested["group_instance_id"],
            requested["protocol_type"],
            requested["protocol"],
            tuple(
                (assigned["member_id"], bytes(assigned["assignment"]))
                for assigned in requested["assignments"]
            ),
        )
        found = await ask(self._groups, sync, SyncGroupResponse)
        return {
            "error": found.error,
            "protocol_type": found.protocol_type,
            "protocol": found.protocol,
            "assignment": found.assignment,
        }

    async def heartbeat(self, request: KafkaRequest, requested: Values) -> Values:
        heartbeat = Heartbeat(
            requested["group_id"],
            requested["generation_id"],
            requested["member_id"],
            requested["group_instance_id"],
        )
        return {"error": (await ask(self._groups, heartbeat, HeartbeatResponse)).error}

    async def leave(self, request: KafkaRequest, requested: Values) -> Values:
        leaving = tuple(
            LeavingMember(member["member_id"], member["group_instance_id"])
            for member in requested["members"]
        )
        if request.version < _FIRST_LEAVE_WITH_MEMBERS:
            leaving = (LeavingMember(requested["member_id"]),)
        found = await ask(
            self._groups, LeaveGroup(requested["group_id"], leaving), LeaveGroupResponse
        )
        error = found.error
        if request.version < _FIRST_LEAVE_WITH_MEMBERS and error is ErrorCode.NONE:
            error = found.members[0][1]
        return {
            "error": error,
            "members": tuple(
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "error": own,
                }
                for member, own in found.members
            ),
        }


Found = TypeVar("Found")


async def ask(groups: GroupCoordinatorService, request: GroupRequest, kind: type[Found]) -> Found:
    """Send a request to its coordinator and return the answer, which is of the type `kind`."""
    response: GroupResponse = await groups.ask(request)
    assert isinstance(response, kind), (
        f"{type(request).__name__}: answered {type(response).__name__}"
    )
    return response
