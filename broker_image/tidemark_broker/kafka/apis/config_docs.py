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
class ConfigWords:
    documentation: str
    broker_name: str = ""  # of the broker's default; "": there is none by another name


TOPIC_CONFIG_WORDS = {
    "cleanup.policy": ConfigWords(
        "What becomes of old records: deleted by age and size, compacted by key, or both.",
        "log.cleanup.policy",
    ),
    "compression.type": ConfigWords(
        "Batches stay as their producers compressed them.", "compression.type"
    ),
    "delete.retention.ms": ConfigWords(
        "How long a tombstone can be seen in a compacted topic.", "log.cleaner.delete.retention.ms"
    ),
    "file.delete.delay.ms": ConfigWords(
        "How long the files of a deleted replica are kept.", "log.segment.delete.delay.ms"
    ),
    "flush.messages": ConfigWords(
        "No record waits for the disk but by spec.flush of the Topic.",
        "log.flush.interval.messages",
    ),
    "flush.ms": ConfigWords(
        "No record waits for the disk but by spec.flush of the Topic.", "log.flush.interval.ms"
    ),
    "follower.replication.throttled.replicas": ConfigWords(
        "Replicas that are added are slowed down by moveBytesPerSecond of their BrokerPool."
    ),
    "index.interval.bytes": ConfigWords(
        "Bytes of log between two entries of an index.", "log.index.interval.bytes"
    ),
    "leader.replication.throttled.replicas": ConfigWords(
        "Replicas that are added are slowed down by moveBytesPerSecond of their BrokerPool."
    ),
    "max.compaction.lag.ms": ConfigWords(
        "How old a record may become before it is compacted, however little else is due.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    "max.message.bytes": ConfigWords(
        "The largest batch that a producer may send.", "message.max.bytes"
    ),
    "message.timestamp.after.max.ms": ConfigWords(
        "How far ahead of the broker's clock a record may be dated.",
        "log.message.timestamp.after.max.ms",
    ),
    "message.timestamp.before.max.ms": ConfigWords(
        "How far behind the broker's clock a record may be dated.",
        "log.message.timestamp.before.max.ms",
    ),
    "message.timestamp.type": ConfigWords(
        "Whether a record keeps its producer's time or gets that of its append.",
        "log.message.timestamp.type",
    ),
    "min.cleanable.dirty.ratio": ConfigWords(
        "The share of a log that was never compacted from which on it is.",
        "log.cleaner.min.cleanable.ratio",
    ),
    "min.compaction.lag.ms": ConfigWords(
        "How old a record must be before it is compacted.", "log.cleaner.min.compaction.lag.ms"
    ),
    "min.insync.replicas": ConfigWords(
        "How many replicas must have a record before it is acknowledged with acks=all.",
        "min.insync.replicas",
    ),
    "preallocate": ConfigWords("Segments grow as they are written.", "log.preallocate"),
    "producer.id.expiration.ms": ConfigWords(
        "After how much quiet the sequences of an idempotent producer are forgotten.",
        "producer.id.expiration.ms",
    ),
    "remote.storage.enable": ConfigWords("Nothing is tiered."),
    "replica.lag.time.max.ms": ConfigWords(
        "How long a follower may lag before it leaves the in-sync replicas.",
        "replica.lag.time.max.ms",
    ),
    "retention.bytes": ConfigWords(
        "How large a partition may become before its oldest segments go; -1: no limit.",
        "log.retention.bytes",
    ),
    "retention.ms": ConfigWords(
        "How old a segment's newest record may become before the segment goes; -1: no limit.",
        "log.retention.ms",
    ),
    "segment.bytes": ConfigWords("How large a segment becomes.", "log.segment.bytes"),
    "segment.index.bytes": ConfigWords(
        "Indexes grow with their segments.", "log.index.size.max.bytes"
    ),
    "segment.jitter.ms": ConfigWords(
        "Segments are begun by their own records' times.", "log.roll.jitter.ms"
    ),
    "segment.ms": ConfigWords("For how long one segment is written.", "log.roll.ms"),
    "unclean.leader.election.enable": ConfigWords(
        "Whether the longest log of the live replicas may lead although it may lack records.",
        "unclean.leader.election.enable",
    ),
}
assert TOPIC_CONFIG_WORDS.keys() == {known.name for known in KNOWN_CONFIGS}

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
