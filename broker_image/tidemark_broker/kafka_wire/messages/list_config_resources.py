"""Define ListConfigResources v0 and v1 (KIP-714, KIP-1142); v0 lists client metrics only."""

from tidemark_broker.kafka_wire.messages.frames import LIST_CONFIG_RESOURCES
from tidemark_broker.kafka_wire.messages.schema import (
    BYTE,
    ERROR_CODE,
    INT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

CLIENT_METRICS = 16

LIST_CONFIG_RESOURCES_API = Api(
    api_key=LIST_CONFIG_RESOURCES,
    name="ListConfigResources",
    min_version=0,
    max_version=1,
    first_flexible_version=0,
    request=Struct(Field("resource_types", ArrayOf(BYTE), since=1, default=(CLIENT_METRICS,))),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", ERROR_CODE),
        Field(
            "resources",
            ArrayOf(
                Struct(
                    Field("resource", STRING),
                    Field("resource_type", BYTE, since=1, default=CLIENT_METRICS),
                )
            ),
            default=(),
        ),
    ),
)
