"""Every topic config of Kafka works, or is refused with what to do instead: none is ignored."""

from collections.abc import Callable

import pytest
from tidemark_broker.kafka.apis.described_configs import topic_configs
from tidemark_broker.log.log_config import LogSettings, settings_of_topic
from tidemark_operator.api.config_checks import config_faults, effective_config
from tidemark_operator.controller.core.partition_change import effective_min_insync
from tidemark_operator.controller.core.unclean_recovery import allows_unclean_election
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import TopicState
from tidemark_protocol.topic_configs import KNOWN_CONFIGS, FixedConfig

from tests.unit.operator.topic_admin.configured_replica import replica_lag_max_ms

# Kafka 4.4's topic configs (LogConfig), but internal ones and those of tiered storage alone.
KAFKA = {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "errors.deadletterqueue.group.enable",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.decompressed.message.bytes",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}

# By name: a value other than the default, and what of the running system it changes.
WORKING: dict[str, tuple[str, Callable[[TopicState], object]]] = {
    "cleanup.policy": ("compact", lambda topic: (log(topic).compacts, log(topic).deletes)),
    "delete.retention.ms": ("1", lambda topic: log(topic).delete_retention_ms),
    "index.interval.bytes": ("100", lambda topic: log(topic).index_interval_bytes),
    "max.compaction.lag.ms": ("7000", lambda topic: log(topic).max_compaction_lag_ms),
    "max.message.bytes": ("2000", lambda topic: log(topic).max_batch_bytes),
    "message.timestamp.after.max.ms": ("5", lambda topic: log(topic).timestamp_after_max_ms),
    "message.timestamp.before.max.ms": ("5", lambda topic: log(topic).timestamp_before_max_ms),
    "message.timestamp.type": ("LogAppendTime", lambda topic: log(topic).stamps_append_time),
    "min.cleanable.dirty.ratio": ("0.1", lambda topic: log(topic).min_cleanable_dirty_ratio),
    "min.compaction.lag.ms": ("9", lambda topic: log(topic).min_compaction_lag_ms),
    "min.insync.replicas": ("1", effective_min_insync),
    "producer.id.expiration.ms": ("2000", lambda topic: log(topic).producer_expiration_ms),
    "replica.lag.time.max.ms": ("500", replica_lag_max_ms),
    "retention.bytes": ("1000000", lambda topic: log(topic).retention_bytes),
    "retention.ms": ("1000", lambda topic: log(topic).retention_ms),
    "segment.bytes": ("20000", lambda topic: log(topic).segment_bytes),
    "segment.ms": ("1000", lambda topic: log(topic).segment_ms),
    "unclean.leader.election.enable": ("true", allows_unclean_election),
}


def log(topic: TopicState) -> LogSettings:
    return settings_of_topic(topic.config)


def topic_with(config: dict[str, str]) -> TopicState:
    """As brokers and controller get it from the operator."""
    effective = effective_config(config, 3)
    return TopicState("t", TopicId("1"), 1, 3, config=effective)


@pytest.mark.parametrize("name", sorted(WORKING))
def test_a_config_that_is_taken_changes_what_the_system_does(name: str) -> None:
    value, effect = WORKING[name]
    assert tuple(config_faults({name: value}, 3)) == ()
    assert effect(topic_with({name: value})) != effect(topic_with({}))


def test_every_known_config_either_works_or_has_one_value() -> None:
    fixed = {known.name for known in KNOWN_CONFIGS if isinstance(known, FixedConfig)}
    assert fixed | WORKING.keys() == {known.name for known in KNOWN_CONFIGS}
    assert not fixed & WORKING.keys()


@pytest.mark.parametrize("name", sorted(KAFKA - WORKING.keys()))
def test_what_does_not_work_is_refused_in_a_sentence_that_helps(name: str) -> None:
    (sentence,) = config_faults({name: "12345"}, 3)
    fixed = {known.name: known for known in KNOWN_CONFIGS if isinstance(known, FixedConfig)}
    if name in fixed:
        assert fixed[name].reason in sentence and name in sentence
        assert tuple(config_faults({name: fixed[name].only_value}, 3)) == ()
    else:
        assert f'unknown config "{name}"' in sentence and "known names are" in sentence


def test_every_known_config_is_described_with_words_and_a_type() -> None:
    described = {each["name"]: each for each in topic_configs(topic_with({"retention.ms": "5"}))}
    assert described.keys() == {known.name for known in KNOWN_CONFIGS}
    assert all(each["documentation"] and each["config_type"] for each in described.values())
    assert (described["retention.ms"]["value"], described["retention.ms"]["source"]) == ("5", 1)
    assert described["segment.ms"]["source"] == 5
    assert [each["value"] for each in described["retention.ms"]["synonyms"]] == ["5", "604800000"]
