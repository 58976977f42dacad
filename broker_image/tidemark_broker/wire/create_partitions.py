"""CreatePartitions v0 to v3."""

from tidemark_broker.wire.frames import CREATE_PARTITIONS
from tidemark_broker.wire.tables import (
    BOOLEAN,
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

CREATE_PARTITIONS_API = Api(
    api_key=CREATE_PARTITIONS,
    name="CreatePartitions",
    min_version=0,
    max_version=3,
    first_flexible_version=2,
    request=Struct(
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("topic", STRING),
                    Field("partition_count", INT),
                    Field(
                        "assignments",
                        ArrayOf(Struct(Field("replicas", ArrayOf(INT)))),
                        nullable_since=0,
                    ),
                )
            ),
        ),
        Field("timeout_ms", INT),
        Field("validate_only", BOOLEAN),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("topic", STRING),
                    Field("error", SHORT),
                    Field("error_message", STRING, nullable_since=0),
                )
            ),
        ),
    ),
)
