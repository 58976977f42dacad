"""ApiVersions v0 to v4: which requests this listener takes.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION, as Kafka does, so that the
client asks again; the answer's header is always version 0 (KIP-511). Not sent: features,
finalized features, ZooKeeper migration state (all tagged, all optional).

Produce is told from v0 on, as Kafka 4 tells it (KAFKA-18659): librdkafka up to 2.8 compresses for
no broker that lacks it. A client that really sends v0 to v2 is refused as for any unknown version.
"""

from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.wire.frames import API_VERSIONS, PRODUCE, Buffers, RequestHeader, framed
from tidemark_broker.wire.primitives import INT16, INT32, Reader, unsigned_varint

MAX_API_VERSIONS_VERSION = 4
_FIRST_FLEXIBLE_VERSION = 3


@dataclass(frozen=True, slots=True)
class SupportedApi:
    api_key: int
    min_version: int
    max_version: int


def decode_api_versions_request(reader: Reader, version: int) -> None:
    """Checks the body of a supported version; what the client is called is of no use here."""
    if version >= _FIRST_FLEXIBLE_VERSION:
        reader.tagged_fields()  # the header's
        reader.compact_string()
        reader.compact_string()
        reader.tagged_fields()
    reader.expect_end()


def encode_api_versions_response(
    header: RequestHeader, supported: tuple[SupportedApi, ...]
) -> Buffers:
    version = header.api_version
    if not 0 <= version <= MAX_API_VERSIONS_VERSION:
        own = tuple(api for api in supported if api.api_key == API_VERSIONS)
        return _encode(header.correlation_id, 0, ErrorCode.UNSUPPORTED_VERSION, own)
    return _encode(header.correlation_id, version, ErrorCode.NONE, supported)


def _encode(
    correlation_id: int, version: int, error: ErrorCode, supported: tuple[SupportedApi, ...]
) -> Buffers:
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    count = len(supported)
    body = bytearray(INT32.pack(correlation_id) + INT16.pack(error))
    body += unsigned_varint(count + 1) if is_flexible else INT32.pack(count)
    for api in supported:
        min_version = 0 if api.api_key == PRODUCE else api.min_version
        body += INT16.pack(api.api_key) + INT16.pack(min_version) + INT16.pack(api.max_version)
        if is_flexible:
            body += b"\x00"
    if version >= 1:
        body += INT32.pack(0)  # throttle time
    if is_flexible:
        body += b"\x00"
    return framed([body])
