"""A Topic as a typed value: its id, its pool, its placement and the leaders that it chooses."""

from typing import Any

from tidemark_operator.api.elect_annotation import ELECT_ANNOTATION, LeaderChoice
from tidemark_operator.api.topic import Topic
from tidemark_protocol.ids import BrokerId, LeaderEpoch, TopicId

from tests.support.api_objects import parsed


def read(*, topic_id: str | None = None, elect: str | None = None, **spec: Any) -> Topic:
    metadata: dict[str, Any] = {"name": "orders", "namespace": "shop", "uid": "uid"}
    if elect is not None:
        metadata["annotations"] = {ELECT_ANNOTATION: elect}
    status = {} if topic_id is None else {"topicId": topic_id}
    item = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }
    return parsed(Topic, item)


def test_the_uid_is_the_topic_id_until_another_one_is_recorded() -> None:
    assert read().topic_id == "uid"
    adopted = read(topic_id="adopted")
    assert adopted.topic_id == "adopted"
    assert [adopted.has_id(TopicId(text)) for text in ("uid", "adopted", "other")] == (
        [True, True, False]
    )


def test_an_empty_recorded_id_is_none() -> None:
    assert read(topic_id="").recorded_topic_id is None
    assert read(topic_id="").topic_id == "uid"


def test_a_pool_is_looked_for_in_the_namespace_of_the_topic() -> None:
    assert read().pool == "shop/default"
    assert read(brokerPool="fast").pool == "shop/fast"


def test_a_placement_is_by_partition_and_empty_without_one() -> None:
    assert read().spec.placement == {}
    placement = [{"partition": 1, "replicas": [2, 0, 1]}]
    assert read(partitions=2, placement=placement).spec.placement == {1: (2, 0, 1)}


def test_min_isr_is_never_above_the_replication_factor() -> None:
    assert read().spec.min_insync_replicas == 2
    assert read(replicationFactor=1).spec.min_insync_replicas == 1
    assert read(config={"min.insync.replicas": "3"}).spec.min_insync_replicas == 3


def test_a_topic_chooses_leaders_by_a_valid_annotation_only() -> None:
    valid, invalid, absent = read(elect="0=2@5"), read(elect="0=2"), read()
    assert valid.choices == (LeaderChoice(0, BrokerId(2), LeaderEpoch(5)),)
    assert (invalid.choices, absent.choices) == ((), ())
    assert invalid.choices_fault.startswith(f"annotation {ELECT_ANNOTATION}: expected")
    assert (valid.choices_fault, absent.choices_fault) == ("", "")
