"""Answer DescribeClientQuotas and AlterClientQuotas by the quotas of the BrokerPool.

Quotas are described as configured and never altered here, because the operator would restore them
from the BrokerPool. Quotas by user or address do not exist, so a filter for those matches none.
"""

from enum import IntEnum

from tidemark_protocol.controller_messages import ClientQuota
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.client_quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
)
from tidemark_broker.kafka_wire.messages.schema import Each, Values

CLIENT_ID = "client-id"
ENTITY_TYPES = (CLIENT_ID, "user", "ip")


class MatchType(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2  # all that were specified, the default too


def quota_admin_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    metadata = context.partitions.metadata

    def describe(request: KafkaRequest, requested: Values) -> Values:
        rejected = _malformed_filter(requested)
        if rejected:
            return {"error": ErrorCode.INVALID_REQUEST, "error_message": rejected}
        found = [quota for quota in metadata.quotas if _matches(quota, requested)]
        return {"error": ErrorCode.NONE, "entries": Each(found, _described)}

    def alter(request: KafkaRequest, requested: Values) -> Values:
        return {"entries": Each(requested["entries"], _rejected)}

    handler = context.answering.sync_handler
    return (
        handler(DESCRIBE_CLIENT_QUOTAS_API, describe),
        handler(ALTER_CLIENT_QUOTAS_API, alter),
    )


def _malformed_filter(requested: Values) -> str:
    types = [component["entity_type"] for component in requested["components"]]
    if len(set(types)) < len(types):
        return "each entity type can be requested once"
    for component in requested["components"]:
        if component["entity_type"] not in ENTITY_TYPES:
            return (
                f"expected one of {', '.join(ENTITY_TYPES)}, found {component['entity_type'][:50]}"
            )
        if component["match_type"] not in list(MatchType):
            return f"match type {component['match_type']}: expected 0 to {max(MatchType)}"
        if (component["match"] is None) is (component["match_type"] == MatchType.EXACT):
            return "an exact match needs a name, other matches need none"
    return ""


def _matches(quota: ClientQuota, requested: Values) -> bool:
    """Return whether each component matches; a strict filter names all parts of the entity."""
    components = requested["components"]
    if not components:
        return not requested["strict"]
    return len(components) == 1 and _matches_one(quota, components[0])


def _matches_one(quota: ClientQuota, component: Values) -> bool:
    if component["entity_type"] != CLIENT_ID:
        return False
    match component["match_type"]:
        case MatchType.EXACT:
            return quota.client_id != "" and quota.client_id == component["match"]
        case MatchType.DEFAULT:
            return quota.client_id == ""
    return True


def _described(quota: ClientQuota) -> Values:
    values = {
        "producer_byte_rate": quota.produce_bytes_per_second,
        "consumer_byte_rate": quota.fetch_bytes_per_second,
        "request_percentage": quota.request_percentage,
    }
    return {
        "entity": ({"entity_type": CLIENT_ID, "entity_name": quota.client_id or None},),
        "values": tuple(
            {"key": key, "value": float(value)}
            for key, value in values.items()
            if value is not None
        ),
    }


def _rejected(entry: Values) -> Values:
    return {
        "error": ErrorCode.POLICY_VIOLATION,
        "error_message": "quotas are set per client ID in spec.quotas of the BrokerPool",
        "entity": entry["entity"],
    }
