"""FindCoordinator v0 to v6: which broker coordinates a group; from v4 on, many at once (KIP-699).

`key_type` 0: a group; 1, a transaction, is refused; 2, a share group, too."""

from tidemark_broker.wire.frames import FIND_COORDINATOR
from tidemark_broker.wire.tables import BYTE, INT, SHORT, STRING, Api, ArrayOf, Field, Struct

FIND_COORDINATOR_API = Api(
    api_key=FIND_COORDINATOR,
    name="FindCoordinator",
    min_version=0,
    max_version=6,
    first_flexible_version=3,
    request=Struct(
        Field("key", STRING, until=3, default=""),
        Field("key_type", BYTE, since=1, default=0),
        Field("keys", ArrayOf(STRING), since=4, default=()),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field("error", SHORT, until=3, default=0),
        Field("message", STRING, since=1, until=3, nullable_since=1),
        Field("broker_id", INT, until=3, default=-1),
        Field("host", STRING, until=3, default=""),
        Field("port", INT, until=3, default=-1),
        Field(
            "coordinators",
            ArrayOf(
                Struct(
                    Field("key", STRING),
                    Field("broker_id", INT),
                    Field("host", STRING),
                    Field("port", INT),
                    Field("error", SHORT),
                    Field("message", STRING, nullable_since=4),
                )
            ),
            since=4,
            default=(),
        ),
    ),
)
