"""DescribeClientQuotas v0 and v1 (KIP-546)."""

from tidemark_broker.wire.frames import DESCRIBE_CLIENT_QUOTAS
from tidemark_broker.wire.tables import (
    BOOLEAN,
    BYTE,
    DOUBLE,
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

# Of whom a quota is: by type and name; the name null: of all that have none of their own.
ENTITY = Field(
    "entity",
    ArrayOf(Struct(Field("entity_type", STRING), Field("entity_name", STRING, nullable_since=0))),
)

DESCRIBE_CLIENT_QUOTAS_API = Api(
    api_key=DESCRIBE_CLIENT_QUOTAS,
    name="DescribeClientQuotas",
    min_version=0,
    max_version=1,
    first_flexible_version=1,
    request=Struct(
        Field(
            "components",
            ArrayOf(
                Struct(
                    Field("entity_type", STRING),
                    Field("match_type", BYTE),
                    Field("match", STRING, nullable_since=0),
                )
            ),
        ),
        Field("strict", BOOLEAN),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", SHORT),
        Field("error_message", STRING, nullable_since=0),
        Field(
            "entries",
            ArrayOf(
                Struct(
                    ENTITY,
                    Field("values", ArrayOf(Struct(Field("key", STRING), Field("value", DOUBLE)))),
                )
            ),
            nullable_since=0,
        ),
    ),
)
