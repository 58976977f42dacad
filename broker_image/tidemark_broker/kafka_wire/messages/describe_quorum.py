"""Define DescribeQuorum v0 to v2 (KIP-595, KIP-836, KIP-853)."""

from tidemark_broker.kafka_wire.messages.frames import DESCRIBE_QUORUM
from tidemark_broker.kafka_wire.messages.schema import (
    ERROR_CODE,
    INT,
    LONG,
    STRING,
    TOPIC_ID,
    UNSIGNED_SHORT,
    ZERO_TOPIC_ID,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
)

METADATA_TOPIC = "__cluster_metadata"

_REPLICAS = ArrayOf(
    Struct(
        Field("replica_id", INT),
        Field("directory_id", TOPIC_ID, since=2, default=ZERO_TOPIC_ID),
        Field("log_end_offset", LONG),
        Field("last_fetch_ms", LONG, since=1, default=-1),
        Field("last_caught_up_ms", LONG, since=1, default=-1),
    )
)

DESCRIBE_QUORUM_API = Api(
    api_key=DESCRIBE_QUORUM,
    name="DescribeQuorum",
    min_version=0,
    max_version=2,
    first_flexible_version=0,
    request=Struct(Field("topics", topic_array(Field("partition", INT)))),
    response=Struct(
        Field("error", ERROR_CODE),
        Field("message", STRING, since=2, nullable_since=2),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("error", ERROR_CODE),
                Field("message", STRING, since=2, nullable_since=2),
                Field("leader", INT, default=-1),
                Field("leader_epoch", INT, default=-1),
                Field("high_watermark", LONG, default=-1),
                Field("voters", _REPLICAS, default=()),
                Field("observers", _REPLICAS, default=()),
            ),
        ),
        Field(
            "nodes",
            ArrayOf(
                Struct(
                    Field("node_id", INT),
                    Field(
                        "listeners",
                        ArrayOf(
                            Struct(
                                Field("name", STRING),
                                Field("host", STRING),
                                Field("port", UNSIGNED_SHORT),
                            )
                        ),
                    ),
                )
            ),
            since=2,
            default=(),
        ),
    ),
)
