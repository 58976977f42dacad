"""Define the settings of a log: Kafka's topic configs as logs use them, and their defaults.

A changed config reaches an open log as a new value. What is already on disk stays as it is (an
index its interval, a segment its size) until it is rolled, deleted or compacted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tidemark_protocol import topic_configs
from tidemark_protocol.record_batch_writer import HEADER_BYTES

MAX_SEGMENT_BYTES = 2**31 - 1  # positions in an index are int32
NO_LIMIT = -1
NO_LIMIT_MS = topic_configs.NO_LIMIT_MS  # of a time that has no -1
RETAINED_SETTINGS = 256  # of as many different configs


@dataclass(frozen=True, slots=True)
class LogSettings:
    segment_bytes: int = 1024 * 1024 * 1024  # a segment is rolled before it grows past this
    segment_ms: int = 7 * 24 * 3600 * 1000  # by record timestamps, from the segment's first batch
    index_interval_bytes: int = 4096  # bytes of log between two index entries
    max_batch_bytes: int = 1_048_588  # what a producer may send; followers take what leaders have
    deletes: bool = True  # cleanup.policy has delete: by age and size
    compacts: bool = False  # cleanup.policy has compact: the last record of each key stays
    retention_ms: int = 7 * 24 * 3600 * 1000  # from a segment's newest timestamp; NO_LIMIT
    retention_bytes: int = NO_LIMIT  # of one partition, in whole segments
    min_cleanable_dirty_ratio: float = 0.5  # share of bytes never compacted that begins a pass
    min_compaction_lag_ms: int = 0  # younger records are not compacted
    max_compaction_lag_ms: int = NO_LIMIT_MS  # older ones are, however little else is dirty
    delete_retention_ms: int = 24 * 3600 * 1000  # how long a tombstone can be seen
    producer_expiration_ms: int = 24 * 3600 * 1000  # quiet for so long, sequences are forgotten
    stamps_append_time: bool = False  # message.timestamp.type=LogAppendTime
    timestamp_before_max_ms: int = NO_LIMIT_MS  # how far behind our clock a record may be dated
    timestamp_after_max_ms: int = 3600 * 1000  # and how far ahead
    allow_network_filesystem: bool = False  # for tests on odd machines; never with two brokers

    @property
    def opens_batches(self) -> bool:
        """Return whether records are decompressed and checked before they are appended."""
        return self.compacts or self.timestamp_before_max_ms != NO_LIMIT_MS

    def __post_init__(self) -> None:
        for name, least, most in (
            ("segment_bytes", HEADER_BYTES, MAX_SEGMENT_BYTES),
            ("segment_ms", 1, 2**63 - 1),
            ("index_interval_bytes", 0, MAX_SEGMENT_BYTES),
            ("max_batch_bytes", HEADER_BYTES, MAX_SEGMENT_BYTES),
            ("retention_ms", NO_LIMIT, 2**63 - 1),
            ("retention_bytes", NO_LIMIT, 2**63 - 1),
            ("min_cleanable_dirty_ratio", 0, 1),
            ("min_compaction_lag_ms", 0, 2**63 - 1),
            ("max_compaction_lag_ms", 1, NO_LIMIT_MS),
            ("timestamp_before_max_ms", 0, NO_LIMIT_MS),
            ("timestamp_after_max_ms", 0, NO_LIMIT_MS),
            ("delete_retention_ms", 0, 2**63 - 1),
            ("producer_expiration_ms", 1, 2**63 - 1),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}: expected {least} to {most}, found {value}")


def settings_of_topic(config: Mapping[str, str]) -> LogSettings:
    """Return the settings of a topic's config, with Kafka's names and values, and the defaults."""
    return _settings_of(tuple(config.items()))


@lru_cache(RETAINED_SETTINGS)
def _settings_of(items: tuple[tuple[str, str], ...]) -> LogSettings:
    """Return one shared value for all partitions of a topic, and for topics of the same config."""
    config = dict(items)

    def integer(known: topic_configs.IntegerConfig) -> int:
        return topic_configs.integer_of(known, config)

    policies = topic_configs.text_of(topic_configs.CLEANUP_POLICY, config).split(",")
    timestamp_type = topic_configs.text_of(topic_configs.MESSAGE_TIMESTAMP_TYPE, config)
    segment_ms = integer(topic_configs.SEGMENT_MS)
    max_compaction_lag_ms = integer(topic_configs.MAX_COMPACTION_LAG_MS)
    if "compact" in policies:  # what is in the active segment waits for its end
        segment_ms = min(segment_ms, max_compaction_lag_ms)
    return LogSettings(
        segment_bytes=integer(topic_configs.SEGMENT_BYTES),
        segment_ms=segment_ms,
        index_interval_bytes=integer(topic_configs.INDEX_INTERVAL_BYTES),
        max_batch_bytes=max(HEADER_BYTES, integer(topic_configs.MAX_MESSAGE_BYTES)),
        deletes="delete" in policies,
        compacts="compact" in policies,
        retention_ms=integer(topic_configs.RETENTION_MS),
        retention_bytes=integer(topic_configs.RETENTION_BYTES),
        min_cleanable_dirty_ratio=topic_configs.ratio_of(
            topic_configs.MIN_CLEANABLE_DIRTY_RATIO, config
        ),
        min_compaction_lag_ms=integer(topic_configs.MIN_COMPACTION_LAG_MS),
        max_compaction_lag_ms=max_compaction_lag_ms,
        delete_retention_ms=integer(topic_configs.DELETE_RETENTION_MS),
        producer_expiration_ms=integer(topic_configs.PRODUCER_ID_EXPIRATION_MS),
        stamps_append_time=timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=integer(topic_configs.MESSAGE_TIMESTAMP_BEFORE_MAX_MS),
        timestamp_after_max_ms=integer(topic_configs.MESSAGE_TIMESTAMP_AFTER_MAX_MS),
    )
