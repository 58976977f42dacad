"""DeleteGroups v0 to v3: v3 has a message for each group."""

from tidemark_broker.wire.frames import DELETE_GROUPS
from tidemark_broker.wire.tables import INT, SHORT, STRING, Api, ArrayOf, Field, Struct

DELETE_GROUPS_API = Api(
    api_key=DELETE_GROUPS,
    name="DeleteGroups",
    min_version=0,
    max_version=3,
    first_flexible_version=2,
    request=Struct(
        Field("groups", ArrayOf(STRING)),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "groups",
            ArrayOf(
                Struct(
                    Field("group_id", STRING),
                    Field("error", SHORT),
                    Field("message", STRING, since=3, nullable_since=3),
                )
            ),
        ),
    ),
)
