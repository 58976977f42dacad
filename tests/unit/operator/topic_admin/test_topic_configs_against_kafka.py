"""Which values of topic configs are taken, and how they are spelled, against Kafka's own classes.

hack/kafka/TopicConfigTable.java writes what Kafka 4.4 says to `kafka_topic_configs.jsonl`. What
differs here is named below, with the reason.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.config_checks import config_faults, effective_config
from tidemark_protocol.topic_configs import (
    KNOWN_CONFIGS,
    FixedConfig,
    IntegerConfig,
    RatioConfig,
    TopicConfig,
    canonical_value,
    integer_of,
)

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "kafka_topic_configs.jsonl").read_text().splitlines()
]
BY_NAME: dict[str, TopicConfig] = {known.name: known for known in KNOWN_CONFIGS}
VALUES = [(row["name"], row["value"], row["kafka"]) for row in ROWS if row.get("name") in BY_NAME]
OF_OURS = {"producer.id.expiration.ms", "replica.lag.time.max.ms"}  # of brokers, in Kafka


def _above(limit: int) -> Callable[[str], bool]:
    return lambda parsed: int(parsed) > limit


# By name: whether a value that Kafka takes (parsed by it) is refused here, and why.
TIGHTER: dict[str, tuple[Callable[[str], bool], str]] = {
    "index.interval.bytes": (_above(2**20), "a look-up would read as much on the broker's loop"),
    "max.message.bytes": (_above(8 * 2**20), "more does not fit a broker's pools of memory"),
    "min.insync.replicas": (_above(10), "more than replicas can be"),
    "min.cleanable.dirty.ratio": (lambda parsed: parsed == "NaN", "no ratio"),
    "retention.bytes": (lambda parsed: int(parsed) < -1, "no limit is written -1"),
    "follower.replication.throttled.replicas": (bool, "moveBytesPerSecond of the BrokerPool"),
    "leader.replication.throttled.replicas": (bool, "moveBytesPerSecond of the BrokerPool"),
}
HEXADECIMAL = "0x1p-1"  # of a ratio: nobody writes it
# And taken here although Kafka refuses it.
WIDER = {"segment.bytes": lambda value: 16_384 <= integer(value) < 2**20}


def integer(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        return -1


def expected_of(known: TopicConfig, value: str, kafka: str | None) -> str | None:
    """The spelling that is stored, None: refused."""
    if kafka is None:
        is_taken = known.name in WIDER and WIDER[known.name](value)
        return str(int(value)) if is_taken else None
    if isinstance(known, FixedConfig):
        return kafka if kafka == known.only_value else None
    if known.name in TIGHTER and TIGHTER[known.name][0](kafka):
        return None
    if isinstance(known, RatioConfig):
        return None if value == HEXADECIMAL else str(abs(float(kafka)))
    return ",".join(dict.fromkeys(kafka.split(",")))  # a list's words once, as its validator does


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - OF_OURS))
def test_values_are_taken_and_spelled_as_kafka_does(name: str) -> None:
    known = BY_NAME[name]
    rows = [(value, kafka) for row_name, value, kafka in VALUES if row_name == name]
    assert len(rows) >= 10
    expected = {value: expected_of(known, value, kafka) for value, kafka in rows}
    assert {value: known.canonical(value) for value in expected} == expected
    assert any(spelled is not None for spelled in expected.values())


def test_the_table_has_every_config_of_kafka_that_is_known_here() -> None:
    assert {name for name, _, _ in VALUES} == BY_NAME.keys() - OF_OURS


@pytest.mark.parametrize("name", sorted(OF_OURS))
def test_configs_that_kafka_has_for_brokers_are_spelled_in_the_same_way(name: str) -> None:
    known = BY_NAME[name]
    assert isinstance(known, IntegerConfig)
    low, high = known.minimum, known.maximum
    spellings = {f" +{low} ": str(low), f"00{high}\n": str(high), f"{low - 1}": None}
    assert {value: known.canonical(value) for value in spellings} == spellings


@pytest.mark.parametrize("row", [row for row in ROWS if "config" in row], ids=str)
def test_compaction_lags_that_contradict_each_other_are_refused_as_by_kafka(
    row: dict[str, Any],
) -> None:
    faults = list(config_faults(row["config"], 3))
    assert (faults == []) is row["takes"]
    assert all("min.compaction.lag.ms is greater than" in fault for fault in faults)


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("retention.ms", "9223372036854775807", "9223372036854775807"),
        ("retention.ms", " 86400000 ", "86400000"),
        ("unclean.leader.election.enable", "True", "true"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("min.insync.replicas", "+2", "2"),
        ("min.cleanable.dirty.ratio", "5e-1", "0.5"),
        ("flush.ms", " +9223372036854775807", "9223372036854775807"),
    ],
)
def test_manifests_may_have_any_spelling_and_brokers_get_one(
    name: str, value: str, stored: str
) -> None:
    assert list(config_faults({name: value}, 3)) == []
    assert canonical_value(name, value) == stored
    assert effective_config({name: value}, 3).get(name, stored) == stored


def test_a_number_of_very_many_digits_is_refused_at_once() -> None:
    retention = BY_NAME["retention.ms"]
    assert isinstance(retention, IntegerConfig)
    assert retention.fault("0" * 10_000 + "5") is not None
    assert integer_of(retention, {"retention.ms": "9" * 10_000}) == retention.default
