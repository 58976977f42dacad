"""ListGroups v0 to v5: v4 asks by state (KIP-518), v5 by type (KIP-848)."""

from tidemark_broker.wire.frames import LIST_GROUPS
from tidemark_broker.wire.tables import INT, SHORT, STRING, Api, ArrayOf, Field, Struct

LIST_GROUPS_API = Api(
    api_key=LIST_GROUPS,
    name="ListGroups",
    min_version=0,
    max_version=5,
    first_flexible_version=3,
    request=Struct(
        Field("states", ArrayOf(STRING), since=4, default=()),
        Field("types", ArrayOf(STRING), since=5, default=()),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field("error", SHORT),
        Field(
            "groups",
            ArrayOf(
                Struct(
                    Field("group_id", STRING),
                    Field("protocol_type", STRING),
                    Field("state", STRING, since=4, default=""),
                    Field("type", STRING, since=5, default="classic"),
                )
            ),
            default=(),
        ),
    ),
)
