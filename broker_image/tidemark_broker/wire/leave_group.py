"""LeaveGroup v0 to v5: from v3 on several members at once, each with its own error (KIP-345)."""

from tidemark_broker.wire.frames import LEAVE_GROUP
from tidemark_broker.wire.tables import INT, SHORT, STRING, Api, ArrayOf, Field, Struct

LEAVE_GROUP_API = Api(
    api_key=LEAVE_GROUP,
    name="LeaveGroup",
    min_version=0,
    max_version=5,
    first_flexible_version=4,
    request=Struct(
        Field("group_id", STRING),
        Field("member_id", STRING, until=2, default=""),
        Field(
            "members",
            ArrayOf(
                Struct(
                    Field("member_id", STRING),
                    Field("group_instance_id", STRING, nullable_since=3),
                    Field("reason", STRING, since=5, nullable_since=5),
                )
            ),
            since=3,
            default=(),
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field("error", SHORT),
        Field(
            "members",
            ArrayOf(
                Struct(
                    Field("member_id", STRING),
                    Field("group_instance_id", STRING, nullable_since=3),
                    Field("error", SHORT),
                )
            ),
            since=3,
            default=(),
        ),
    ),
)
