"""Define the requests that list, describe and delete groups.

- DescribeGroups v0 to v6; v6 answers GROUP_ID_NOT_FOUND where older versions answer state `Dead`.
- DeleteGroups v0 to v3; v3 has an error message for each group.
- ListGroups v0 to v5; v4 filters by state (KIP-518), v5 by type (KIP-848).
- OffsetDelete v0.
"""

from tidemark_broker.kafka_wire.messages.authorized_operations import NOT_REQUESTED
from tidemark_broker.kafka_wire.messages.frames import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_DELETE,
)
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTES,
    ERROR_CODE,
    INT,
    LAST,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
)

DESCRIBE_GROUPS_API = Api(
    api_key=DESCRIBE_GROUPS,
    name="DescribeGroups",
    min_version=0,
    max_version=6,
    first_flexible_version=5,
    request=Struct(
        Field("groups", ArrayOf(STRING)),
        Field("include_authorized_operations", BOOLEAN, since=3, default=False),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=1, default=0),
        Field(
            "groups",
            ArrayOf(
                Struct(
                    Field("error", ERROR_CODE),
                    Field("message", STRING, since=6, nullable_since=6),
                    Field("group_id", STRING),
                    Field("state", STRING, default=""),
                    Field("protocol_type", STRING, default=""),
                    Field("protocol", STRING, default=""),
                    Field(
                        "members",
                        ArrayOf(
                            Struct(
                                Field("member_id", STRING),
                                Field("group_instance_id", STRING, since=4, nullable_since=4),
                                Field("client_id", STRING),
                                Field("client_host", STRING),
                                Field("metadata", BYTES),
                                Field("assignment", BYTES),
                            )
                        ),
                        default=(),
                    ),
                    Field("authorized_operations", INT, since=3, default=NOT_REQUESTED),
                )
            ),
        ),
    ),
)


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
                    Field("error", ERROR_CODE),
                    Field("message", STRING, since=3, nullable_since=3),
                )
            ),
        ),
    ),
)


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
        Field("error", ERROR_CODE),
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
        Field("error", ERROR_CODE),
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics", topic_array(Field("partition", INT), Field("error", ERROR_CODE)), default=()
        ),
    ),
)
