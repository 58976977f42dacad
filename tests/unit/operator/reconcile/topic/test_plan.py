"""What is due for a Topic: one action at a time, or a condition that says what it waits for."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.objects import ObjectMetadata
from tidemark_operator.api.topic import Topic, TopicSpec
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.topic.plan import (
    AddPartitions,
    ChooseLeaders,
    CreatePool,
    CreateTopic,
    DeleteTopic,
    ObservedTopic,
    PreviousTopic,
    Reassign,
    RecordTopicId,
    TopicPlan,
    UpdateTopic,
    plan_topic,
)
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_values import partition, topic
from tests.unit.operator.reconcile.placement_values import (
    TOPIC_ID,
    WHOLE,
    ids,
    observed,
    spec_of,
    view_of,
)

EARLIER = TopicId("7f1c0000-0000-0000-0000-000000000009")


def new(spec: TopicSpec, **seen: Any) -> ObservedTopic:
    """A Topic without slices, in a pool of three active brokers."""
    metadata = ObjectMetadata(name="orders", namespace="shop", uid=TOPIC_ID)
    known: dict[str, Any] = {"pool_replicas": 3, "active_brokers": frozenset(ids(0, 1, 2))}
    return ObservedTopic(Topic(metadata=metadata, spec=spec), None, None, **known | seen)


def previous(*, is_retained: bool, policy: str = "Retain") -> PreviousTopic:
    return PreviousTopic(replace(topic(), topic_id=EARLIER), is_retained, policy)


def ready_reason(plan: TopicPlan) -> str:
    (reason,) = (each.reason for each in plan.conditions if each.type == "Ready")
    return reason


def test_a_new_topic_is_placed_in_its_pool_with_its_own_uid() -> None:
    spec = spec_of(partitions=2, placement=[{"partition": 1, "replicas": [2, 0, 1]}])
    action = plan_topic(new(spec)).action
    assert isinstance(action, CreateTopic)
    assert (action.topic.topic_id, action.had_slices) == (TOPIC_ID, False)
    assert action.assignments == (ids(0, 1, 2), ids(2, 0, 1))


def test_a_topic_that_had_slices_gets_them_again_with_its_recorded_id() -> None:
    action = plan_topic(replace(new(spec_of()), recorded_topic_id=EARLIER)).action
    assert isinstance(action, CreateTopic)
    assert (action.topic.topic_id, action.had_slices) == (EARLIER, True)


def test_only_the_default_pool_is_created_for_a_topic() -> None:
    assert plan_topic(new(spec_of(), pool_replicas=None)).action == CreatePool(3)
    plan = plan_topic(new(spec_of(brokerPool="fast"), pool_replicas=None))
    assert (plan.action, ready_reason(plan)) == (None, "BrokerPoolNotFound")


def test_a_name_that_an_older_topic_has_is_not_taken_from_it() -> None:
    plan = plan_topic(new(spec_of(), name_owner="first", previous=previous(is_retained=False)))
    assert (plan.action, ready_reason(plan)) == (None, "TopicNameTaken")


@pytest.mark.parametrize(("policy", "retain"), [("Delete", False), ("Retain", True), ("", True)])
def test_data_of_a_deleted_topic_is_first_treated_by_its_own_policy(
    policy: str, retain: bool
) -> None:
    seen = new(spec_of(), previous=previous(is_retained=False, policy=policy))
    assert plan_topic(seen).action == DeleteTopic(EARLIER, retain)


def test_the_id_of_retained_data_is_recorded_before_it_is_adopted() -> None:
    seen = new(spec_of(), previous=previous(is_retained=True))
    assert plan_topic(seen).action == RecordTopicId(EARLIER)
    retained = replace(view_of(spec_of(), WHOLE), is_retained=True)
    action = plan_topic(replace(seen, recorded_topic_id=TOPIC_ID, view=retained)).action
    assert isinstance(action, CreateTopic)
    assert (action.topic.topic_id, action.had_slices) == (TOPIC_ID, True)


@pytest.mark.parametrize(
    "other", [{"replicationFactor": 2}, {"commitRule": "Isr"}, {"flush": "Always"}], ids=str
)
def test_retained_data_that_differs_is_not_adopted(other: dict[str, Any]) -> None:
    plan = plan_topic(new(spec_of(**other), previous=previous(is_retained=True)))
    assert (plan.action, ready_reason(plan)) == (None, "RetainedDataDiffers")


def test_a_topic_waits_until_each_partition_has_min_insync_replicas_that_are_active() -> None:
    spec = spec_of(config={"min.insync.replicas": "2"})
    one_away = new(spec, active_brokers=frozenset(ids(0, 1)))
    assert isinstance(plan_topic(one_away).action, CreateTopic)
    plan = plan_topic(new(spec, active_brokers=frozenset(ids(0))))
    assert (plan.action, plan.is_waiting) == (None, True)
    assert plan.conditions[0].message == (
        "1 of 3 brokers of pool default are active; not active: 1, 2"
    )


def test_a_topic_waits_for_the_racks_of_all_brokers_where_the_pool_has_racks() -> None:
    seen = new(spec_of(), pool_has_racks=True, racks=dict.fromkeys(ids(0, 2), "a"))
    plan = plan_topic(seen)
    assert (plan.action, plan.is_waiting, ready_reason(plan)) == (None, True, "WaitingForBrokers")
    whole = replace(seen, racks=dict.fromkeys(ids(0, 1, 2), "a"))
    assert isinstance(plan_topic(whole).action, CreateTopic)


def test_a_missing_slice_stops_every_change() -> None:
    spec = spec_of(config={"retention.ms": "1000"})
    view = replace(view_of(spec_of(), WHOLE), missing_slices=("orders-0",))
    plan = plan_topic(observed(spec, view, 3))
    assert (plan.action, ready_reason(plan)) == (None, "SliceMissing")


def test_partitions_never_shrink() -> None:
    view = view_of(spec_of(partitions=2), WHOLE, replace(WHOLE, partition=1))
    plan = plan_topic(observed(spec_of(partitions=1), view, 3))
    assert (plan.action, ready_reason(plan)) == (None, "PartitionsNeverShrink")


def test_a_changed_config_or_deletion_policy_is_an_update() -> None:
    view = view_of(spec_of(), WHOLE)
    assert plan_topic(observed(spec_of(), view, 3)).action is None
    changed = plan_topic(observed(spec_of(config={"retention.ms": "1000"}), view, 3)).action
    assert isinstance(changed, UpdateTopic)
    assert changed.topic.config["retention.ms"] == "1000"
    other_policy = spec_of(deletionPolicy="Delete")
    assert isinstance(plan_topic(observed(other_policy, view, 3)).action, UpdateTopic)


def annotated(view: TopicView, text: str) -> ObservedTopic:
    seen = observed(spec_of(), view, 3)
    annotations = {"tidemark.dev/elect": text}
    metadata = ObjectMetadata(
        name="orders", namespace="shop", uid=TOPIC_ID, annotations=annotations
    )
    return replace(seen, topic=Topic(metadata=metadata, spec=seen.spec))


def test_a_leader_that_a_person_names_is_chosen_once() -> None:
    view = view_of(spec_of(), partition("", eligible="0@1"))
    seen = annotated(view, "0=2@5")
    action = plan_topic(seen).action
    assert isinstance(action, ChooseLeaders)
    assert [(each.partition, each.leader) for each in action.choices] == [(0, BrokerId(2))]
    known = replace(view, choices=action.choices)
    assert plan_topic(replace(seen, view=known)).action is None


def test_a_choice_that_cannot_be_read_is_told_beside_everything_else() -> None:
    plan = plan_topic(annotated(view_of(spec_of(), WHOLE), "unreadable"))
    assert ("Attention", True) in [(each.type, each.is_true) for each in plan.conditions]
    assert plan.action is None


def test_more_replicas_are_moved_in_first_and_counted_then() -> None:
    spec = spec_of(replicationFactor=3)
    one = partition("0@1", leader="0@1", replicas=(0,), min_insync=1)
    view = view_of(spec, one, factor=1)
    plan = plan_topic(observed(spec, view, 3))
    assert plan.action == Reassign(TOPIC_ID, {0: ids(0, 1, 2)})
    there = view_of(spec, replace(WHOLE, min_insync_replicas=1), factor=1)
    update = plan_topic(observed(spec, there, 3)).action
    assert isinstance(update, UpdateTopic)
    assert update.topic.replication_factor == 3


def test_fewer_replicas_are_counted_first_and_leave_then() -> None:
    spec = spec_of(replicationFactor=1)
    update = plan_topic(observed(spec, view_of(spec, WHOLE), 3)).action
    assert isinstance(update, UpdateTopic)
    view = view_of(spec, WHOLE, factor=1)
    assert plan_topic(observed(spec, view, 3)).action == Reassign(TOPIC_ID, {0: ids(0)})


def test_growth_places_new_partitions_on_brokers_that_stay() -> None:
    spec = spec_of(partitions=3)
    view = view_of(spec, WHOLE)
    view = replace(view, topic=replace(view.topic, partition_count=1))
    action = plan_topic(observed(spec, view, 5, 1)).action
    assert isinstance(action, AddPartitions)
    assert action.assignments == (ids(2, 3, 4), ids(3, 4, 0))


def grown(spec: TopicSpec, *states: PartitionState) -> TopicView:
    """Of fewer partitions than the spec asks for."""
    view = view_of(spec, *states)
    return replace(view, topic=replace(view.topic, partition_count=len(states)))


def test_growth_while_brokers_are_to_be_emptied_is_told_with_what_to_do() -> None:
    spec = spec_of(partitions=4)
    plan = plan_topic(observed(spec, grown(spec, WHOLE), 3, 2))
    assert (plan.action, plan.is_waiting) == (None, True)
    (ready,) = (condition for condition in plan.conditions if condition.type == "Ready")
    assert (ready.is_true, ready.reason) == (False, "NotEnoughBrokers")
    assert ready.message == (
        "partitions 1, 2, 3 are not created yet: replicationFactor 3 needs 3 brokers, BrokerPool"
        " default has 2 besides the brokers to drain (2): set its spec.replicas to at least"
        " 4, or remove brokers from its spec.drain"
    )


def test_growth_that_waits_holds_up_neither_a_config_nor_a_move() -> None:
    spec = spec_of(partitions=4, config={"retention.ms": "1000"})
    view = grown(spec_of(partitions=4), WHOLE)
    update = plan_topic(observed(spec, view, 3, 2)).action
    assert isinstance(update, UpdateTopic)
    assert (update.topic.config, update.topic.partition_count) == (spec.config, 1)
    updated = replace(view, topic=replace(view.topic, config=spec.config))
    assert plan_topic(observed(spec, updated, 3, 2)).action is None
    away = observed(spec, updated, 5, 2)
    away = replace(away, active_brokers=frozenset(ids(0, 1, 3)), racks={}, pool_has_racks=True)
    plan = plan_topic(away)  # the racks of new brokers are not known, the drain goes on
    assert plan.action == Reassign(TOPIC_ID, {0: ids(0, 1, 3)})
    assert "WaitingForBrokers" in [c.reason for c in plan.conditions]


def test_growth_that_waits_hides_no_partition_without_a_leader() -> None:
    spec = spec_of(partitions=2)
    plan = plan_topic(observed(spec, grown(spec, partition("", eligible="0@1")), 3, 2))
    texts = [c.message for c in plan.conditions if c.type == "Ready"]
    assert texts[0].startswith("partitions 1 are not created yet")
    assert texts[1] == "no leader: partitions 0"
