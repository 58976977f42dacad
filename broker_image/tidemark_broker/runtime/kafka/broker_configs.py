"""A broker's settings by Kafka's names, as far as they mean the same here. All are read-only."""

from collections.abc import Mapping

from tidemark_protocol.topic_configs import KNOWN_CONFIGS

from tidemark_broker.runtime.kafka.config_words import TOPIC_CONFIG_WORDS
from tidemark_broker.runtime.kafka.limits import ListenerLimits
from tidemark_broker.runtime.settings import BrokerSettings

DEFAULT_REPLICATION_FACTOR = 3  # the operator's, where the pool has as many brokers


def broker_configs(settings: BrokerSettings) -> Mapping[str, str]:
    defaults = {
        words.broker_name: known.default_text
        for known in KNOWN_CONFIGS
        if (words := TOPIC_CONFIG_WORDS[known.name]).broker_name
    }
    limits = ListenerLimits()
    port = settings.advertised_kafka_port or settings.kafka_port
    return defaults | {
        "advertised.listeners": f"PLAINTEXT://{settings.advertised_host}:{port}",
        "auto.create.topics.enable": str(settings.creates_topics).lower(),
        "connections.max.idle.ms": str(int(limits.idle_seconds * 1000)),
        "max.connections": str(limits.connections),
        "broker.id": str(settings.broker_id),
        "broker.rack": settings.rack,
        "default.replication.factor": str(DEFAULT_REPLICATION_FACTOR),
        "delete.topic.enable": "true",
        "listeners": f"PLAINTEXT://{settings.listen_host}:{settings.kafka_port}",
        "log.dirs": str(settings.data_directory),
        "node.id": str(settings.broker_id),
        "num.partitions": "1",
        "socket.request.max.bytes": str(limits.request_bytes),
    }
