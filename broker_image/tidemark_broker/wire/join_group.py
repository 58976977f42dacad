"""JoinGroup v0 to v9. v4: a member id is given out first (KIP-394); v5: static members
(KIP-345); v9: `skip_assignment` (KIP-814).

A v0 client has no rebalance timeout: -1 is read, its session timeout counts."""

from tidemark_broker.wire.frames import JOIN_GROUP
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

JOIN_GROUP_API = Api(
    api_key=JOIN_GROUP,
    name="JoinGroup",
    min_version=0,
    max_version=9,
    first_flexible_version=6,
    request=Struct(
        Field("group_id", STRING),
        Field("session_timeout_ms", INT),
        Field("rebalance_timeout_ms", INT, since=1, default=-1),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, since=5, nullable_since=5),
        Field("protocol_type", STRING),
        Field("protocols", ArrayOf(Struct(Field("name", STRING), Field("metadata", BYTES)))),
        Field("reason", STRING, since=8, nullable_since=8),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=2, default=0),
        Field("error", SHORT),
        Field("generation_id", INT, default=-1),
        Field("protocol_type", STRING, since=7, nullable_since=7),
        Field("protocol", STRING, nullable_since=7, default=""),
        Field("leader_id", STRING, default=""),
        Field("skip_assignment", BOOLEAN, since=9, default=False),
        Field("member_id", STRING, default=""),
        Field(
            "members",
            ArrayOf(
                Struct(
                    Field("member_id", STRING),
                    Field("group_instance_id", STRING, since=5, nullable_since=5),
                    Field("metadata", BYTES),
                )
            ),
            default=(),
        ),
    ),
)
