"""A human's choice of a leader, from the Topic's annotation to the controller."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.objects import Invalid, parse
from tidemark_operator.api.schemas import validate
from tidemark_operator.api.topic import Topic
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.topic.plan import (
    ChooseLeaders,
    ObservedTopic,
    UpdateTopic,
    plan_topic,
)
from tidemark_protocol.ids import BrokerId, LeaderEpoch, TopicId

from tests.support.api_objects import parsed
from tests.support.controller_values import partition, topic

TOPIC_ID = TopicId("7f1c0000-0000-0000-0000-000000000001")
CHOICE = LeaderChoice(0, BrokerId(2), LeaderEpoch(5))


def manifest(elect: str) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {
            "name": "orders",
            "namespace": "shop",
            "uid": TOPIC_ID,
            "annotations": {"tidemark.dev/elect": elect},
        },
        "spec": {},
    }


def observed(elect: str, **view_fields: Any) -> ObservedTopic:
    asked = parsed(Topic, manifest(elect))
    view = TopicView(
        topic=replace(topic(), config=asked.spec.config),
        partitions=(partition("", leader_epoch=5),),
        object_name="orders",
        deletion_policy="Retain",
        is_retained=False,
    )
    return ObservedTopic(asked, TOPIC_ID, replace(view, **view_fields))


def test_a_choice_for_a_leaderless_partition_is_told_to_the_controller_once() -> None:
    assert plan_topic(observed("0=2@5")).action == ChooseLeaders(TOPIC_ID, (CHOICE,))
    assert plan_topic(observed("0=2@5", choices=(CHOICE,))).action is None


@pytest.mark.parametrize("elect", ["0=2@4", "0=9@5", "7=2@5", ""])
def test_a_choice_that_does_not_fit_the_partition_as_it_is_does_nothing(elect: str) -> None:
    assert plan_topic(observed(elect)).action is None


def test_a_choice_for_a_partition_that_has_a_leader_does_nothing() -> None:
    led = partition("0@1 1@2", leader="0@1", leader_epoch=5)
    assert plan_topic(observed("0=2@5", partitions=(led,))).action is None


@pytest.mark.parametrize("elect", ["2", "0=2", "0=2@5;1=2@5", "a=b@c", "0=2@5,"])
def test_an_annotation_that_cannot_be_read_is_told_with_an_example(elect: str) -> None:
    (sentence,) = validate(manifest(elect))
    assert "expected entries such as 0=2@5" in sentence


def test_one_that_got_past_that_stops_nothing_else_of_its_topic() -> None:
    """The API server reads no annotations: a policy that protects data would not arrive."""
    asked = parse(Topic, manifest("a typo") | {"spec": {"deletionPolicy": "Delete"}})
    assert isinstance(asked, Topic)
    plan = plan_topic(replace(observed("a typo"), topic=asked))
    assert isinstance(plan.action, UpdateTopic)
    (reported,) = (each for each in plan.conditions if each.type == "Attention")
    assert "expected entries such as 0=2@5" in reported.message


def test_fields_of_a_newer_crd_stop_nothing() -> None:
    """The API server fills in their defaults in whatever is stored."""
    topic = parse(Topic, manifest("") | {"spec": {"partitions": 3, "novelty": {"a": [1]}}})
    assert isinstance(topic, Topic)
    assert topic.spec.partitions == 3
    meta = {"name": "default", "namespace": "shop", "uid": "u"}
    spec = {"replicas": 2, "novelty": True, "listeners": []}
    pool = parse(
        BrokerPool,
        {
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "BrokerPool",
            "metadata": meta,
            "spec": spec,
        },
    )
    assert isinstance(pool, BrokerPool)
    assert pool.spec.replicas == 2
    assert isinstance(parse(Topic, manifest("") | {"spec": {"partitions": "many"}}), Invalid)
