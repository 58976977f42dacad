"""Answer ListConfigResources: the topics and brokers, which have configs.

A request without types asks for all. Groups, broker loggers and client metrics have no configs
here.
"""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.config_descriptions import ResourceType
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.list_config_resources import LIST_CONFIG_RESOURCES_API
from tidemark_broker.kafka_wire.messages.schema import Each, Values
from tidemark_broker.metadata.metadata_cache import MetadataCache


def list_config_resources_handler(context: HandlerContext) -> ApiHandler:
    metadata = context.partitions.metadata

    def respond(request: KafkaRequest, requested: Values) -> Values:
        kinds = frozenset(requested["resource_types"]) or frozenset(ResourceType)
        if not kinds <= frozenset(ResourceType):
            return {"error": ErrorCode.UNSUPPORTED_VERSION}
        found: list[tuple[str, ResourceType]] = []
        if ResourceType.BROKER in kinds:
            found += ((name, ResourceType.BROKER) for name in _live_brokers(metadata))
        if ResourceType.TOPIC in kinds:
            served = (name for name in sorted(metadata.topics) if metadata.served_topic(name))
            found += ((name, ResourceType.TOPIC) for name in served)
        return {"error": ErrorCode.NONE, "resources": Each(found, _resource)}

    return context.answering.sync_handler(LIST_CONFIG_RESOURCES_API, respond)


def _live_brokers(metadata: MetadataCache) -> list[str]:
    known = metadata.brokers.values()
    return [
        str(number) for number in sorted(each.broker_id for each in known if not each.is_fenced)
    ]


def _resource(found: tuple[str, ResourceType]) -> Values:
    name, kind = found
    return {"resource": name, "resource_type": kind}
