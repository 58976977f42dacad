"""OffsetForLeaderEpoch v2 to v4: where an epoch ended, so that a reader notices a cut (KIP-320)."""

from tidemark_broker.wire.frames import OFFSET_FOR_LEADER_EPOCH
from tidemark_broker.wire.tables import INT, LONG, SHORT, Api, Field, Struct, topic_array

OFFSET_FOR_LEADER_EPOCH_API = Api(
    api_key=OFFSET_FOR_LEADER_EPOCH,
    name="OffsetForLeaderEpoch",
    min_version=2,
    max_version=4,
    first_flexible_version=4,
    request=Struct(
        Field("replica_id", INT, since=3, default=-2),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("current_leader_epoch", INT),
                Field("leader_epoch", INT),
            ),
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics",
            topic_array(
                Field("error", SHORT),
                Field("partition", INT),
                Field("leader_epoch", INT, default=-1),
                Field("end_offset", LONG, default=-1),
            ),
        ),
    ),
)
