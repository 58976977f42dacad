"""DescribeConfigs v1 to v4: v3 has types and documentation."""

from tidemark_broker.wire.config_fields import NAME, RESOURCE, VALUE, response
from tidemark_broker.wire.frames import DESCRIBE_CONFIGS
from tidemark_broker.wire.tables import BOOLEAN, BYTE, STRING, Api, ArrayOf, Field, Struct

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
