"""DeleteRecords v0 to v2."""

from tidemark_broker.wire.frames import DELETE_RECORDS
from tidemark_broker.wire.tables import (
    INT,
    LONG,
    SHORT,
    Api,
    Field,
    Struct,
    topic_array,
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
                Field("partition", INT), Field("low_watermark", LONG), Field("error", SHORT)
            ),
        ),
    ),
)
