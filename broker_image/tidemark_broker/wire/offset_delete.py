"""OffsetDelete v0."""

from tidemark_broker.wire.frames import OFFSET_DELETE
from tidemark_broker.wire.tables import INT, LAST, SHORT, STRING, Api, Field, Struct, topic_array

OFFSET_DELETE_API = Api(
    api_key=OFFSET_DELETE,
    name="OffsetDelete",
    min_version=0,
    max_version=0,
    first_flexible_version=LAST,
    request=Struct(
        Field("group_id", STRING),
        Field("topics", topic_array(Field("partition", INT))),
    ),
    response=Struct(
        Field("error", SHORT),
        Field("throttle_time_ms", INT, default=0),
        Field("topics", topic_array(Field("partition", INT), Field("error", SHORT)), default=()),
    ),
)
