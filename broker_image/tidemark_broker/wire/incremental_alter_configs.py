"""IncrementalAlterConfigs v0 and v1 (KIP-339)."""

from tidemark_broker.wire.frames import INCREMENTAL_ALTER_CONFIGS
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

INCREMENTAL_ALTER_CONFIGS_API = Api(
    api_key=INCREMENTAL_ALTER_CONFIGS,
    name="IncrementalAlterConfigs",
    min_version=0,
    max_version=1,
    first_flexible_version=1,
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
                                Field("operation", BYTE),
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
