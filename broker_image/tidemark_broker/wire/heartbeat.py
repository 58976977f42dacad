"""Heartbeat v0 to v4."""

from tidemark_broker.wire.frames import HEARTBEAT
from tidemark_broker.wire.tables import INT, SHORT, STRING, Api, Field, Struct

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
        Field("error", SHORT),
    ),
)
