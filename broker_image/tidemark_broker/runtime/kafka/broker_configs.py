"""A broker's settings by Kafka's names, as far as they mean the same here. All are read-only over
Kafka: a BrokerPool says them, or a Topic, and who would change them is told which field it is."""

from collections.abc import Mapping, Sequence

from tidemark_protocol.topic_configs import KNOWN_CONFIGS

from tidemark_broker.runtime.kafka.config_words import TOPIC_CONFIG_WORDS
from tidemark_broker.runtime.kafka.limits import ListenerLimits
from tidemark_broker.runtime.settings import BrokerSettings

DEFAULT_REPLICATION_FACTOR = 3  # the operator's, where the pool has as many brokers
MOST_EXPLAINED = 5
GROUP_CONFIG_ERROR = (
    "groups have no configs of their own: spec.groups of the BrokerPool is for all of them, and"
    " session.timeout.ms is each client's"
)

POOL_FIELDS = {
    "advertised.listeners": "spec.listeners",
    "auto.create.topics.enable": "spec.autoCreateTopics",
    "broker.rack": "spec.rackKey",
    "follower.replication.throttled.rate": "spec.moveBytesPerSecond",
    "group.initial.rebalance.delay.ms": "spec.groups.initialRebalanceDelayMs",
    "leader.replication.throttled.rate": "spec.moveBytesPerSecond",
    "listeners": "spec.listeners",
    "num.partitions": "spec.defaultPartitions",
    "offsets.retention.minutes": "spec.groups.offsetsRetentionMinutes",
    "replica.alter.log.dirs.io.max.bytes.per.second": "spec.moveBytesPerSecond",
}
_TOPIC_CONFIGS = {
    words.broker_name: name for name, words in TOPIC_CONFIG_WORDS.items() if words.broker_name
}


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
        "group.initial.rebalance.delay.ms": str(settings.groups.initial_rebalance_delay_ms),
        "listeners": f"PLAINTEXT://{settings.listen_host}:{settings.kafka_port}",
        "log.dirs": str(settings.data_directory),
        "node.id": str(settings.broker_id),
        "num.partitions": str(settings.default_partitions),
        "offsets.retention.minutes": str(settings.groups.offsets_retention_ms // 60_000),
        "offsets.topic.num.partitions": str(settings.groups.offsets_partitions),
        "socket.request.max.bytes": str(limits.request_bytes),
    }


def broker_config_error(names: Sequence[str]) -> str:
    """Say of each config which field sets it."""
    more = f"; and {len(names) - MOST_EXPLAINED} more" if len(names) > MOST_EXPLAINED else ""
    return "; ".join(map(_explained, names[:MOST_EXPLAINED])) + more


def _explained(name: str) -> str:
    field = POOL_FIELDS.get(name)
    if field is not None:
        return f"{name}: set {field} of the BrokerPool"
    topic_config = _TOPIC_CONFIGS.get(name)
    if topic_config is not None:
        return f"{name}: set {topic_config} in spec.config of each Topic"
    return f"{name[:100]}: no field of the BrokerPool says it"
