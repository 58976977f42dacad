"""Define DescribeAcls, CreateAcls and DeleteAcls v1 to v3 (KIP-11, KIP-290)."""

from enum import IntEnum

from tidemark_broker.kafka_wire.messages.frames import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
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


class AclResource(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


CLUSTER_NAME = "kafka-cluster"
LITERAL = 3  # pattern type
ANY_OPERATION = 1
ANY_PERMISSION, ALLOW = 1, 3

_ERROR = (Field("error", ERROR_CODE), Field("error_message", STRING, nullable_since=0))
_RESOURCE = (
    Field("resource_type", BYTE),
    Field("resource", STRING),
    Field("pattern_type", BYTE, default=LITERAL),
)
_ENTRY = (
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", BYTE),
    Field("permission", BYTE),
)
_FILTER = Struct(
    Field("resource_type", BYTE),
    Field("resource", STRING, nullable_since=0),
    Field("pattern_type", BYTE, default=LITERAL),
    Field("principal", STRING, nullable_since=0),
    Field("host", STRING, nullable_since=0),
    Field("operation", BYTE),
    Field("permission", BYTE),
)

DESCRIBE_ACLS_API = Api(
    api_key=DESCRIBE_ACLS,
    name="DescribeAcls",
    min_version=1,
    max_version=3,
    first_flexible_version=2,
    request=_FILTER,
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        *_ERROR,
        Field(
            "resources",
            ArrayOf(Struct(*_RESOURCE, Field("acls", ArrayOf(Struct(*_ENTRY))))),
            default=(),
        ),
    ),
)


CREATE_ACLS_API = Api(
    api_key=CREATE_ACLS,
    name="CreateAcls",
    min_version=1,
    max_version=3,
    first_flexible_version=2,
    request=Struct(Field("creations", ArrayOf(Struct(*_RESOURCE, *_ENTRY)))),
    response=Struct(
        Field("throttle_time_ms", INT, default=0), Field("results", ArrayOf(Struct(*_ERROR)))
    ),
)


DELETE_ACLS_API = Api(
    api_key=DELETE_ACLS,
    name="DeleteAcls",
    min_version=1,
    max_version=3,
    first_flexible_version=2,
    request=Struct(Field("filters", ArrayOf(_FILTER))),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "results",
            ArrayOf(
                Struct(
                    *_ERROR,
                    Field("acls", ArrayOf(Struct(*_ERROR, *_RESOURCE, *_ENTRY)), default=()),
                )
            ),
        ),
    ),
)
