"""Describe a topic's configs for DescribeConfigs and CreateTopics.

Brokers know the effective values, not where they were set: a value that differs from the default is
described as set for the topic, and the default as default, also if a manifest repeats it.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum

from tidemark_protocol.partition_state import TopicState
from tidemark_protocol.topic_configs import KNOWN_CONFIGS, MIN_INSYNC_REPLICAS, TopicConfig

from tidemark_broker.kafka.apis.config_descriptions import TOPIC_CONFIG_DOCS, type_of
from tidemark_broker.kafka_wire.messages.schema import Values


class ConfigSource(IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


def topic_configs(topic: TopicState) -> tuple[Values, ...]:
    """Return all configs of a topic, with sources, synonyms and documentation."""
    return tuple(_described(topic, known) for known in KNOWN_CONFIGS)


def _described(topic: TopicState, known: TopicConfig) -> Values:
    default = default_of(known, topic.replication_factor)
    value = topic.config.get(known.name, default)
    source = ConfigSource.DEFAULT if value == default else ConfigSource.TOPIC
    return {
        "name": known.name,
        "value": value,
        "is_read_only": False,
        "source": source,
        "synonyms": tuple(_synonyms(known.name, value, source, default)),
        "config_type": type_of(known),
        "documentation": TOPIC_CONFIG_DOCS[known.name].documentation,
    }


def _synonyms(name: str, value: str, source: ConfigSource, default: str) -> Iterator[Values]:
    """Yield the sources of a value; the first one applies (KIP-226)."""
    if source is ConfigSource.TOPIC:
        yield {"name": name, "value": value, "source": source}
    broker_name = TOPIC_CONFIG_DOCS[name].broker_name
    if broker_name:
        yield {"name": broker_name, "value": default, "source": ConfigSource.DEFAULT}


def default_of(known: TopicConfig, replication_factor: int) -> str:
    """Return the default that the operator sets."""
    if known.name == MIN_INSYNC_REPLICAS:
        return str(min(2, replication_factor))
    return known.default_text


def created_config(
    effective: Mapping[str, str], set_by_user: Mapping[str, str]
) -> tuple[Values, ...]:
    """Return the configs of a topic that was just created (KIP-525)."""
    return tuple(
        {
            "name": name,
            "value": effective[name],
            "source": ConfigSource.TOPIC if name in set_by_user else ConfigSource.DEFAULT,
        }
        for name in sorted(effective)
    )
