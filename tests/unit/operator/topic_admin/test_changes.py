"""What a Topic object becomes by a client's change, or why it is refused."""

import copy
from typing import Any

import pytest
from tidemark_operator.topic_admin.changes import (
    altered,
    deletion_error,
    grown,
    reassigned,
)
from tidemark_operator.topic_admin.field_managers import RequestRejected
from tidemark_operator.topic_admin.new_topics import MAX_PARTITIONS, MAX_PLACED, PoolPlacement
from tidemark_operator.topic_admin.room import Room
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_messages import (
    ConfigChange,
    ConfigOperation,
    TopicToAlter,
    TopicToExpand,
)

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


PLACES = PoolPlacement("shop/default", ids(0, 1, 2, 3))


def topic(**spec: Any) -> dict[str, Any]:
    known = {"partitions": 2, "replicationFactor": 2, "deletionPolicy": "Delete", "config": {}}
    return {"metadata": {"name": "orders"}, "spec": {**known, **spec}}


def ample() -> Room:
    return Room(1_000_000, 0)


def spec_after(found: Any) -> dict[str, Any]:
    assert not isinstance(found, RequestRejected), found.message
    spec: dict[str, Any] = found["spec"]
    return spec


def rejection(found: Any) -> tuple[ErrorCode, str]:
    assert isinstance(found, RequestRejected)
    return found.error, found.message


def grow(count: int, *assignments: tuple[int, ...], **spec: Any) -> Any:
    change = TopicToExpand("orders", count, tuple(ids(*each) for each in assignments))
    return grown(topic(**spec), change, PLACES, ample())


def alter(config: dict[str, str], *changes: ConfigChange, replaces_all: bool = False) -> Any:
    change = TopicToAlter("orders", changes, replaces_all)
    return altered(topic(config=config), change)


def move(targets: dict[int, tuple[int, ...]], *, may_change: bool = True, **spec: Any) -> Any:
    typed = {number: ids(*brokers) for number, brokers in targets.items()}
    return reassigned(topic(**spec), typed, PLACES, may_change_factor=may_change)


def test_only_a_manifest_that_says_delete_is_deleted_over_kafka() -> None:
    assert deletion_error(topic()) is None
    error = deletion_error(topic(deletionPolicy="Retain"))
    assert error is not None
    assert error.error is ErrorCode.POLICY_VIOLATION
    assert "deletionPolicy Retain" in error.message


def test_a_topic_grows_and_the_one_that_was_given_stays_as_it_is() -> None:
    before = topic()
    unchanged = copy.deepcopy(before)
    change = TopicToExpand("orders", 4, (ids(0, 1), ids(2, 3)))
    spec = spec_after(grown(before, change, PLACES, ample()))
    assert spec["partitions"] == 4
    assert spec["placement"] == [
        {"partition": 2, "replicas": [0, 1]},
        {"partition": 3, "replicas": [2, 3]},
    ]
    assert before == unchanged
    assert "placement" not in spec_after(grow(3))


@pytest.mark.parametrize("count", [0, 1, 2, MAX_PARTITIONS + 1])
def test_a_topic_only_grows_and_only_so_far(count: int) -> None:
    error, message = rejection(grow(count))
    assert error is ErrorCode.INVALID_PARTITIONS
    assert message.endswith(f"found {count}")
    assert spec_after(grow(MAX_PARTITIONS))["partitions"] == MAX_PARTITIONS


def test_growth_takes_room_for_the_new_partitions_alone() -> None:
    assert spec_after(grown(topic(), TopicToExpand("orders", 5), PLACES, Room(5, 2)))
    error, _ = rejection(grown(topic(), TopicToExpand("orders", 6), PLACES, Room(5, 2)))
    assert error is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ([(0, 1)], "assignments of the 2 new partitions, found 1"),
        ([(0, 1, 2), (1, 2, 3)], "expected 2 brokers for each partition"),
        ([(0, 1), (2, 9)], "brokers [9] are not in BrokerPool"),
    ],
)
def test_growth_has_an_assignment_for_each_new_partition_as_wide_as_the_others(
    assignments: list[tuple[int, ...]], words: str
) -> None:
    error, message = rejection(grow(4, *assignments))
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in message


def test_configs_are_set_and_deleted_and_the_others_stay() -> None:
    stored = {"retention.ms": "1000", "segment.bytes": "1048576"}
    compact = ConfigChange("cleanup.policy", SET, "compact")
    spec = spec_after(alter(stored, ConfigChange("segment.bytes", DELETE), compact))
    assert spec["config"] == {"cleanup.policy": "compact", "retention.ms": "1000"}
    assert list(spec["config"]) == ["cleanup.policy", "retention.ms"]
    assert spec_after(alter(stored, compact, replaces_all=True))["config"] == {
        "cleanup.policy": "compact"
    }


def test_a_list_grows_and_shrinks_by_its_words() -> None:
    appended = alter({}, ConfigChange("cleanup.policy", APPEND, "compact, delete"))
    assert spec_after(appended)["config"] == {"cleanup.policy": "delete,compact"}
    both = {"cleanup.policy": "compact,delete"}
    left = alter(both, ConfigChange("cleanup.policy", SUBTRACT, "delete"))
    assert spec_after(left)["config"] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (
            [ConfigChange("retention.ms", SET, "1"), ConfigChange("retention.ms", DELETE)],
            ErrorCode.INVALID_REQUEST,
            "appears twice",
        ),
        (
            [ConfigChange("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "retention.ms is not a list",
        ),
        ([ConfigChange("no.such", DELETE)], ErrorCode.INVALID_CONFIG, "no.such"),
        ([ConfigChange("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "no.such"),
        (
            [ConfigChange("min.insync.replicas", SET, "3")],
            ErrorCode.INVALID_CONFIG,
            "min.insync.replicas",
        ),
    ],
)
def test_a_config_that_cannot_be_is_refused(
    changes: list[ConfigChange], error: ErrorCode, words: str
) -> None:
    found, message = rejection(alter({}, *changes))
    assert found is error
    assert words in message


def test_a_move_replaces_the_placement_of_its_partitions_alone() -> None:
    placed = [{"partition": 0, "replicas": [0, 1]}, {"partition": 1, "replicas": [1, 2]}]
    spec = spec_after(move({1: (3, 2)}, placement=placed))
    assert spec["placement"] == [placed[0], {"partition": 1, "replicas": [3, 2]}]
    assert placed[1]["replicas"] == [1, 2]


def test_the_replication_factor_changes_with_every_partition_or_not_at_all() -> None:
    assert spec_after(move({0: (0,), 1: (1,)}))["replicationFactor"] == 1
    error, message = rejection(move({0: (0,)}))
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "found 1 brokers for 1 of 2 partitions" in message
    error, message = rejection(move({0: (0,), 1: (1, 2)}))
    assert "found 1 and 2 brokers for 2 of 2 partitions" in message
    error, _ = rejection(move({0: (0,), 1: (1,)}, may_change=False))
    assert error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert spec_after(move({0: (3, 2)}, may_change=False))["replicationFactor"] == 2


def test_a_move_of_a_partition_that_is_not_there_or_to_no_broker_of_the_pool_is_refused() -> None:
    error, message = rejection(move({2: (0, 1)}))
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert message == "partitions [2] do not exist"
    error, _ = rejection(move({1: (0, 9)}))
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_manifest_places_only_so_many_partitions() -> None:
    placed = [{"partition": number, "replicas": [0, 1]} for number in range(MAX_PLACED)]
    assert spec_after(move({0: (1, 0)}, partitions=MAX_PLACED + 1, placement=placed))
    error, message = rejection(
        move({MAX_PLACED: (1, 0)}, partitions=MAX_PLACED + 1, placement=placed)
    )
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "move fewer partitions" in message
