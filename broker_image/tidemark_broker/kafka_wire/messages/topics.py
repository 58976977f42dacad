"""Define CreateTopics v2 to v7, CreatePartitions v0 to v3 and DeleteTopics v1 to v6.

CreateTopics v5 returns configs (KIP-525), v7 the topic id. DeleteTopics v5 returns messages, v6
takes topic ids.
"""

from tidemark_broker.kafka_wire.messages.frames import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
)
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTE,
    ERROR_CODE,
    INT,
    SHORT,
    STRING,
    TOPIC_ID,
    ZERO_TOPIC_ID,
    Api,
    ArrayOf,
    Field,
    Struct,
)

CREATE_TOPICS_API = Api(
    api_key=CREATE_TOPICS,
    name="CreateTopics",
    min_version=2,
    max_version=7,
    first_flexible_version=5,
    request=Struct(
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("topic", STRING),
                    Field("partition_count", INT),
                    Field("replication_factor", SHORT),
                    Field(
                        "assignments",
                        ArrayOf(Struct(Field("partition", INT), Field("replicas", ArrayOf(INT)))),
                    ),
                    Field(
                        "configs",
                        ArrayOf(
                            Struct(Field("name", STRING), Field("value", STRING, nullable_since=0))
                        ),
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
                    Field("topic_id", TOPIC_ID, since=7, default=ZERO_TOPIC_ID),
                    Field("error", ERROR_CODE),
                    Field("error_message", STRING, nullable_since=0),
                    Field("config_error", SHORT, since=5, tag=0, default=0),
                    Field("partition_count", INT, since=5, default=-1),
                    Field("replication_factor", SHORT, since=5, default=-1),
                    Field(
                        "configs",
                        ArrayOf(
                            Struct(
                                Field("name", STRING),
                                Field("value", STRING, nullable_since=0),
                                Field("is_read_only", BOOLEAN, default=False),
                                Field("source", BYTE, default=-1),
                                Field("is_sensitive", BOOLEAN, default=False),
                            )
                        ),
                        since=5,
                        nullable_since=5,
                    ),
                )
            ),
        ),
    ),
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
                    Field("error", ERROR_CODE),
                    Field("error_message", STRING, nullable_since=0),
                )
            ),
        ),
    ),
)


DELETE_TOPICS_API = Api(
    api_key=DELETE_TOPICS,
    name="DeleteTopics",
    min_version=1,
    max_version=6,
    first_flexible_version=4,
    request=Struct(
        Field(
            "topics",
            ArrayOf(Struct(Field("topic", STRING, nullable_since=6), Field("topic_id", TOPIC_ID))),
            since=6,
            default=(),
        ),
        Field("names", ArrayOf(STRING), until=5, default=()),
        Field("timeout_ms", INT),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("topic", STRING, nullable_since=6),
                    Field("topic_id", TOPIC_ID, since=6, default=ZERO_TOPIC_ID),
                    Field("error", ERROR_CODE),
                    Field("error_message", STRING, since=5, nullable_since=5),
                )
            ),
        ),
    ),
)
