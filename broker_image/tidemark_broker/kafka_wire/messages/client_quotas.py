"""Define AlterClientQuotas and DescribeClientQuotas, v0 and v1 each (KIP-546)."""

from tidemark_broker.kafka_wire.messages.frames import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTE,
    DOUBLE,
    ERROR_CODE,
    INT,
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
        Field("error", ERROR_CODE),
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


ALTER_CLIENT_QUOTAS_API = Api(
    api_key=ALTER_CLIENT_QUOTAS,
    name="AlterClientQuotas",
    min_version=0,
    max_version=1,
    first_flexible_version=1,
    request=Struct(
        Field(
            "entries",
            ArrayOf(
                Struct(
                    ENTITY,
                    Field(
                        "ops",
                        ArrayOf(
                            Struct(
                                Field("key", STRING),
                                Field("value", DOUBLE),
                                Field("remove", BOOLEAN),
                            )
                        ),
                    ),
                )
            ),
        ),
        Field("validate_only", BOOLEAN),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "entries",
            ArrayOf(
                Struct(
                    Field("error", ERROR_CODE),
                    Field("error_message", STRING, nullable_since=0),
                    ENTITY,
                )
            ),
        ),
    ),
)
