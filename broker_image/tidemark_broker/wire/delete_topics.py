"""DeleteTopics v1 to v6: v5 answers with messages, v6 takes topic ids."""

from tidemark_broker.wire.frames import DELETE_TOPICS
from tidemark_broker.wire.tables import (
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
                    Field("error", SHORT),
                    Field("error_message", STRING, since=5, nullable_since=5),
                )
            ),
        ),
    ),
)
