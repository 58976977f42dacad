"""SyncGroup v0 to v5: the leader hands in the assignment, everybody takes its part."""

from tidemark_broker.wire.frames import SYNC_GROUP
from tidemark_broker.wire.tables import BYTES, INT, SHORT, STRING, Api, ArrayOf, Field, Struct

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
        Field("error", SHORT),
        Field("protocol_type", STRING, since=5, nullable_since=5),
        Field("protocol", STRING, since=5, nullable_since=5),
        Field("assignment", BYTES, default=b""),
    ),
)
