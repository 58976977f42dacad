"""Decode and encode ApiVersions v0 to v5, which lists the requests that a listener accepts.

A request of an unknown version is answered in version 0 with UNSUPPORTED_VERSION, as Kafka does, so
that the client retries. The response header is always version 0 (KIP-511). Supported features,
finalized features and the ZooKeeper migration state are not sent; all three are optional tagged
fields. From v5 on a client may name the broker and cluster that it expects (KIP-1242).

Produce is listed from v0 on, as Kafka 4 does (KAFKA-18659): librdkafka up to 2.8 does not compress
for a broker that lacks v0. A client that sends v0 to v2 gets UNSUPPORTED_VERSION.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka_wire.messages.frames import (
    API_VERSIONS,
    PRODUCE,
    Buffers,
    RequestHeader,
    framed,
)
from tidemark_broker.kafka_wire.messages.primitives import INT16, INT32, Reader, unsigned_varint

MAX_API_VERSIONS_VERSION = 5
_FIRST_FLEXIBLE_VERSION = 3
_FIRST_VERSION_WITH_NODE = 5
NO_NODE = -1


@dataclass(frozen=True, slots=True)
class SupportedApi:
    api_key: int
    min_version: int
    max_version: int


class MeantNode(NamedTuple):
    """The cluster and broker that a client expects to be connected to; both or neither is set."""

    cluster_id: str | None = None
    node_id: int = NO_NODE

    @property
    def is_half(self) -> bool:
        return (self.cluster_id is None) is not (self.node_id == NO_NODE)


def decode_api_versions_request(reader: Reader, version: int) -> MeantNode:
    """Return the node that the client expects; skip the client's software name and version.

    `version` is a supported one.
    """
    meant = MeantNode()
    if version >= _FIRST_FLEXIBLE_VERSION:
        reader.tagged_fields()  # the header's
        reader.compact_string()
        reader.compact_string()
        if version >= _FIRST_VERSION_WITH_NODE:
            meant = MeantNode(reader.compact_string(), reader.int32())
        reader.tagged_fields()
    reader.expect_end()
    return meant


def encode_api_versions_response(
    header: RequestHeader,
    supported: tuple[SupportedApi, ...],
    error: ErrorCode = ErrorCode.NONE,
) -> Buffers:
    """Return the response frame; with an `error` it lists no APIs."""
    version = header.api_version
    if not 0 <= version <= MAX_API_VERSIONS_VERSION:
        own = tuple(api for api in supported if api.api_key == API_VERSIONS)
        return _encode(header.correlation_id, 0, ErrorCode.UNSUPPORTED_VERSION, own)
    reported = supported if error is ErrorCode.NONE else ()
    return _encode(header.correlation_id, version, error, reported)


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
