"""Answer FindCoordinator v0-6, ListGroups v0-5, DescribeGroups v0-6 and DeleteGroups v0-3.

Transactions and share groups do not exist: their coordinators are rejected. All groups are classic
groups. DescribeGroups before version 6 answers state `Dead` without an error for a group that does
not exist.
"""

import asyncio

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.requests import (
    DeleteGroup,
    DeleteGroupResponse,
    DescribedGroup,
)
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.advertised_listeners import client_address
from tidemark_broker.kafka.apis.group_membership import ask
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka.network.response_writer import ResponseWriter
from tidemark_broker.kafka_wire.messages.authorized_operations import NOT_REQUESTED, OF_GROUP
from tidemark_broker.kafka_wire.messages.group_admin import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    LIST_GROUPS_API,
)
from tidemark_broker.kafka_wire.messages.group_membership import FIND_COORDINATOR_API
from tidemark_broker.kafka_wire.messages.schema import Each, Values
from tidemark_broker.metadata.metadata_cache import MetadataCache

GROUP_KEY, TRANSACTION_KEY = 0, 1
CLASSIC = "classic"
DELETIONS_AT_ONCE = 100
DELETIONS_SECONDS = 20.0
_FIRST_FIND_OF_MANY = 4  # KIP-699
_NOBODY: Values = {"broker_id": -1, "host": "", "port": -1}
_FIRST_DESCRIBE_WITH_NOT_FOUND = 6
_NOT_DELETED = {
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them, or wait for their expiry",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator did not respond in time: retry",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is loading groups: retry",
    ErrorCode.NOT_COORDINATOR: "its coordinator is another broker now: find the coordinator again",
}


def group_admin_handlers(
    groups: GroupCoordinatorService, answering: ResponseWriter, metadata: MetadataCache
) -> tuple[ApiHandler, ...]:
    requested = GroupAdmin(groups, metadata)
    return (
        answering.async_handler(FIND_COORDINATOR_API, requested.find_coordinator),
        answering.async_handler(LIST_GROUPS_API, requested.list_groups),
        answering.async_handler(DESCRIBE_GROUPS_API, requested.describe_groups),
        answering.async_handler(DELETE_GROUPS_API, requested.delete_groups),
    )


class GroupAdmin:
    def __init__(self, groups: GroupCoordinatorService, metadata: MetadataCache) -> None:
        self._groups = groups
        self._metadata = metadata

    async def find_coordinator(self, request: KafkaRequest, requested: Values) -> Values:
        key_type = requested["key_type"]
        error = _rejected_key_type(key_type)
        if error is not ErrorCode.NONE:

            def find(key: str) -> Values:
                message = "expected the name of a group: only groups have coordinators"
                return {"key": key, "error": error, "message": message, **_NOBODY}
        else:
            await self._groups.ensure_topic()

            def find(key: str) -> Values:
                return self._find(request.listener, key)

        if request.version < _FIRST_FIND_OF_MANY:
            return find(requested["key"])
        return {"coordinators": Each(requested["keys"], find)}

    def _find(self, listener: str, key: str) -> Values:
        """Return the coordinator of a key, at its address for clients of this listener."""
        error, message, address = ErrorCode.NONE, None, None
        broker = self._groups.coordinator_of(key)
        if broker is None:
            error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, self._groups.absence(key)
        else:
            address = client_address(self._metadata, broker, listener)
            if address is None:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                message = f"broker {broker.broker_id} has no address at {listener}"
        return {"key": key, "error": error, "message": message, **(address or _NOBODY)}

    async def list_groups(self, request: KafkaRequest, requested: Values) -> Values:
        types = {name.lower() for name in requested["types"]}
        if types and CLASSIC not in types:
            return {"error": ErrorCode.NONE}
        error, groups = self._groups.list_groups(frozenset(requested["states"]))
        return {
            "error": error,
            "groups": Each(
                groups,
                lambda group: {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type,
                    "state": group.state,
                },
            ),
        }

    async def describe_groups(self, request: KafkaRequest, requested: Values) -> Values:
        def group(name: str) -> Values:
            found = _described(self._groups.describe_group(name), request.version)
            is_reported = (
                requested["include_authorized_operations"] and found["error"] is ErrorCode.NONE
            )
            return found | {"authorized_operations": OF_GROUP if is_reported else NOT_REQUESTED}

        # Each once: of one group there may be much to tell.
        return {"groups": Each(tuple(dict.fromkeys(requested["groups"])), group)}

    async def delete_groups(self, request: KafkaRequest, requested: Values) -> Values:
        return {"groups": await delete_all(self._groups, tuple(dict.fromkeys(requested["groups"])))}


async def delete_all(
    groups: GroupCoordinatorService, group_ids: tuple[str, ...]
) -> tuple[Values, ...]:
    """Delete groups, many at once because each waits for the log; return the result of each.

    Groups that are not reached within the limit get COORDINATOR_NOT_AVAILABLE, which clients retry.
    """
    clock = asyncio.get_running_loop().time
    end_s = clock() + DELETIONS_SECONDS
    errors: list[ErrorCode] = []
    for first in range(0, len(group_ids), DELETIONS_AT_ONCE):
        some = group_ids[first : first + DELETIONS_AT_ONCE]
        if clock() < end_s:
            deletions = (ask(groups, DeleteGroup(each), DeleteGroupResponse) for each in some)
            errors += [deleted.error for deleted in await asyncio.gather(*deletions)]
        else:
            errors += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(some)
    return tuple(
        {"group_id": group_id, "error": error, "message": _NOT_DELETED.get(error)}
        for group_id, error in zip(group_ids, errors, strict=True)
    )


def _rejected_key_type(key_type: int) -> ErrorCode:
    if key_type == TRANSACTION_KEY:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type != GROUP_KEY:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _described(group: DescribedGroup, version: int) -> Values:
    error, message = group.error, None
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        message = f"Group {group.group_id} not found."
        if version < _FIRST_DESCRIBE_WITH_NOT_FOUND:
            error = ErrorCode.NONE
    return {
        "error": error,
        "message": message,
        "group_id": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": tuple(
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "metadata": member.metadata,
                "assignment": member.assignment,
            }
            for member in group.members
        ),
    }
