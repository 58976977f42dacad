"""What the APIs of configs have in common: of which topic or broker, and what became of it."""

from tidemark_broker.wire.tables import (
    BOOLEAN,
    BYTE,
    INT,
    SHORT,
    STRING,
    ArrayOf,
    Field,
    Struct,
)

RESOURCE = (Field("resource_type", BYTE), Field("resource", STRING))
NAME = Field("name", STRING)
VALUE = Field("value", STRING, nullable_since=0)


def alter_request(*config: Field) -> Struct:
    """Resources, each with configs of these fields."""
    configs = Field("configs", ArrayOf(Struct(*config)))
    resources = Field("resources", ArrayOf(Struct(*RESOURCE, configs)))
    return Struct(resources, Field("validate_only", BOOLEAN))


def response(*more: Field) -> Struct:
    """Resources, each with its error and `more`."""
    error = (Field("error", SHORT), Field("error_message", STRING, nullable_since=0))
    resources = Field("resources", ArrayOf(Struct(*error, *RESOURCE, *more)))
    return Struct(Field("throttle_time_ms", INT, default=0), resources)
