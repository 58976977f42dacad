"""Values of topic configs: which are taken, how they are spelled, and what a fault says.

Against Kafka's classes: tests/unit/operator/topic_admin/test_topic_configs_against_kafka.py.
"""

import pytest
from tidemark_protocol.topic_configs import (
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    FLUSH_MS,
    KNOWN_CONFIGS,
    KNOWN_NAMES,
    MESSAGE_TIMESTAMP_TYPE,
    MIN_CLEANABLE_DIRTY_RATIO,
    NO_LIMIT_MS,
    PREALLOCATE,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_JITTER_MS,
    UNCLEAN_LEADER_ELECTION,
    TopicConfig,
    canonical_value,
    integer_of,
    ratio_of,
    text_of,
)

CASES: list[tuple[TopicConfig, str, str | None]] = [
    (SEGMENT_BYTES, " +016384\t", "16384"),
    (SEGMENT_BYTES, "16383", None),
    (SEGMENT_BYTES, str(2**31 - 1), str(2**31 - 1)),
    (SEGMENT_BYTES, str(2**31), None),
    (SEGMENT_BYTES, "-1", None),
    (SEGMENT_BYTES, "1e5", None),
    (SEGMENT_BYTES, "", None),
    (SEGMENT_BYTES, "\u00a016384", None),  # Java's trim keeps it
    (RETENTION_MS, "-1", "-1"),
    (RETENTION_MS, "-0", "0"),
    (RETENTION_MS, "-2", None),
    (RETENTION_MS, str(NO_LIMIT_MS), str(NO_LIMIT_MS)),
    (RETENTION_MS, str(NO_LIMIT_MS + 1), None),
    (RETENTION_MS, "9" * 65, None),
    (MIN_CLEANABLE_DIRTY_RATIO, " .5d", "0.5"),
    (MIN_CLEANABLE_DIRTY_RATIO, "1e0", "1.0"),
    (MIN_CLEANABLE_DIRTY_RATIO, "-0", "0.0"),
    (MIN_CLEANABLE_DIRTY_RATIO, "1.0001", None),
    (MIN_CLEANABLE_DIRTY_RATIO, "-0.1", None),
    (MIN_CLEANABLE_DIRTY_RATIO, "NaN", None),
    (MIN_CLEANABLE_DIRTY_RATIO, "0." + "0" * 63, None),
    (MESSAGE_TIMESTAMP_TYPE, " LogAppendTime ", "LogAppendTime"),
    (MESSAGE_TIMESTAMP_TYPE, "logappendtime", None),
    (UNCLEAN_LEADER_ELECTION, "TRUE ", "true"),
    (UNCLEAN_LEADER_ELECTION, "yes", None),
    (CLEANUP_POLICY, "compact , delete,compact", "compact,delete"),
    (CLEANUP_POLICY, "", ""),
    (CLEANUP_POLICY, "delete,", None),
    (CLEANUP_POLICY, "Delete", None),
    (COMPRESSION_TYPE, " producer", "producer"),
    (COMPRESSION_TYPE, "gzip", None),
    (PREALLOCATE, "False", "false"),
    (PREALLOCATE, "true", None),
    (SEGMENT_JITTER_MS, "-00", "0"),
    (SEGMENT_JITTER_MS, "1", None),
    (FLUSH_MS, f"+0{NO_LIMIT_MS}", str(NO_LIMIT_MS)),
]


@pytest.mark.parametrize(("known", "value", "spelled"), CASES)
def test_value_has_one_spelling_or_a_fault(
    known: TopicConfig, value: str, spelled: str | None
) -> None:
    assert known.canonical(value) == spelled
    fault = known.fault(value)
    if spelled is None:
        assert fault is not None and fault.startswith(f"{known.name} ")
    else:
        assert fault is None


@pytest.mark.parametrize(
    ("known", "value", "sentence"),
    [
        (SEGMENT_BYTES, "0", "segment.bytes must be an integer from 16384 to 2147483647"),
        (
            RETENTION_MS,
            "-2",
            f"retention.ms must be an integer from -1 to {NO_LIMIT_MS} (-1: no limit)",
        ),
        (
            MIN_CLEANABLE_DIRTY_RATIO,
            "2",
            "min.cleanable.dirty.ratio must be a decimal number from 0 to 1, such as 0.5",
        ),
        (
            MESSAGE_TIMESTAMP_TYPE,
            "x",
            "message.timestamp.type must be one of: CreateTime | LogAppendTime",
        ),
        (
            UNCLEAN_LEADER_ELECTION,
            "x",
            "unclean.leader.election.enable must be one of: true | false",
        ),
        (CLEANUP_POLICY, "x", "cleanup.policy must be a list of: delete | compact"),
        (
            PREALLOCATE,
            "true",
            'preallocate can only be "false": segments are not preallocated; remove this config',
        ),
    ],
)
def test_fault_says_what_is_allowed(known: TopicConfig, value: str, sentence: str) -> None:
    assert known.fault(value) == sentence


def test_each_config_takes_its_default_as_it_is_spelled() -> None:
    for known in KNOWN_CONFIGS:
        assert known.canonical(known.default_text) == known.default_text
    assert len(set(KNOWN_NAMES)) == len(KNOWN_CONFIGS)


def test_stored_value_is_the_spelling_and_rejected_ones_stay_for_the_fault() -> None:
    assert canonical_value("retention.ms", " +7") == "7"
    assert canonical_value("retention.ms", " x") == " x"
    assert canonical_value("cleanup.policy", " ") == ""
    assert canonical_value("unknown", " 7") == " 7"


def test_effective_value_is_the_default_where_none_or_an_unusable_one_is_set() -> None:
    assert integer_of(RETENTION_MS, {"retention.ms": "+5"}) == 5
    assert integer_of(RETENTION_MS, {}) == 604_800_000
    assert integer_of(RETENTION_MS, {"retention.ms": "soon"}) == 604_800_000
    assert ratio_of(MIN_CLEANABLE_DIRTY_RATIO, {"min.cleanable.dirty.ratio": "1"}) == 1.0
    assert ratio_of(MIN_CLEANABLE_DIRTY_RATIO, {"min.cleanable.dirty.ratio": "2"}) == 0.5
    assert text_of(CLEANUP_POLICY, {"cleanup.policy": ""}) == ""
