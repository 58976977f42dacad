"""Define SaslHandshake v0 and v1, and SaslAuthenticate v0 to v2 (KIP-43, KIP-152, KIP-368).

After a handshake of version 0 the client sends the bytes of the mechanism in frames without a
header, and gets such frames back; after version 1 it sends SaslAuthenticate.
"""

from tidemark_broker.kafka_wire.messages.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidemark_broker.kafka_wire.messages.schema import (
    BYTES,
    ERROR_CODE,
    LONG,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

NEVER_FLEXIBLE = 32767
BARE_VERSION = -1  # of a request that is only the mechanism's bytes, after a handshake of version 0

SASL_HANDSHAKE_API = Api(
    api_key=SASL_HANDSHAKE,
    name="SaslHandshake",
    min_version=0,
    max_version=1,
    first_flexible_version=NEVER_FLEXIBLE,
    request=Struct(Field("mechanism", STRING)),
    response=Struct(
        Field("error", ERROR_CODE),
        Field("mechanisms", ArrayOf(STRING), default=()),
    ),
)

SASL_AUTHENTICATE_API = Api(
    api_key=SASL_AUTHENTICATE,
    name="SaslAuthenticate",
    min_version=0,
    max_version=2,
    first_flexible_version=2,
    request=Struct(Field("auth_bytes", BYTES)),
    response=Struct(
        Field("error", ERROR_CODE),
        Field("message", STRING, nullable_since=0),
        Field("auth_bytes", BYTES, default=b""),
        Field("session_lifetime_ms", LONG, since=1, default=0),
    ),
)
