"""Describe each topic config for DescribeConfigs: type, Kafka's broker default, and a sentence."""

from dataclasses import dataclass
from enum import IntEnum

from tidemark_protocol.topic_configs import (
    KNOWN_CONFIGS,
    ChoiceConfig,
    IntegerConfig,
    RatioConfig,
    TopicConfig,
)


class ConfigType(IntEnum):
    """The types of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ResourceType(IntEnum):
    """The resource types, Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigDoc:
    documentation: str
    broker_name: str = ""  # of the broker's default; "": there is none by another name


TOPIC_CONFIG_DOCS = {
    "cleanup.policy": ConfigDoc(
        "How old records are removed: deleted by age and size, compacted by key, or both.",
        "log.cleanup.policy",
    ),
    "compression.type": ConfigDoc(
        "Batches are stored as compressed by producers.", "compression.type"
    ),
    "delete.retention.ms": ConfigDoc(
        "How long a tombstone is kept in a compacted topic.", "log.cleaner.delete.retention.ms"
    ),
    "file.delete.delay.ms": ConfigDoc(
        "How long the files of a deleted replica are kept.", "log.segment.delete.delay.ms"
    ),
    "flush.messages": ConfigDoc(
        "Records are flushed before the acknowledgement only by spec.flush of the Topic.",
        "log.flush.interval.messages",
    ),
    "flush.ms": ConfigDoc(
        "Records are flushed before the acknowledgement only by spec.flush of the Topic.",
        "log.flush.interval.ms",
    ),
    "follower.replication.throttled.replicas": ConfigDoc(
        "Reassignments are limited by moveBytesPerSecond of the BrokerPool."
    ),
    "index.interval.bytes": ConfigDoc(
        "Bytes of log between two entries of an index.", "log.index.interval.bytes"
    ),
    "leader.replication.throttled.replicas": ConfigDoc(
        "Reassignments are limited by moveBytesPerSecond of the BrokerPool."
    ),
    "max.compaction.lag.ms": ConfigDoc(
        "Maximum age of a record that is not yet compacted.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    "max.message.bytes": ConfigDoc(
        "The largest batch that a producer may send.", "message.max.bytes"
    ),
    "message.timestamp.after.max.ms": ConfigDoc(
        "Maximum time of a record's timestamp after the broker's clock.",
        "log.message.timestamp.after.max.ms",
    ),
    "message.timestamp.before.max.ms": ConfigDoc(
        "Maximum time of a record's timestamp before the broker's clock.",
        "log.message.timestamp.before.max.ms",
    ),
    "message.timestamp.type": ConfigDoc(
        "Whether a record has the producer's timestamp or the time of its append.",
        "log.message.timestamp.type",
    ),
    "min.cleanable.dirty.ratio": ConfigDoc(
        "Minimum share of the log that is not compacted to start a compaction.",
        "log.cleaner.min.cleanable.ratio",
    ),
    "min.compaction.lag.ms": ConfigDoc(
        "Minimum age of a record before it is compacted.", "log.cleaner.min.compaction.lag.ms"
    ),
    "min.insync.replicas": ConfigDoc(
        "How many replicas must have a record before it is acknowledged with acks=all.",
        "min.insync.replicas",
    ),
    "preallocate": ConfigDoc("Segments are not preallocated.", "log.preallocate"),
    "producer.id.expiration.ms": ConfigDoc(
        "Time without records after which the sequences of an idempotent producer are removed.",
        "producer.id.expiration.ms",
    ),
    "remote.storage.enable": ConfigDoc("Tiered storage is not supported."),
    "replica.lag.time.max.ms": ConfigDoc(
        "How long a follower may lag before it leaves the in-sync replicas.",
        "replica.lag.time.max.ms",
    ),
    "retention.bytes": ConfigDoc(
        "Size of a partition above which its oldest segments are deleted; -1: no limit.",
        "log.retention.bytes",
    ),
    "retention.ms": ConfigDoc(
        "Age of a segment's newest record above which the segment is deleted; -1: no limit.",
        "log.retention.ms",
    ),
    "segment.bytes": ConfigDoc("Maximum size of a segment.", "log.segment.bytes"),
    "segment.index.bytes": ConfigDoc(
        "The size of an index follows from the size of its segment.", "log.index.size.max.bytes"
    ),
    "segment.jitter.ms": ConfigDoc(
        "Segments are rolled by the timestamps of their own records.", "log.roll.jitter.ms"
    ),
    "segment.ms": ConfigDoc("Time after which a new segment is started.", "log.roll.ms"),
    "unclean.leader.election.enable": ConfigDoc(
        "Whether the live replica with the longest log can be elected although it may lack"
        " committed records.",
        "unclean.leader.election.enable",
    ),
}
assert TOPIC_CONFIG_DOCS.keys() == {known.name for known in KNOWN_CONFIGS}

_LISTS = frozenset(
    {
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)
_INTS = frozenset({"segment.bytes", "segment.index.bytes", "max.message.bytes"})


def type_of(known: TopicConfig) -> ConfigType:
    if known.name in _LISTS:
        return ConfigType.LIST
    if known.default_text in ("true", "false"):
        return ConfigType.BOOLEAN
    match known:
        case RatioConfig():
            return ConfigType.DOUBLE
        case ChoiceConfig():
            return ConfigType.STRING
        case IntegerConfig(maximum=maximum):
            return ConfigType.INT if maximum < 2**31 else ConfigType.LONG
    if known.name in _INTS:
        return ConfigType.INT
    is_number = known.default_text.lstrip("-").isdigit()
    return ConfigType.LONG if is_number else ConfigType.STRING
