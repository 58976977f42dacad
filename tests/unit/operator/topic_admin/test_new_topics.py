"""The Topic object that CreateTopics asks for, or Kafka's code and a sentence."""

from typing import Any

import pytest
from tidemark_operator.topic_admin.field_managers import RequestRejected
from tidemark_operator.topic_admin.new_topics import (
    MAX_PARTITIONS,
    MAX_PLACED,
    MAX_REPLICAS,
    PoolPlacement,
    assignments_error,
    placement_entries,
    topic_manifest,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_messages import NewTopic


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def places(*brokers: int, **settings: Any) -> PoolPlacement:
    return PoolPlacement("shop/default", ids(*brokers), **settings)


def made(new: NewTopic, where: PoolPlacement, *, name_choice: int = 0) -> dict[str, Any]:
    found = topic_manifest(new, where, request_id="r-1", name_choice=name_choice)
    assert not isinstance(found, RequestRejected), found.message
    return found


def rejection(new: NewTopic, where: PoolPlacement) -> RequestRejected:
    found = topic_manifest(new, where, request_id="r-1")
    assert isinstance(found, RequestRejected)
    return found


def test_a_topic_says_who_asked_for_it() -> None:
    metadata = made(NewTopic("orders", 2, 1), places(0, 1, 2))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("orders", "shop")
    assert metadata["labels"] == {"tidemark.dev/made-by": "kafka"}
    assert metadata["annotations"] == {"tidemark.dev/request": "r-1"}


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_default_counts_follow_the_pool(brokers: int, replicas: int) -> None:
    where = places(*range(brokers), default_partitions=6)
    spec = made(NewTopic("orders"), where)["spec"]
    assert (spec["partitions"], spec["replicationFactor"]) == (6, replicas)


def test_a_pool_whose_brokers_all_leave_takes_no_topic() -> None:
    assert rejection(NewTopic("orders"), places()).error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_counts_have_bounds() -> None:
    where = places(*range(MAX_REPLICAS + 1))
    assert made(NewTopic("orders", MAX_PARTITIONS, MAX_REPLICAS), where)
    too_many = rejection(NewTopic("orders", MAX_PARTITIONS + 1, 1), where)
    assert too_many.error is ErrorCode.INVALID_PARTITIONS
    assert too_many.message.endswith("found 10001")
    for count in (0, -2, MAX_REPLICAS + 1):
        found = rejection(NewTopic("orders", 1, count), where)
        assert found.error is ErrorCode.INVALID_REPLICATION_FACTOR
        assert found.message.endswith(f"found {count}")


def test_a_name_that_no_object_can_have_is_kept_as_topic_name() -> None:
    item = made(NewTopic("My_Orders", 1, 1), places(0))
    assert item["spec"]["topicName"] == "My_Orders"
    assert item["metadata"]["name"].startswith("my-orders-")
    assert "topicName" not in made(NewTopic("orders", 1, 1), places(0))["spec"]


def test_another_object_name_is_chosen_where_the_first_is_taken_and_the_last_stays() -> None:
    second = made(NewTopic("orders", 1, 1), places(0), name_choice=1)
    assert second["metadata"]["name"].startswith("orders-")
    assert second["spec"]["topicName"] == "orders"
    assert made(NewTopic("orders", 1, 1), places(0), name_choice=9) == second


def test_configs_are_stored_in_order_and_in_their_one_spelling() -> None:
    config = {"retention.ms": "60000", "cleanup.policy": " compact , delete "}
    spec = made(NewTopic("orders", 1, 1, config=config), places(0))["spec"]
    assert list(spec["config"]) == ["cleanup.policy", "retention.ms"]
    assert spec["config"]["cleanup.policy"] == "compact,delete"


def test_assignments_are_counts_and_placement() -> None:
    spec = made(NewTopic("orders", assignments=(ids(0, 1), ids(2, 0))), places(0, 1, 2))["spec"]
    assert (spec["partitions"], spec["replicationFactor"]) == (2, 2)
    assert spec["placement"] == [
        {"partition": 0, "replicas": [0, 1]},
        {"partition": 1, "replicas": [2, 0]},
    ]


def test_entries_of_a_placement_are_in_order_of_partitions() -> None:
    assert placement_entries({2: ids(1), 0: ids(0, 2)}) == [
        {"partition": 0, "replicas": [0, 2]},
        {"partition": 2, "replicas": [1]},
    ]
    assert placement_entries({}) == []


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ([ids()], "expected 1 to 10 brokers"),
        ([ids(*range(11))], "expected 1 to 10 brokers"),
        ([ids(0, 1), ids(2, 2)], "expected distinct brokers for a partition, found [2, 2]"),
        ([ids(0, 1), ids(2)], "the same number of brokers"),
        ([ids(0, 12)], "brokers [12] are not in BrokerPool shop/default"),
        ([ids(0)] * (MAX_PLACED + 1), "at most 1000 partitions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_assignment_that_cannot_be_is_named(
    assignments: list[tuple[BrokerId, ...]], words: str
) -> None:
    found = assignments_error(tuple(assignments), places(*range(12)))
    assert found is not None
    assert found.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in found.message


def test_assignments_of_distinct_brokers_of_the_pool_are_no_error() -> None:
    many = (ids(0, 1),) * MAX_PLACED
    assert assignments_error(many, places(0, 1)) is None
