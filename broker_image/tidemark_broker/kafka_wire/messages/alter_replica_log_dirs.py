"""Define AlterReplicaLogDirs v1 and v2. A broker has one directory, so no replica ever moves."""

from tidemark_broker.kafka_wire.messages.frames import ALTER_REPLICA_LOG_DIRS
from tidemark_broker.kafka_wire.messages.schema import (
    ERROR_CODE,
    INT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
)

ALTER_REPLICA_LOG_DIRS_API = Api(
    api_key=ALTER_REPLICA_LOG_DIRS,
    name="AlterReplicaLogDirs",
    min_version=1,
    max_version=2,
    first_flexible_version=2,
    request=Struct(
        Field(
            "directories",
            ArrayOf(
                Struct(
                    Field("path", STRING),
                    Field(
                        "topics",
                        ArrayOf(Struct(Field("topic", STRING), Field("partitions", ArrayOf(INT)))),
                    ),
                )
            ),
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("topics", topic_array(Field("partition", INT), Field("error", ERROR_CODE))),
    ),
)
