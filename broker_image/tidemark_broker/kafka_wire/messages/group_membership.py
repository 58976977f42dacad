"""Define the requests of consumer group members.

- FindCoordinator v0 to v6; from v4 on many keys at once (KIP-699). `key_type` 0 is a group; 1, a
  transaction, and 2, a share group, are rejected.
- JoinGroup v0 to v9; v4: the broker assigns the member id first (KIP-394); v5: static members
  (KIP-345); v9: `skip_assignment` (KIP-814). A v0 client has no rebalance timeout: -1 is read, and
  its session timeout is used.
- SyncGroup v0 to v5: the leader sends the assignment, each member receives its part.
- Heartbeat v0 to v4.
- LeaveGroup v0 to v5; from v3 on several members at once, each with its own error (KIP-345).
"""

from tidemark_broker.kafka_wire.messages.frames import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTE,
    BYTES,
    ERROR_CODE,
    INT,
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
        Field("error", ERROR_CODE),
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


FIND_COORDINATOR_API = Api(
    api_key=FIND_COORDINATOR,
    name="FindCoordinator",
    min_version=0,
    max_version=6,
    first_flexible_version=3,
    request=Struct(
        Field("key", STRING, until=3, default=""),
        Field("key_type", BYTE, since=1, default=0),
        Field("keys", ArrayOf(STRING), since=4, default=()),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field("error", ERROR_CODE, until=3, default=0),
        Field("message", STRING, since=1, until=3, nullable_since=1),
        Field("broker_id", INT, until=3, default=-1),
        Field("host", STRING, until=3, default=""),
        Field("port", INT, until=3, default=-1),
        Field(
            "coordinators",
            ArrayOf(
                Struct(
                    Field("key", STRING),
                    Field("broker_id", INT),
                    Field("host", STRING),
                    Field("port", INT),
                    Field("error", ERROR_CODE),
                    Field("message", STRING, nullable_since=4),
                )
            ),
            since=4,
            default=(),
        ),
    ),
)


HEARTBEAT_API = Api(
    api_key=HEARTBEAT,
    name="Heartbeat",
    min_version=0,
    max_version=4,
    first_flexible_version=4,
    request=Struct(
        Field("group_id", STRING),
        Field("generation_id", INT),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, since=3, nullable_since=3),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field("error", ERROR_CODE),
    ),
)


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
        Field("error", ERROR_CODE),
        Field(
            "members",
            ArrayOf(
                Struct(
                    Field("member_id", STRING),
                    Field("group_instance_id", STRING, nullable_since=3),
                    Field("error", ERROR_CODE),
                )
            ),
            since=3,
            default=(),
        ),
    ),
)


SYNC_GROUP_API = Api(
    api_key=SYNC_GROUP,
    name="SyncGroup",
    min_version=0,
    max_version=5,
    first_flexible_version=4,
    request=Struct(
        Field("group_id", STRING),
        Field("generation_id", INT),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, since=3, nullable_since=3),
        Field("protocol_type", STRING, since=5, nullable_since=5),
        Field("protocol", STRING, since=5, nullable_since=5),
        Field(
            "assignments", ArrayOf(Struct(Field("member_id", STRING), Field("assignment", BYTES)))
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field("error", ERROR_CODE),
        Field("protocol_type", STRING, since=5, nullable_since=5),
        Field("protocol", STRING, since=5, nullable_since=5),
        Field("assignment", BYTES, default=b""),
    ),
)
