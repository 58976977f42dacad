"""Define OffsetFetch v1 to v10 and OffsetCommit v2 to v10.

OffsetFetch: null topics ask for all (v2), several groups at once (v8, KIP-709), topics by id (v10,
KIP-848). `require_stable` has a meaning for transactions only. OffsetCommit: up to v4 a client may
set its own retention, which KIP-211 removed; v10 names topics by id (KIP-848).
"""

from tidemark_broker.kafka_wire.messages.frames import OFFSET_COMMIT, OFFSET_FETCH
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    ERROR_CODE,
    INT,
    LONG,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
    topic_fields,
)

_REQUESTED = ArrayOf(Struct(*topic_fields(10), Field("partitions", ArrayOf(INT))))
_FOUND = topic_array(
    Field("partition", INT),
    Field("offset", LONG, default=-1),
    Field("leader_epoch", INT, since=5, default=-1),
    Field("metadata", STRING, nullable_since=1, default=""),
    Field("error", ERROR_CODE, default=0),
    first_with_id=10,
)

OFFSET_FETCH_API = Api(
    api_key=OFFSET_FETCH,
    name="OffsetFetch",
    min_version=1,
    max_version=10,
    first_flexible_version=6,
    request=Struct(
        Field("group_id", STRING, until=7, default=""),
        Field("topics", _REQUESTED, until=7, nullable_since=2),
        Field(
            "groups",
            ArrayOf(
                Struct(
                    Field("group_id", STRING),
                    Field("member_id", STRING, since=9, nullable_since=9),
                    Field("member_epoch", INT, since=9, default=-1),
                    Field("topics", _REQUESTED, nullable_since=8),
                )
            ),
            since=8,
            default=(),
        ),
        Field("require_stable", BOOLEAN, since=7, default=False),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=3, default=0),
        Field("topics", _FOUND, until=7, default=()),
        Field("error", ERROR_CODE, since=2, until=7, default=0),
        Field(
            "groups",
            ArrayOf(
                Struct(
                    Field("group_id", STRING), Field("topics", _FOUND), Field("error", ERROR_CODE)
                )
            ),
            since=8,
            default=(),
        ),
    ),
)


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
            topic_array(Field("partition", INT), Field("error", ERROR_CODE), first_with_id=10),
        ),
    ),
)
