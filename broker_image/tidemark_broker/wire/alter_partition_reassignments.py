"""AlterPartitionReassignments v0 and v1: v1 can forbid another replication factor (KIP-860)."""

from tidemark_broker.wire.frames import ALTER_PARTITION_REASSIGNMENTS
from tidemark_broker.wire.tables import (
    BOOLEAN,
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
)

ALTER_PARTITION_REASSIGNMENTS_API = Api(
    api_key=ALTER_PARTITION_REASSIGNMENTS,
    name="AlterPartitionReassignments",
    min_version=0,
    max_version=1,
    first_flexible_version=0,
    request=Struct(
        Field("timeout_ms", INT),
        Field("may_change_replication_factor", BOOLEAN, since=1, default=True),
        Field(
            "topics",
            topic_array(Field("partition", INT), Field("replicas", ArrayOf(INT), nullable_since=0)),
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("may_change_replication_factor", BOOLEAN, since=1, default=True),
        Field("error", SHORT),
        Field("error_message", STRING, nullable_since=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("error", SHORT),
                Field("error_message", STRING, nullable_since=0),
            ),
        ),
    ),
)
