"""Describe and alter configs of topics, brokers and groups.

A topic's configs are those of its Topic object. A broker's settings come from its BrokerPool: they
are described, and a change is rejected with the field that sets them; deleting a setting that is
not set changes nothing (tools do it after a reassignment). Groups have no configs of their own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import (
    MAX_CHANGES,
    ConfigChange,
    ConfigOperation,
    TopicResult,
    TopicToAlter,
)

from tidemark_broker.kafka.apis.config_descriptions import ConfigType, ResourceType
from tidemark_broker.kafka.apis.described_configs import ConfigSource, topic_configs
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.apis.topics import by_topic, reported
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from tidemark_broker.kafka_wire.messages.schema import Each, Values
from tidemark_broker.metadata.topic_admin_client import Deadline
from tidemark_broker.server.config import GROUP_CONFIG_ERROR, broker_config_error

ALTER_TIMEOUT_MS = 30_000  # these requests carry none


def config_admin_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    admin = ConfigAdmin(context)
    return (
        context.answering.sync_handler(DESCRIBE_CONFIGS_API, admin.describe),
        context.answering.async_handler(INCREMENTAL_ALTER_CONFIGS_API, admin.alter),
        context.answering.async_handler(ALTER_CONFIGS_API, admin.replace),
    )


class ConfigAdmin:
    def __init__(self, context: HandlerContext) -> None:
        self._metadata = context.partitions.metadata
        self._changes = context.topic_admin
        self._broker_id = context.partitions.broker_id
        self._broker_configs: Mapping[str, str] = context.broker_configs

    # ---- describing

    def describe(self, request: KafkaRequest, requested: Values) -> Values:
        counts = _counted(requested["resources"])
        resources = list({_key(each): each for each in requested["resources"]}.values())

        def described(resource: Values) -> Values:
            if counts[_key(resource)] > 1:
                return _resource(resource) | reported(_named_twice(resource["resource"]))
            return self._described(resource, requested)

        return {"resources": Each(resources, described)}

    def _described(self, resource: Values, requested: Values) -> Values:
        response = _resource(resource) | {"error": ErrorCode.NONE}
        configs = self._configs(resource)
        if isinstance(configs, TopicResult):
            return response | reported(configs)
        names = frozenset(resource["names"] or ())  # none: all of them, as Kafka
        return response | {
            "configs": tuple(
                {
                    **config,
                    "synonyms": config["synonyms"] if requested["include_synonyms"] else (),
                    "documentation": (
                        config["documentation"] if requested["include_documentation"] else None
                    ),
                }
                for config in configs
                if not names or config["name"] in names
            )
        }

    def _configs(self, resource: Values) -> tuple[Values, ...] | TopicResult:
        name = resource["resource"]
        match resource["resource_type"]:
            case ResourceType.TOPIC:
                topic = self._metadata.served_topic(name)
                if topic is None:
                    return TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return topic_configs(topic)
            case ResourceType.BROKER if name == "":
                return ()  # what was set for all brokers at once: nothing ever is
            case ResourceType.BROKER if name == str(self._broker_id):
                return tuple(
                    _broker_config(key, value)
                    for key, value in sorted(self._broker_configs.items())
                )
            case ResourceType.BROKER:
                message = (
                    f"this is broker {self._broker_id}: send the request to broker {name[:20]}"
                )
                return TopicResult(name, ErrorCode.INVALID_REQUEST, message)
            case ResourceType.GROUP if name == "":
                return TopicResult(name, ErrorCode.INVALID_REQUEST, "expected the name of a group")
            case ResourceType.GROUP:
                return ()
        return _unknown_type(resource)

    # ---- altering

    async def alter(self, request: KafkaRequest, requested: Values) -> Values:
        """Answer IncrementalAlterConfigs (KIP-339)."""
        return await self._altered(requested, replaces_all=False)

    async def replace(self, request: KafkaRequest, requested: Values) -> Values:
        """Answer AlterConfigs: a config that is not named returns to its default."""
        return await self._altered(requested, replaces_all=True)

    async def _altered(self, requested: Values, *, replaces_all: bool) -> Values:
        resources = requested["resources"]
        counts = _counted(resources)
        results: dict[tuple[int, str], TopicResult] = {}
        topics: dict[str, TopicToAlter] = {}
        for each in resources:
            key = _key(each)
            rejected = self._rejection(each, is_twice=counts[key] > 1)
            if rejected is not None or each["resource_type"] != ResourceType.TOPIC:
                results[key] = rejected or TopicResult(each["resource"], ErrorCode.NONE)
            elif len(topics) < MAX_CHANGES:
                changes = tuple(map(_change, each["configs"]))
                topics[each["resource"]] = TopicToAlter(each["resource"], changes, replaces_all)
        if topics:
            response = await self._changes.alter_configs(
                tuple(topics.values()),
                Deadline(ALTER_TIMEOUT_MS),
                validate_only=requested["validate_only"],
            )
            for name, result in by_topic(response, list(topics)).items():
                results[ResourceType.TOPIC, name] = result
        return {
            "resources": tuple(
                {"resource_type": kind, "resource": name}
                | reported(results.get((kind, name), _too_many(name)))
                for kind, name in counts
            )
        }

    def _rejection(self, resource: Values, *, is_twice: bool) -> TopicResult | None:
        name = resource["resource"]
        if is_twice:
            return _named_twice(name)
        operations = {each.get("operation", ConfigOperation.SET) for each in resource["configs"]}
        match resource["resource_type"]:
            case ResourceType.TOPIC:
                return _malformed_changes(resource, operations)
            case ResourceType.BROKER | ResourceType.GROUP if operations <= {ConfigOperation.DELETE}:
                return None
            case ResourceType.BROKER:
                wanted = [each["name"] for each in resource["configs"]]
                return TopicResult(name, ErrorCode.INVALID_CONFIG, broker_config_error(wanted))
            case ResourceType.GROUP:
                return TopicResult(name, ErrorCode.INVALID_CONFIG, GROUP_CONFIG_ERROR)
        return _unknown_type(resource)


def _malformed_changes(resource: Values, operations: set[int]) -> TopicResult | None:
    name = resource["resource"]
    known = {operation.value for operation in ConfigOperation}
    if not operations <= known:
        message = f"expected operations 0 to 3, found {sorted(operations - known)}"
        return TopicResult(name, ErrorCode.INVALID_REQUEST, message)
    without_value = [
        each["name"]
        for each in resource["configs"]
        if each["value"] is None and each.get("operation") != ConfigOperation.DELETE
    ]
    if without_value:
        message = f"expected values of {', '.join(without_value[:5])}, found none"
        return TopicResult(name, ErrorCode.INVALID_CONFIG, message)
    return None


def _change(config: Values) -> ConfigChange:
    operation = ConfigOperation(config.get("operation", ConfigOperation.SET))
    return ConfigChange(config["name"], operation, config["value"] or "")


def _key(resource: Values) -> tuple[int, str]:
    return resource["resource_type"], resource["resource"]


def _counted(resources: Iterable[Values]) -> Counter[tuple[int, str]]:
    return Counter(map(_key, resources))


def _named_twice(name: str) -> TopicResult:
    return TopicResult(name, ErrorCode.INVALID_REQUEST, "it appears twice in the request")


def _too_many(name: str) -> TopicResult:
    message = f"expected at most {MAX_CHANGES} topics in a request"
    return TopicResult(name, ErrorCode.INVALID_REQUEST, message)


def _unknown_type(resource: Values) -> TopicResult:
    message = (
        f"resource type {resource['resource_type']}: expected {ResourceType.TOPIC} (topic),"
        f" {ResourceType.BROKER} (broker) or {ResourceType.GROUP} (group)"
    )
    return TopicResult(resource["resource"], ErrorCode.INVALID_REQUEST, message)


def _broker_config(name: str, value: str) -> Values:
    return {
        "name": name,
        "value": value,
        "is_read_only": True,
        "source": ConfigSource.STATIC_BROKER,
        "synonyms": ({"name": name, "value": value, "source": ConfigSource.STATIC_BROKER},),
        "config_type": ConfigType.STRING,
        "documentation": "A setting of the pool: fixed, or set in the BrokerPool.",
    }


def _resource(resource: Values) -> Values:
    return {"resource_type": resource["resource_type"], "resource": resource["resource"]}
