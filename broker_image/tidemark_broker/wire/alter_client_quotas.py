"""AlterClientQuotas v0 and v1 (KIP-546)."""

from tidemark_broker.wire.describe_client_quotas import ENTITY
from tidemark_broker.wire.frames import ALTER_CLIENT_QUOTAS
from tidemark_broker.wire.tables import (
    BOOLEAN,
    DOUBLE,
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
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
                    Field("error", SHORT),
                    Field("error_message", STRING, nullable_since=0),
                    ENTITY,
                )
            ),
        ),
    ),
)
