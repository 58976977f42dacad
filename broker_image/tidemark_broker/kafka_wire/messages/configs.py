"""Define the requests that read and change configs of topics and brokers.

- DescribeConfigs v1 to v4; v3 added types and documentation.
- AlterConfigs v0 to v2, which replaces all configs of a resource (older than KIP-339).
- IncrementalAlterConfigs v0 and v1 (KIP-339).
"""

from tidemark_broker.kafka_wire.messages.frames import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTE,
    ERROR_CODE,
    INT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

RESOURCE = (Field("resource_type", BYTE), Field("resource", STRING))
NAME = Field("name", STRING)
VALUE = Field("value", STRING, nullable_since=0)


def alter_request(*config: Field) -> Struct:
    """Return the schema of a request with resources that have configs of these fields."""
    configs = Field("configs", ArrayOf(Struct(*config)))
    resources = Field("resources", ArrayOf(Struct(*RESOURCE, configs)))
    return Struct(resources, Field("validate_only", BOOLEAN))


def response(*more: Field) -> Struct:
    """Return the schema of a response with resources that have an error and the fields `more`."""
    error = (Field("error", ERROR_CODE), Field("error_message", STRING, nullable_since=0))
    resources = Field("resources", ArrayOf(Struct(*error, *RESOURCE, *more)))
    return Struct(Field("throttle_time_ms", INT, default=0), resources)


_SYNONYM = Struct(NAME, VALUE, Field("source", BYTE))
_CONFIG = Struct(
    NAME,
    VALUE,
    Field("is_read_only", BOOLEAN),
    Field("source", BYTE),
    Field("is_sensitive", BOOLEAN, default=False),
    Field("synonyms", ArrayOf(_SYNONYM), default=()),
    Field("config_type", BYTE, since=3, default=0),
    Field("documentation", STRING, since=3, nullable_since=0),
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
            ArrayOf(Struct(*RESOURCE, Field("names", ArrayOf(STRING), nullable_since=0))),
        ),
        Field("include_synonyms", BOOLEAN),
        Field("include_documentation", BOOLEAN, since=3, default=False),
    ),
    response=response(Field("configs", ArrayOf(_CONFIG), default=())),
)


ALTER_CONFIGS_API = Api(
    api_key=ALTER_CONFIGS,
    name="AlterConfigs",
    min_version=0,
    max_version=2,
    first_flexible_version=2,
    request=alter_request(NAME, VALUE),
    response=response(),
)


INCREMENTAL_ALTER_CONFIGS_API = Api(
    api_key=INCREMENTAL_ALTER_CONFIGS,
    name="IncrementalAlterConfigs",
    min_version=0,
    max_version=1,
    first_flexible_version=1,
    request=alter_request(NAME, Field("operation", BYTE), VALUE),
    response=response(),
)
