"""Faults of a topic's config, its effective values, and the nearest known name of a wrong one."""

import pytest
from tidemark_operator.api.config_checks import config_faults, effective_config, nearest_name
from tidemark_protocol.topic_configs import KNOWN_CONFIGS, FixedConfig


def test_an_empty_config_has_no_fault() -> None:
    assert list(config_faults({}, 1)) == []


def test_faults_come_in_the_order_of_the_names_and_those_of_two_configs_last() -> None:
    config = {
        "segment.bytes": "1",
        "min.compaction.lag.ms": "2",
        "max.compaction.lag.ms": "1",
        "cleanup.polic": "compact",
    }
    starts = ["unknown config", "segment.bytes must be", "min.compaction.lag.ms is greater"]
    faults = list(config_faults(config, 3))
    assert len(faults) == len(starts)
    assert all(fault.startswith(start) for fault, start in zip(faults, starts, strict=True))


@pytest.mark.parametrize(("replication_factor", "count"), [(1, 1), (2, 0), (3, 0)])
def test_min_isr_may_equal_the_replication_factor(replication_factor: int, count: int) -> None:
    assert len(list(config_faults({"min.insync.replicas": "2"}, replication_factor))) == count


def test_effective_values_are_those_given_and_the_default_of_each_other_config() -> None:
    free = {known.name for known in KNOWN_CONFIGS if not isinstance(known, FixedConfig)}
    found = effective_config({"retention.ms": " +5 "}, 3)
    assert found.keys() == free
    assert found["retention.ms"] == "5"
    assert found["min.insync.replicas"] == "2"
    assert effective_config({"unknown": "1"}, 1) == effective_config({}, 1)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("retention.ms", "retention.ms"),
        ("retentionMs", "retention.ms"),
        ("RETENTION_MS", "retention.ms"),
        ("min-insync replicas", "min.insync.replicas"),
        ("min.isr", "min.insync.replicas"),
        ("cleanup.polisy", "cleanup.policy"),
        ("", ""),
        ("x" * 5000, ""),
    ],
)
def test_the_nearest_name_goes_by_edits_and_not_by_case_or_separators(
    name: str, nearest: str
) -> None:
    assert nearest_name(name) == nearest
