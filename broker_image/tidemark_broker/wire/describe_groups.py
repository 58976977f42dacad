"""DescribeGroups v0 to v6: v6 says GROUP_ID_NOT_FOUND where older ones say state `Dead`."""

from tidemark_broker.wire.authorized_operations import NOT_ASKED
from tidemark_broker.wire.frames import DESCRIBE_GROUPS
from tidemark_broker.wire.tables import (
    BOOLEAN,
    BYTES,
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

DESCRIBE_GROUPS_API = Api(
    api_key=DESCRIBE_GROUPS,
    name="DescribeGroups",
    min_version=0,
    max_version=6,
    first_flexible_version=5,
    request=Struct(
        Field("groups", ArrayOf(STRING)),
        Field("include_authorized_operations", BOOLEAN, since=3, default=False),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field(
            "groups",
            ArrayOf(
                Struct(
                    Field("error", SHORT),
                    Field("message", STRING, since=6, nullable_since=6),
                    Field("group_id", STRING),
                    Field("state", STRING, default=""),
                    Field("protocol_type", STRING, default=""),
                    Field("protocol", STRING, default=""),
                    Field(
                        "members",
                        ArrayOf(
                            Struct(
                                Field("member_id", STRING),
                                Field("group_instance_id", STRING, since=4, nullable_since=4),
                                Field("client_id", STRING),
                                Field("client_host", STRING),
                                Field("metadata", BYTES),
                                Field("assignment", BYTES),
                            )
                        ),
                        default=(),
                    ),
                    Field("authorized_operations", INT, since=3, default=NOT_ASKED),
                )
            ),
        ),
    ),
)
