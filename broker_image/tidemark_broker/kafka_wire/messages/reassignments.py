"""Define the requests that elect leaders and move replicas.

- ElectLeaders v0 to v2; v1 added unclean elections (KIP-460).
- AlterPartitionReassignments v0 and v1; v1 can forbid a change of the replication factor (KIP-860).
- ListPartitionReassignments v0 (KIP-455).
"""

from tidemark_broker.kafka_wire.messages.frames import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTE,
    ERROR_CODE,
    INT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
)

PREFERRED, UNCLEAN = 0, 1

ELECT_LEADERS_API = Api(
    api_key=ELECT_LEADERS,
    name="ElectLeaders",
    min_version=0,
    max_version=2,
    first_flexible_version=2,
    request=Struct(
        Field("election_type", BYTE, since=1, default=PREFERRED),
        Field(
            "topics",
            ArrayOf(Struct(Field("topic", STRING), Field("partitions", ArrayOf(INT)))),
            nullable_since=0,
        ),
        Field("timeout_ms", INT),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", ERROR_CODE, since=1, default=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("error", ERROR_CODE),
                Field("error_message", STRING, nullable_since=0),
            ),
        ),
    ),
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
        Field("error", ERROR_CODE),
        Field("error_message", STRING, nullable_since=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("error", ERROR_CODE),
                Field("error_message", STRING, nullable_since=0),
            ),
        ),
    ),
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
        Field("error", ERROR_CODE),
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
