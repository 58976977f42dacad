"""AlterConfigs v0 to v2: all configs of a resource at once (older than KIP-339)."""

from tidemark_broker.wire.frames import ALTER_CONFIGS
from tidemark_broker.wire.tables import (
    BOOLEAN,
    BYTE,
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

ALTER_CONFIGS_API = Api(
    api_key=ALTER_CONFIGS,
    name="AlterConfigs",
    min_version=0,
    max_version=2,
    first_flexible_version=2,
    request=Struct(
        Field(
            "resources",
            ArrayOf(
                Struct(
                    Field("resource_type", BYTE),
                    Field("resource", STRING),
                    Field(
                        "configs",
                        ArrayOf(
                            Struct(
                                Field("name", STRING),
                                Field("value", STRING, nullable_since=0),
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
            "resources",
            ArrayOf(
                Struct(
                    Field("error", SHORT),
                    Field("error_message", STRING, nullable_since=0),
                    Field("resource_type", BYTE),
                    Field("resource", STRING),
                )
            ),
        ),
    ),
)
