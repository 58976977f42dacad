"""Define ListOffsets v1 to v11 and OffsetForLeaderEpoch v2 to v4.

ListOffsets finds offsets by timestamp or by a special timestamp: v7 added the maximum timestamp
(KIP-734), v8, v9 and v11 the positions of tiered storage (KIP-405, KIP-1005, KIP-1023), v10 a time
limit (KIP-1075). OffsetForLeaderEpoch returns where an epoch ended, so that a reader notices a
truncation (KIP-320).
"""

from tidemark_broker.kafka_wire.messages.frames import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tidemark_broker.kafka_wire.messages.schema import (
    BYTE,
    ERROR_CODE,
    INT,
    LONG,
    Api,
    Field,
    Struct,
    topic_array,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

LIST_OFFSETS_API = Api(
    api_key=LIST_OFFSETS,
    name="ListOffsets",
    min_version=1,
    max_version=11,
    first_flexible_version=6,
    request=Struct(
        Field("replica_id", INT),
        Field("isolation_level", BYTE, since=2, default=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("current_leader_epoch", INT, since=4, default=-1),
                Field("timestamp", LONG),
            ),
        ),
        Field("timeout_ms", INT, since=10, default=0),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=2, default=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("error", ERROR_CODE),
                Field("timestamp", LONG, default=-1),
                Field("offset", LONG, default=-1),
                Field("leader_epoch", INT, since=4, default=-1),
            ),
        ),
    ),
)


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
                Field("error", ERROR_CODE),
                Field("partition", INT),
                Field("leader_epoch", INT, default=-1),
                Field("end_offset", LONG, default=-1),
            ),
        ),
    ),
)
