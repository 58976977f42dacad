"""Define Kafka's topic configs that Tidemark knows, their defaults and allowed values.

The operator's checks, the CEL rules of crds/topics.yaml (a test compares them) and the brokers use
this one table. Names, meanings, defaults, spellings and ranges are Kafka's unless a comment says
why not (tests/unit/operator/topic_admin compares the table with Kafka's own classes). A config that
does not work is rejected, or accepted only with the value that is true: none is silently ignored.
`canonical` is the one spelling that is stored and returned, or None.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MIN_INSYNC_REPLICAS = "min.insync.replicas"
MAX_INT32 = 2**31 - 1
NO_LIMIT_MS = 2**63 - 1  # what Kafka says for "for ever" where -1 is not allowed

_JAVA_SPACE = "".join(map(chr, range(33)))  # what Java's String.trim takes away
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_INTEGER = re.compile(r"[+-]?\d{1,64}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_LONGEST_DECIMAL = 64


def _integer(value: str) -> int | None:
    """Parse an integer as Java's Long.parseLong after String.trim, or return None."""
    plain = value.strip(_JAVA_SPACE)
    return int(plain) if _INTEGER.fullmatch(plain) else None


@dataclass(frozen=True, slots=True)
class IntegerConfig:
    """A number; with `unlimited` -1 is allowed too and means no limit."""

    name: str
    minimum: int
    maximum: int
    default: int
    unlimited: bool = False

    @property
    def pattern(self) -> str:
        """Return the pattern of trimmed text that CEL converts to an integer."""
        return f"^[+-]?[0-9]{{1,{19 if self.maximum >= 10**18 else 18}}}$"

    @property
    def lowest(self) -> int:
        return -1 if self.unlimited else self.minimum

    @property
    def default_text(self) -> str:
        return str(self.default)

    def canonical(self, value: str) -> str | None:
        number = _integer(value)
        return str(number) if number is not None and self._takes(number) else None

    def _takes(self, number: int) -> bool:
        return self.lowest <= number <= self.maximum

    def fault(self, value: str) -> str | None:
        if self.canonical(value) is not None:
            return None
        no_limit = " (-1: no limit)" if self.unlimited else ""
        return f"{self.name} must be an integer from {self.lowest} to {self.maximum}{no_limit}"


@dataclass(frozen=True, slots=True)
class RatioConfig:
    name: str
    default: float

    pattern = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?$"

    @property
    def default_text(self) -> str:
        return str(self.default)

    def canonical(self, value: str) -> str | None:
        """Parse as Java's Double.parseDouble, except NaN and hexadecimal digits."""
        plain = value.strip(_JAVA_SPACE)
        if len(plain) > _LONGEST_DECIMAL or not _DECIMAL.fullmatch(plain):
            return None
        number = float(plain.rstrip("dDfF"))
        return str(abs(number)) if 0 <= number <= 1 else None

    def fault(self, value: str) -> str | None:
        if self.canonical(value) is not None:
            return None
        return f"{self.name} must be a decimal number from 0 to 1, such as {self.default}"


@dataclass(frozen=True, slots=True)
class ChoiceConfig:
    """One of a few words; the first is the default."""

    name: str
    choices: tuple[str, ...]

    @property
    def default_text(self) -> str:
        return self.choices[0]

    def canonical(self, value: str) -> str | None:
        plain = value.strip(_JAVA_SPACE)
        return plain if plain in self.choices else None

    def fault(self, value: str) -> str | None:
        if self.canonical(value) is not None:
            return None
        return f"{self.name} must be one of: {' | '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class BooleanConfig:
    name: str
    default: bool

    @property
    def default_text(self) -> str:
        return str(self.default).lower()

    def canonical(self, value: str) -> str | None:
        plain = value.strip(_JAVA_SPACE).lower()
        return plain if plain in ("true", "false") else None

    def fault(self, value: str) -> str | None:
        if self.canonical(value) is not None:
            return None
        return f"{self.name} must be one of: true | false"


@dataclass(frozen=True, slots=True)
class ListConfig:
    """Any of a few words, or none; `default_text` is one of them."""

    name: str
    members: tuple[str, ...]
    default_text: str

    @property
    def pattern(self) -> str:
        """Return the pattern that CEL matches with trimmed text."""
        word = f"({'|'.join(self.members)})"
        return f"^({word}([ \\t]*,[ \\t]*{word})*)?$"

    def canonical(self, value: str) -> str | None:
        """Return each word once, as Kafka removes duplicates."""
        plain = value.strip(_JAVA_SPACE)
        words = dict.fromkeys(_COMMA.split(plain) if plain else ())
        return ",".join(words) if words.keys() <= set(self.members) else None

    def fault(self, value: str) -> str | None:
        if self.canonical(value) is not None:
            return None
        return f"{self.name} must be a list of: {' | '.join(self.members)}"


@dataclass(frozen=True, slots=True)
class FixedConfig:
    """A config that is accepted only with the one value that is true of Tidemark today."""

    name: str
    only_value: str
    reason: str

    @property
    def default_text(self) -> str:
        return self.only_value

    @property
    def is_number(self) -> bool:
        return self.only_value.isdecimal()

    @property
    def is_boolean(self) -> bool:
        return self.only_value in ("true", "false")

    @property
    def pattern(self) -> str:
        """Return the pattern of a number that CEL matches with trimmed text."""
        return "^[+-]?0+$" if self.only_value == "0" else f"^[+]?0*{self.only_value}$"

    def canonical(self, value: str) -> str | None:
        plain = value.strip(_JAVA_SPACE)
        if self.is_boolean:
            plain = plain.lower()
        elif self.is_number and (number := _integer(plain)) is not None:
            plain = str(number)
        return plain if plain == self.only_value else None

    def fault(self, value: str) -> str | None:
        if self.canonical(value) is not None:
            return None
        return f'{self.name} can only be "{self.only_value}": {self.reason}'


TopicConfig = IntegerConfig | RatioConfig | ChoiceConfig | BooleanConfig | ListConfig | FixedConfig

# Empty: segments neither go nor are compacted (KIP-1161).
CLEANUP_POLICY = ListConfig("cleanup.policy", ("delete", "compact"), "delete")
COMPRESSION_TYPE = FixedConfig(
    "compression.type",
    "producer",
    "brokers store batches as compressed by producers; set compression.type in the producer",
)
DELETE_RETENTION_MS = IntegerConfig("delete.retention.ms", 0, NO_LIMIT_MS, 86_400_000)
FILE_DELETE_DELAY_MS = FixedConfig(
    "file.delete.delay.ms",
    "60000",
    "files of deleted replicas are kept for one minute; remove this config",
)
_FLUSH = "use spec.flush Always of the Topic to write records to disk before they are acknowledged"
FLUSH_MESSAGES = FixedConfig("flush.messages", str(NO_LIMIT_MS), _FLUSH)
FLUSH_MS = FixedConfig("flush.ms", str(NO_LIMIT_MS), _FLUSH)
_THROTTLE = "use moveBytesPerSecond of the BrokerPool to limit reassignments"
FOLLOWER_THROTTLED = FixedConfig("follower.replication.throttled.replicas", "", _THROTTLE)
LEADER_THROTTLED = FixedConfig("leader.replication.throttled.replicas", "", _THROTTLE)
# Kafka takes up to 2 GiB: a look-up would read as much, on the broker's loop.
INDEX_INTERVAL_BYTES = IntegerConfig("index.interval.bytes", 0, 1024 * 1024, 4096)
MAX_COMPACTION_LAG_MS = IntegerConfig("max.compaction.lag.ms", 1, NO_LIMIT_MS, NO_LIMIT_MS)
# Kafka takes up to 2 GiB: more would not fit the pools of a broker's memory (docs/user/kafka.md).
MAX_MESSAGE_BYTES = IntegerConfig("max.message.bytes", 0, 8 * 1024 * 1024, 1_048_588)
# Kafka 4's default (KIP-1030): a record dated far ahead would keep its segment for as long.
MESSAGE_TIMESTAMP_AFTER_MAX_MS = IntegerConfig(
    "message.timestamp.after.max.ms", 0, NO_LIMIT_MS, 3_600_000
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = IntegerConfig(
    "message.timestamp.before.max.ms", 0, NO_LIMIT_MS, NO_LIMIT_MS
)
MESSAGE_TIMESTAMP_TYPE = ChoiceConfig("message.timestamp.type", ("CreateTime", "LogAppendTime"))
MIN_CLEANABLE_DIRTY_RATIO = RatioConfig("min.cleanable.dirty.ratio", 0.5)
MIN_COMPACTION_LAG_MS = IntegerConfig("min.compaction.lag.ms", 0, NO_LIMIT_MS, 0)
# Its default is min(2, replicationFactor): see the operator's effective_config.
MIN_INSYNC = IntegerConfig(MIN_INSYNC_REPLICAS, 1, 10, 2)
PREALLOCATE = FixedConfig(
    "preallocate", "false", "segments are not preallocated; remove this config"
)
# In Kafka a setting of the whole broker.
PRODUCER_ID_EXPIRATION_MS = IntegerConfig(
    "producer.id.expiration.ms", 1000, 2_592_000_000, 86_400_000
)
REMOTE_STORAGE = FixedConfig(
    "remote.storage.enable",
    "false",
    "tiered storage is not supported; limit the topic by retention.ms or retention.bytes",
)
# Kafka's default is 30000: ours notices a stuck follower sooner (docs/design/architecture.md).
REPLICA_LAG_TIME_MAX_MS = IntegerConfig("replica.lag.time.max.ms", 100, 3_600_000, 10_000)
# Kafka takes every negative number for no limit: only -1 is written so.
RETENTION_BYTES = IntegerConfig("retention.bytes", 0, 2**63 - 1, -1, unlimited=True)
RETENTION_MS = IntegerConfig("retention.ms", 0, NO_LIMIT_MS, 604_800_000, unlimited=True)
# Kafka 4 asks for 1 MiB at least; smaller ones cost files, not safety.
SEGMENT_BYTES = IntegerConfig("segment.bytes", 16_384, MAX_INT32, 1_073_741_824)
SEGMENT_INDEX_BYTES = FixedConfig(
    "segment.index.bytes",
    "10485760",
    "the size of an index follows from segment.bytes; set that config",
)
SEGMENT_JITTER_MS = FixedConfig(
    "segment.jitter.ms",
    "0",
    "segments are rolled by the timestamps of their own records; remove this config",
)
SEGMENT_MS = IntegerConfig("segment.ms", 1, NO_LIMIT_MS, 604_800_000)
# The longest log among the live then leads, never merely the first alive (Kafka's KIP-1275).
UNCLEAN_LEADER_ELECTION = BooleanConfig("unclean.leader.election.enable", default=False)

KNOWN_CONFIGS: tuple[TopicConfig, ...] = (
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    DELETE_RETENTION_MS,
    FILE_DELETE_DELAY_MS,
    FLUSH_MESSAGES,
    FLUSH_MS,
    FOLLOWER_THROTTLED,
    INDEX_INTERVAL_BYTES,
    LEADER_THROTTLED,
    MAX_COMPACTION_LAG_MS,
    MAX_MESSAGE_BYTES,
    MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    MESSAGE_TIMESTAMP_TYPE,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
    MIN_INSYNC,
    PREALLOCATE,
    PRODUCER_ID_EXPIRATION_MS,
    REMOTE_STORAGE,
    REPLICA_LAG_TIME_MAX_MS,
    RETENTION_BYTES,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_INDEX_BYTES,
    SEGMENT_JITTER_MS,
    SEGMENT_MS,
    UNCLEAN_LEADER_ELECTION,
)
KNOWN_NAMES = tuple(config.name for config in KNOWN_CONFIGS)


_BY_NAME = {config.name: config for config in KNOWN_CONFIGS}


def canonical_value(name: str, value: str) -> str:
    """Return the spelling that is stored, or `value` itself if the table rejects it."""
    known = _BY_NAME.get(name)
    spelled = None if known is None else known.canonical(value)
    return value if spelled is None else spelled


def text_of(known: TopicConfig, config: Mapping[str, str]) -> str:
    """Return the effective value; one that the table rejects (of another version) is not used."""
    spelled = known.canonical(config.get(known.name, known.default_text))
    return known.default_text if spelled is None else spelled


def integer_of(known: IntegerConfig, config: Mapping[str, str]) -> int:
    return int(text_of(known, config))


def ratio_of(known: RatioConfig, config: Mapping[str, str]) -> float:
    return float(text_of(known, config))
