"""ApiVersions: the table of handlers, told to the client.

A client that means another broker, or another cluster, is told to begin at its bootstrap servers
again (KIP-1242): the address that it had is somebody else's now.
"""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.wire.api_versions import (
    MAX_API_VERSIONS_VERSION,
    MeantNode,
    SupportedApi,
    decode_api_versions_request,
    encode_api_versions_response,
)
from tidemark_broker.wire.frames import API_VERSIONS


def api_versions_handler(services: KafkaServices) -> ApiHandler:
    def handle(request: KafkaRequest) -> None:
        error = ErrorCode.NONE
        if 0 <= request.version <= MAX_API_VERSIONS_VERSION:
            meant = decode_api_versions_request(request.reader, request.version)
            error = _meant_error(services, meant)
        supported = tuple(services.handlers[key].supported for key in sorted(services.handlers))
        request.answer(encode_api_versions_response(request.header, supported, error))

    return ApiHandler(SupportedApi(API_VERSIONS, 0, MAX_API_VERSIONS_VERSION), handle)


def _meant_error(services: KafkaServices, meant: MeantNode) -> ErrorCode:
    if meant.is_half:
        return ErrorCode.INVALID_REQUEST
    if meant.cluster_id is None or not services.cluster_id:  # before the first registration
        return ErrorCode.NONE
    local = MeantNode(services.cluster_id, services.partitions.broker_id)
    return ErrorCode.NONE if meant == local else ErrorCode.REBOOTSTRAP_REQUIRED
