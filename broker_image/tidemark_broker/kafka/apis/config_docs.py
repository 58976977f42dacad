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


TOPIC_CONFIG_WORDS = {
    "cleanup.policy": ConfigDoc(
        "What becomes of old records: deleted by age and size, compacted by key, or both.",
        "log.cleanup.policy",
    ),
    "compression.type": ConfigDoc(
        "Batches stay as their producers compressed them.", "compression.type"
    ),
    "delete.retention.ms": ConfigDoc(
        "How long a tombstone can be seen in a compacted topic.", "log.cleaner.delete.retention.ms"
    ),
    "file.delete.delay.ms": ConfigDoc(
        "How long the files of a deleted replica are kept.", "log.segment.delete.delay.ms"
    ),
    "flush.messages": ConfigDoc(
        "No record waits for the disk but by spec.flush of the Topic.",
        "log.flush.interval.messages",
    ),
    "flush.ms": ConfigDoc(
        "No record waits for the disk but by spec.flush of the Topic.", "log.flush.interval.ms"
    ),
    "follower.replication.throttled.replicas": ConfigDoc(
        "Replicas that are added are slowed down by moveBytesPerSecond of their BrokerPool."
    ),
    "index.interval.bytes": ConfigDoc(
        "Bytes of log between two entries of an index.", "log.index.interval.bytes"
    ),
    "leader.replication.throttled.replicas": ConfigDoc(
        "Replicas that are added are slowed down by moveBytesPerSecond of their BrokerPool."
    ),
    "max.compaction.lag.ms": ConfigDoc(
        "How old a record may become before it is compacted, however little else is due.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    "max.message.bytes": ConfigDoc(
        "The largest batch that a producer may send.", "message.max.bytes"
    ),
    "message.timestamp.after.max.ms": ConfigDoc(
        "How far ahead of the broker's clock a record may be dated.",
        "log.message.timestamp.after.max.ms",
    ),
    "message.timestamp.before.max.ms": ConfigDoc(
        "How far behind the broker's clock a record may be dated.",
        "log.message.timestamp.before.max.ms",
    ),
    "message.timestamp.type": ConfigDoc(
        "Whether a record keeps its producer's time or gets that of its append.",
        "log.message.timestamp.type",
    ),
    "min.cleanable.dirty.ratio": ConfigDoc(
        "The share of a log that was never compacted from which on it is.",
        "log.cleaner.min.cleanable.ratio",
    ),
    "min.compaction.lag.ms": ConfigDoc(
        "How old a record must be before it is compacted.", "log.cleaner.min.compaction.lag.ms"
    ),
    "min.insync.replicas": ConfigDoc(
        "How many replicas must have a record before it is acknowledged with acks=all.",
        "min.insync.replicas",
    ),
    "preallocate": ConfigDoc("Segments grow as they are written.", "log.preallocate"),
    "producer.id.expiration.ms": ConfigDoc(
        "After how much quiet the sequences of an idempotent producer are forgotten.",
        "producer.id.expiration.ms",
    ),
    "remote.storage.enable": ConfigDoc("Nothing is tiered."),
    "replica.lag.time.max.ms": ConfigDoc(
        "How long a follower may lag before it leaves the in-sync replicas.",
        "replica.lag.time.max.ms",
    ),
    "retention.bytes": ConfigDoc(
        "How large a partition may become before its oldest segments go; -1: no limit.",
        "log.retention.bytes",
    ),
    "retention.ms": ConfigDoc(
        "How old a segment's newest record may become before the segment goes; -1: no limit.",
        "log.retention.ms",
    ),
    "segment.bytes": ConfigDoc("How large a segment becomes.", "log.segment.bytes"),
    "segment.index.bytes": ConfigDoc(
        "Indexes grow with their segments.", "log.index.size.max.bytes"
    ),
    "segment.jitter.ms": ConfigDoc(
        "Segments are begun by their own records' times.", "log.roll.jitter.ms"
    ),
    "segment.ms": ConfigDoc("For how long one segment is written.", "log.roll.ms"),
    "unclean.leader.election.enable": ConfigDoc(
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
