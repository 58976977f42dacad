"""ListPartitionReassignments v0 (KIP-455)."""

from tidemark_broker.wire.frames import LIST_PARTITION_REASSIGNMENTS
from tidemark_broker.wire.tables import (
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
)

LIST_PARTITION_REASSIGNMENTS_API = Api(
    api_key=LIST_PARTITION_REASSIGNMENTS,
    name="ListPartitionReassignments",
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    request=Struct(
        Field("timeout_ms", INT),
        Field(
            "topics",
            ArrayOf(Struct(Field("topic", STRING), Field("partitions", ArrayOf(INT)))),
            nullable_since=0,
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", SHORT),
        Field("error_message", STRING, nullable_since=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("replicas", ArrayOf(INT)),
                Field("adding_replicas", ArrayOf(INT)),
                Field("removing_replicas", ArrayOf(INT)),
            ),
        ),
    ),
)
