"""Check requests before a group is looked up, and make the error answer to any request."""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.requests import (
    DeleteGroup,
    DeleteGroupResponse,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionError,
    SyncGroup,
    SyncGroupResponse,
)


def rejection(request: GroupRequest, error: ErrorCode) -> GroupResponse:
    match request:
        case JoinGroup():
            return JoinGroupResponse(error, request.member_id)
        case SyncGroup():
            return SyncGroupResponse(error)
        case Heartbeat():
            return HeartbeatResponse(error)
        case LeaveGroup():
            return LeaveGroupResponse(error)
        case OffsetCommit():
            return OffsetCommitResponse(
                tuple(
                    PartitionError(offset.topic, offset.partition, error)
                    for offset in request.offsets
                )
            )
        case OffsetFetch():
            return OffsetFetchResponse(error)
        case OffsetDelete():
            return OffsetDeleteResponse(error)
        case DeleteGroup():
            return DeleteGroupResponse(error)


def check_request(request: GroupRequest, settings: GroupSettings) -> ErrorCode:
    """Return the error of a request, or NONE: Kafka's checks, then our limits of size.

    Names are stored and must fit into records.
    """
    # Offsets alone may be kept under the empty name, by consumers older than groups.
    if not isinstance(request, OffsetCommit | OffsetFetch) and not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if _is_too_long(request.group_id, settings):
        return ErrorCode.INVALID_GROUP_ID
    return _check_join(request, settings) if isinstance(request, JoinGroup) else ErrorCode.NONE


def _check_join(join: JoinGroup, settings: GroupSettings) -> ErrorCode:
    shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not shortest <= join.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    names = (
        join.client_id,
        join.client_host,
        join.member_id,
        join.new_member_id,
        join.group_instance_id or "",
        join.protocol_type,
        *(protocol.name for protocol in join.protocols[: settings.max_protocols]),
    )
    size_bytes = sum(len(known.name) + len(known.metadata) for known in join.protocols)
    is_too_large = (
        len(join.protocols) > settings.max_protocols
        or len({protocol.name for protocol in join.protocols}) < len(join.protocols)
        or size_bytes > settings.max_member_bytes
        or join.rebalance_timeout_ms < 0
        or any(_is_too_long(name, settings) for name in names)
    )
    return ErrorCode.INVALID_REQUEST if is_too_large else ErrorCode.NONE


def _is_too_long(name: str, settings: GroupSettings) -> bool:
    return len(name) > settings.max_name_bytes or len(name.encode()) > settings.max_name_bytes
