"""ElectLeaders v0 to v2: v1 brought unclean elections (KIP-460)."""

from tidemark_broker.wire.frames import ELECT_LEADERS
from tidemark_broker.wire.tables import (
    BYTE,
    INT,
    SHORT,
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
        Field("error", SHORT, since=1, default=0),
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
