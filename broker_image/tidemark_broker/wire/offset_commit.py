"""OffsetCommit v2 to v10. Up to v4 a client may name its own retention (KIP-211 took it away);
v10 names topics by id (KIP-848)."""

from tidemark_broker.wire.frames import OFFSET_COMMIT
from tidemark_broker.wire.tables import INT, LONG, SHORT, STRING, Api, Field, Struct, topic_array

OFFSET_COMMIT_API = Api(
    api_key=OFFSET_COMMIT,
    name="OffsetCommit",
    min_version=2,
    max_version=10,
    first_flexible_version=8,
    request=Struct(
        Field("group_id", STRING),
        Field("generation_id", INT, default=-1),
        Field("member_id", STRING, default=""),
        Field("group_instance_id", STRING, since=7, nullable_since=7),
        Field("retention_ms", LONG, until=4, default=-1),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("offset", LONG),
                Field("leader_epoch", INT, since=6, default=-1),
                Field("metadata", STRING, nullable_since=2),
                first_with_id=10,
            ),
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=3, default=0),
        Field(
            "topics",
            topic_array(Field("partition", INT), Field("error", SHORT), first_with_id=10),
        ),
    ),
)
