"""DescribeConfigs v1 to v4: v3 has types and documentation."""

from tidemark_broker.wire.frames import DESCRIBE_CONFIGS
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

DESCRIBE_CONFIGS_API = Api(
    api_key=DESCRIBE_CONFIGS,
    name="DescribeConfigs",
    min_version=1,
    max_version=4,
    first_flexible_version=4,
    request=Struct(
        Field(
            "resources",
            ArrayOf(
                Struct(
                    Field("resource_type", BYTE),
                    Field("resource", STRING),
                    Field("names", ArrayOf(STRING), nullable_since=0),
                )
            ),
        ),
        Field("include_synonyms", BOOLEAN),
        Field("include_documentation", BOOLEAN, since=3, default=False),
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
                    Field(
                        "configs",
                        ArrayOf(
                            Struct(
                                Field("name", STRING),
                                Field("value", STRING, nullable_since=0),
                                Field("is_read_only", BOOLEAN),
                                Field("source", BYTE),
                                Field("is_sensitive", BOOLEAN, default=False),
                                Field(
                                    "synonyms",
                                    ArrayOf(
                                        Struct(
                                            Field("name", STRING),
                                            Field("value", STRING, nullable_since=0),
                                            Field("source", BYTE),
                                        )
                                    ),
                                    default=(),
                                ),
                                Field("config_type", BYTE, since=3, default=0),
                                Field("documentation", STRING, since=3, nullable_since=0),
                            )
                        ),
                        default=(),
                    ),
                )
            ),
        ),
    ),
)
