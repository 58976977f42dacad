"""ApiVersions: the table of handlers, told to the client."""

from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.wire.api_versions import (
    MAX_API_VERSIONS_VERSION,
    SupportedApi,
    decode_api_versions_request,
    encode_api_versions_response,
)
from tidemark_broker.wire.frames import API_VERSIONS


def api_versions_handler(services: KafkaServices) -> ApiHandler:
    def handle(request: KafkaRequest) -> None:
        if 0 <= request.version <= MAX_API_VERSIONS_VERSION:
            decode_api_versions_request(request.reader, request.version)
        supported = tuple(services.handlers[key].supported for key in sorted(services.handlers))
        request.answer(encode_api_versions_response(request.header, supported))

    return ApiHandler(SupportedApi(API_VERSIONS, 0, MAX_API_VERSIONS_VERSION), handle)
