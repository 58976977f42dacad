"""Define DescribeLogDirs v1 to v5 and DeleteRecords v0 to v2.

DescribeLogDirs v4 has the size of the volume (KIP-827), v5 whether it is cordoned.
"""

from tidemark_broker.kafka_wire.messages.frames import DELETE_RECORDS, DESCRIBE_LOG_DIRS
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
)

DESCRIBE_LOG_DIRS_API = Api(
    api_key=DESCRIBE_LOG_DIRS,
    name="DescribeLogDirs",
    min_version=1,
    max_version=5,
    first_flexible_version=2,
    request=Struct(
        Field(
            "topics",
            ArrayOf(Struct(Field("topic", STRING), Field("partitions", ArrayOf(INT)))),
            nullable_since=0,
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", ERROR_CODE, since=3, default=0),
        Field(
            "directories",
            ArrayOf(
                Struct(
                    Field("error", ERROR_CODE),
                    Field("path", STRING),
                    Field(
                        "topics",
                        topic_array(
                            Field("partition", INT),
                            Field("size_bytes", LONG),
                            Field("offset_lag", LONG),
                            Field("is_future", BOOLEAN, default=False),
                        ),
                    ),
                    Field("total_bytes", LONG, since=4, default=-1),
                    Field("usable_bytes", LONG, since=4, default=-1),
                    Field("is_cordoned", BOOLEAN, since=5, default=False),
                )
            ),
        ),
    ),
)


DELETE_RECORDS_API = Api(
    api_key=DELETE_RECORDS,
    name="DeleteRecords",
    min_version=0,
    max_version=2,
    first_flexible_version=2,
    request=Struct(
        Field("topics", topic_array(Field("partition", INT), Field("offset", LONG))),
        Field("timeout_ms", INT),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT), Field("low_watermark", LONG), Field("error", ERROR_CODE)
            ),
        ),
    ),
)
