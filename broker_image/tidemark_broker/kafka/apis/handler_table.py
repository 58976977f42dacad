"""Build the table of handlers, and answer ApiVersions from it.

A client that expects another broker or another cluster is told to bootstrap again (KIP-1242): the
address that it used belongs to a different broker now.
"""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.acls import acl_handlers
from tidemark_broker.kafka.apis.client_quotas import quota_admin_handlers
from tidemark_broker.kafka.apis.configs import config_admin_handlers
from tidemark_broker.kafka.apis.describe_producers import describe_producers_handler
from tidemark_broker.kafka.apis.describe_quorum import describe_quorum_handler
from tidemark_broker.kafka.apis.fetch import fetch_handler
from tidemark_broker.kafka.apis.group_admin import group_admin_handlers
from tidemark_broker.kafka.apis.group_membership import group_member_handlers
from tidemark_broker.kafka.apis.group_offsets import group_offset_handlers
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.apis.list_config_resources import list_config_resources_handler
from tidemark_broker.kafka.apis.logs import log_admin_handlers
from tidemark_broker.kafka.apis.metadata import cluster_handlers
from tidemark_broker.kafka.apis.offsets import list_offsets_handler, offset_for_leader_epoch_handler
from tidemark_broker.kafka.apis.produce import init_producer_id_handler, produce_handler
from tidemark_broker.kafka.apis.reassignments import partition_admin_handlers
from tidemark_broker.kafka.apis.sasl import sasl_handlers
from tidemark_broker.kafka.apis.topics import topic_admin_handlers
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.api_versions import (
    MAX_API_VERSIONS_VERSION,
    MeantNode,
    SupportedApi,
    decode_api_versions_request,
    encode_api_versions_response,
)
from tidemark_broker.kafka_wire.messages.frames import API_VERSIONS


def api_versions_handler(context: HandlerContext) -> ApiHandler:
    def handle(request: KafkaRequest) -> None:
        error = ErrorCode.NONE
        if 0 <= request.version <= MAX_API_VERSIONS_VERSION:
            meant = decode_api_versions_request(request.reader, request.version)
            error = _meant_error(context, meant)
        supported = tuple(context.handlers[key].supported for key in sorted(context.handlers))
        request.answer(encode_api_versions_response(request.header, supported, error))

    return ApiHandler(SupportedApi(API_VERSIONS, 0, MAX_API_VERSIONS_VERSION), handle)


def _meant_error(context: HandlerContext, meant: MeantNode) -> ErrorCode:
    if meant.is_half:
        return ErrorCode.INVALID_REQUEST
    if meant.cluster_id is None or not context.cluster_id():  # before the first registration
        return ErrorCode.NONE
    local = MeantNode(context.cluster_id(), context.partitions.broker_id)
    return ErrorCode.NONE if meant == local else ErrorCode.REBOOTSTRAP_REQUIRED


def add_handlers(context: HandlerContext) -> None:
    context.add(
        produce_handler(context),
        fetch_handler(context),
        list_offsets_handler(context),
        api_versions_handler(context),
        init_producer_id_handler(context),
        offset_for_leader_epoch_handler(context),
        describe_producers_handler(context),
        list_config_resources_handler(context),
        describe_quorum_handler(context),
        *sasl_handlers(context),
        *cluster_handlers(context),
        *topic_admin_handlers(context),
        *config_admin_handlers(context),
        *partition_admin_handlers(context),
        *log_admin_handlers(context),
        *quota_admin_handlers(context),
        *acl_handlers(context),
        *group_member_handlers(context.groups, context.answering, context.new_uuid),
        *group_offset_handlers(context.groups, context.answering, context.partitions.metadata),
        *group_admin_handlers(context.groups, context.answering, context.partitions.metadata),
    )
