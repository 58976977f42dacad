"""Groups as administrators see them."""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.groups.classic_group import ClassicGroup, GroupState
from tidemark_broker.groups.messages import DescribedGroup, DescribedMember, ListedGroup

NO_SUCH_GROUP = ErrorCode.GROUP_ID_NOT_FOUND


def listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value)


def describe(group: ClassicGroup) -> DescribedGroup:
    """What members know and read is told of a stable group only: before, it is about to change."""
    is_stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata_of(group.protocol) if is_stable else b"",
            member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if is_stable else ""
    return DescribedGroup(
        ErrorCode.NONE,
        group.group_id,
        group.state.value,
        group.protocol_type or "",
        protocol,
        members,
    )
