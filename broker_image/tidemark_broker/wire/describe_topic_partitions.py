"""DescribeTopicPartitions v0 (KIP-966): partitions with eligible leaders, a page at a time."""

from tidemark_broker.wire.authorized_operations import NOT_ASKED
from tidemark_broker.wire.frames import DESCRIBE_TOPIC_PARTITIONS
from tidemark_broker.wire.tables import (
    BOOLEAN,
    INT,
    SHORT,
    STRING,
    TOPIC_ID,
    Api,
    ArrayOf,
    Field,
    NullableStruct,
    Struct,
)

_CURSOR = NullableStruct(Field("topic", STRING), Field("partition", INT))

DESCRIBE_TOPIC_PARTITIONS_API = Api(
    api_key=DESCRIBE_TOPIC_PARTITIONS,
    name="DescribeTopicPartitions",
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    request=Struct(
        Field("topics", ArrayOf(Struct(Field("topic", STRING)))),
        Field("partition_limit", INT),
        Field("cursor", _CURSOR, nullable_since=0),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("error", SHORT),
                    Field("topic", STRING, nullable_since=0),
                    Field("topic_id", TOPIC_ID),
                    Field("is_internal", BOOLEAN),
                    Field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                Field("error", SHORT),
                                Field("partition", INT),
                                Field("leader", INT),
                                Field("leader_epoch", INT),
                                Field("replicas", ArrayOf(INT)),
                                Field("in_sync_replicas", ArrayOf(INT)),
                                Field("eligible_leaders", ArrayOf(INT), nullable_since=0),
                                Field("last_known_leaders", ArrayOf(INT), nullable_since=0),
                                Field("offline_replicas", ArrayOf(INT)),
                            )
                        ),
                    ),
                    Field("authorized_operations", INT, default=NOT_ASKED),
                )
            ),
        ),
        Field("next_cursor", _CURSOR, nullable_since=0),
    ),
)
