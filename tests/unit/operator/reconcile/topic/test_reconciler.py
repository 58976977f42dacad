"""Topics through the reconciler, over a real store."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tidemark_operator.api.kinds import BROKER_POOL, PARTITION_SLICE, TOPIC, Object, ResourceKind
from tidemark_operator.controller.core.views import StateChange
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.store.object_store import Rejected

from tests.support.reconcile_harness import NAMESPACE, POOL, Cluster, Experiment

POOL_KEY = WorkKey("BrokerPool", NAMESPACE, "default")


def test_one_manifest_is_enough(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        await world.topic(partitions=3)
        await world.pass_topic()
        pool = await world.stored(BROKER_POOL, "default")
        assert pool["spec"]["replicas"] == 3
        assert (await world.condition())["reason"] == "WaitingForBrokers"
        await world.pass_pool()
        world.controller.active = {0, 1, 2}
        await world.pass_topic()
        topic = await world.stored(TOPIC, "orders")
        status = topic["status"]
        assert (await world.condition())["status"] == "True"
        assert (status["inSync"], status["underReplicated"], status["leaderless"]) == ("9/9", 0, 0)
        assert status["topicId"] == topic["metadata"]["uid"]

    tell(story)


def test_a_placement_holds_from_the_first_moment_on(tell: Callable[[Experiment], None]) -> None:
    """No partition is made elsewhere and moved then (Kafka's CreateTopics with assignments)."""

    async def story(world: Cluster) -> None:
        await world.apply(BROKER_POOL, "default", replicas=4)
        world.controller.active = {0, 1, 2, 3}
        await world.pass_pool()
        await world.topic(partitions=2, placement=[{"partition": 1, "replicas": [3, 0, 1]}])
        await world.pass_topic()
        (view,) = world.controller.views.values()
        assert [state.replicas for state in view.partitions] == [(0, 1, 2), (3, 0, 1)]
        assert not any(call.startswith("reassign") for call in world.controller.calls)

    tell(story)


def test_the_default_pool_has_brokers_enough_for_the_topic(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.topic(replicationFactor=5)
        await world.pass_topic()
        pool = await world.stored(BROKER_POOL, "default")
        assert pool["spec"]["replicas"] == 5

    tell(story)


def test_a_topic_begins_once_min_insync_replicas_are_active(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.topic()
        world.controller.active = {2}
        await world.pass_topic()
        assert (await world.condition())["message"] == (
            "1 of 3 brokers of pool default are active; not active: 0, 1"
        )
        world.controller.active = {0, 2}
        await world.pass_topic()
        assert (await world.condition())["status"] == "True"

    tell(story)


def test_another_missing_pool_is_a_condition(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        await world.topic(brokerPool="mine")
        await world.pass_topic()
        condition = await world.condition()
        assert (condition["status"], condition["reason"]) == ("False", "BrokerPoolNotFound")
        assert await world.store.list(BROKER_POOL, NAMESPACE) == []

    tell(story)


def test_fewer_brokers_than_replication_factor_says_which_number_to_change(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.apply(BROKER_POOL, "default", replicas=2)
        world.controller.active = {0, 1}
        await world.topic(replicationFactor=3)
        await world.pass_topic()
        condition = await world.condition()
        assert condition["reason"] == "NotEnoughBrokers"
        assert condition["message"].endswith(
            "set its spec.replicas to at least 3, or create the Topic with replicationFactor 2"
        )
        assert world.controller.calls == []

    tell(story)


def test_a_manifest_that_reached_the_store_around_the_rules_is_told_so(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.topic(config={"min.insync.replica": "2"})
        await world.pass_topic()
        condition = await world.condition()
        assert condition["reason"] == "InvalidSpec"
        assert 'the nearest known name is "min.insync.replicas"' in condition["message"]

    tell(story)


def test_a_pass_over_an_unchanged_cluster_writes_nothing(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.ready_topic(partitions=3)
        await world.topic("broken", brokerPool="mine")
        await world.evaluate()
        before = world.store.writes, len(world.runtime.actions)
        for key in await world.reconciler.all_keys(None):
            await world.reconciler.reconcile(key)
        assert (world.store.writes, len(world.runtime.actions)) == before  # I21
        world.reconciler = world.new_reconciler()
        for key in await world.reconciler.all_keys(None):
            await world.reconciler.reconcile(key)
        assert world.store.writes == before[0]  # I21: after a restart too

    tell(story)


def test_more_partitions_are_added_behind_the_first(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        await world.ready_topic(partitions=2)
        await world.topic(partitions=4)
        await world.pass_topic()
        assert "add [[2, 0, 1], [0, 1, 2]] at 2" in world.controller.calls
        assert (await world.stored(TOPIC, "orders"))["status"]["inSync"] == "12/12"

    tell(story)


def test_a_new_config_is_told_to_the_controller_once(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        await world.ready_topic()
        await world.topic(config={"min.insync.replicas": "1"})
        await world.pass_topic()
        await world.pass_topic()
        assert world.controller.calls == ["create orders", "update orders"]

    tell(story)


def test_a_deleted_topic_is_retained_and_adopted_by_its_successor(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        previous = await world.ready_topic(partitions=3)
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.pass_topic()
        (item,) = await world.store.list(PARTITION_SLICE, NAMESPACE)
        assert item["retained"] is True
        assert world.added[-1] == POOL_KEY  # whose conditions tell of it
        await world.pass_pool()
        kept = await world.condition(BROKER_POOL, "default", "DataRetained")
        assert kept["message"].startswith(
            "data of 1 deleted topic is retained (orders): a Topic of that name serves it again"
        )
        world.added.clear()
        await world.topic(partitions=3)
        await world.pass_topic()
        assert POOL_KEY in world.added
        await world.pass_pool()
        assert not await world.condition(BROKER_POOL, "default", "DataRetained")
        heir = await world.stored(TOPIC, "orders")
        assert heir["metadata"]["uid"] != previous["metadata"]["uid"]
        assert heir["status"]["topicId"] == previous["metadata"]["uid"]
        assert (await world.condition())["status"] == "True"
        await world.evaluate()
        assert sum(call.startswith("delete") for call in world.controller.calls) == 1

    tell(story)


def test_deleted_and_made_anew_before_anybody_looked(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        previous = await world.ready_topic()
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.topic()
        await world.pass_topic()
        heir = await world.stored(TOPIC, "orders")
        assert heir["status"]["topicId"] == previous["metadata"]["uid"]

    tell(story)


def test_deletion_policy_delete_removes_the_slices(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        previous = await world.ready_topic(deletionPolicy="Delete")
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.topic(deletionPolicy="Delete")
        await world.pass_topic()
        assert f"delete {previous['metadata']['uid']} retain=False" in world.controller.calls
        heir = await world.stored(TOPIC, "orders")
        assert heir["status"]["topicId"] == heir["metadata"]["uid"]

    tell(story)


@pytest.mark.parametrize("retain", [False, True])
def test_made_anew_with_another_topic_name_before_anybody_looked(
    tell: Callable[[Experiment], None], retain: bool
) -> None:
    """Its slices would have the names of the former's, which nobody else would ever end."""

    async def story(world: Cluster) -> None:
        policy = "Retain" if retain else "Delete"
        previous = await world.ready_topic(deletionPolicy=policy)
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.topic(topicName="other")
        await world.pass_topic()
        ended = f"delete {previous['metadata']['uid']} retain={retain}"
        assert world.controller.calls.count(ended) == 1
        world.time_ms += 5000
        await world.pass_topic()
        expected = "SliceNameTaken" if retain else "AllPartitionsLed"
        assert (await world.condition())["reason"] == expected

    tell(story)


def test_what_the_api_server_refuses_is_told(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        await world.topic()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(world.store, "create", refusing)
            assert await world.pass_topic() is not None
        condition = await world.condition()
        assert (condition["reason"], condition["message"]) == ("Refused", "exceeded quota")

    async def refusing(kind: ResourceKind, item: Object) -> Object:
        raise Rejected("exceeded quota")

    tell(story)


def test_the_policy_that_counts_is_the_slices_own_copy(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        previous = await world.ready_topic(deletionPolicy="Delete")
        await world.topic(deletionPolicy="Retain")
        await world.pass_topic()
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.pass_topic()
        assert f"delete {previous['metadata']['uid']} retain=True" in world.controller.calls

    tell(story)


def test_slices_that_another_topic_adopted_survive_a_sweep(
    tell: Callable[[Experiment], None],
) -> None:
    """The slices are named after the former object, which is gone for good."""

    async def story(world: Cluster) -> None:
        previous = await world.ready_topic(deletionPolicy="Delete")
        await world.topic(deletionPolicy="Retain")
        await world.pass_topic()
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.pass_topic()
        await world.topic("heir", topicName="orders", deletionPolicy="Delete")
        await world.pass_topic("heir")
        heir = await world.stored(TOPIC, "heir")
        assert heir["status"]["topicId"] == previous["metadata"]["uid"]
        await world.pass_topic("orders")
        assert sum(call.startswith("delete") for call in world.controller.calls) == 1

    tell(story)


def test_retained_data_with_other_numbers_is_not_adopted(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.ready_topic(partitions=3)
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.pass_topic()
        await world.topic(partitions=2)
        await world.pass_topic()
        condition = await world.condition()
        assert condition["reason"] == "RetainedDataDiffers"
        assert "set partitions to 3" in condition["message"]

    tell(story)


OTHER_PROMISES = pytest.mark.parametrize(
    ("name", "found", "requested"), [("commitRule", "MinInsync", "Isr"), ("flush", "Os", "Always")]
)


async def reported(world: Cluster) -> tuple[str, str, str]:
    condition = await world.condition()
    return condition["status"], condition["reason"], condition["message"]


def rejection_of(name: str, found: str, requested: str) -> tuple[str, str, str]:
    message = (
        f"the data of this topic has {name} {found}, which cannot be changed"
        f" to {requested}: create the Topic with {name} {found}"
    )
    return "False", "RetainedDataDiffers", message


@OTHER_PROMISES
def test_retained_data_of_another_promise_is_not_adopted(
    tell: Callable[[Experiment], None], name: str, found: str, requested: str
) -> None:
    async def story(world: Cluster) -> None:
        await world.ready_topic()
        await world.store.delete(TOPIC, NAMESPACE, "orders")
        await world.pass_topic()
        calls = list(world.controller.calls)
        await world.topic(**{name: requested})
        await world.pass_topic()
        assert await reported(world) == rejection_of(name, found, requested)
        assert world.controller.calls == calls
        assert "topicId" not in (await world.stored(TOPIC, "orders"))["status"]

    tell(story)


@OTHER_PROMISES
def test_an_adoption_cut_short_does_not_go_on_under_another_promise(
    tell: Callable[[Experiment], None], name: str, found: str, requested: str
) -> None:
    """The id is recorded, the slices are retained still."""

    async def story(world: Cluster) -> None:
        await world.ready_topic()
        ((topic_id, view),) = world.controller.views.items()
        world.controller.views[topic_id] = replace(view, is_retained=True)
        await world.topic(**{name: requested})
        await world.pass_topic()
        assert await reported(world) == rejection_of(name, found, requested)
        assert world.controller.calls == ["create orders"]

    tell(story)


@OTHER_PROMISES
def test_a_served_topic_does_not_take_another_promise_over(
    tell: Callable[[Experiment], None], name: str, found: str, requested: str
) -> None:
    """The manifest reached the store around the rules; what else it changes waits too."""

    async def story(world: Cluster) -> None:
        await world.ready_topic()
        await world.topic(**{name: requested}, config={"min.insync.replicas": "1"})
        await world.pass_topic()
        assert await reported(world) == rejection_of(name, found, requested)
        assert world.controller.calls == ["create orders"]

    tell(story)


def test_the_oldest_topic_has_the_name(tell: Callable[[Experiment], None]) -> None:
    async def story(world: Cluster) -> None:
        await world.ready_topic()
        await world.topic("late", topicName="orders")
        await world.pass_topic("late")
        condition = await world.condition(name="late")
        assert condition["reason"] == "TopicNameTaken"
        assert "the older Topic orders" in condition["message"]

    tell(story)


def test_churn_costs_one_status_write_a_second_and_the_last_state_lands(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        topic = await world.ready_topic()
        topic_id = topic["metadata"]["uid"]
        world.time_ms = 60_000
        before = world.store.writes
        view = world.controller.views[topic_id]
        again_ms: int | None = None
        for turn in range(100):
            in_sync = 2 + turn % 2
            (state,) = view.partitions
            members = view.partitions[0].in_sync_replicas[:in_sync]
            world.controller.views[topic_id] = replace(
                view, partitions=(replace(state, in_sync_replicas=members),)
            )
            again_ms = await world.pass_topic()
            world.time_ms += 10
        assert world.store.writes - before <= 6
        if again_ms is not None:
            world.time_ms += again_ms
            await world.pass_topic()
        assert (await world.stored(TOPIC, "orders"))["status"]["inSync"] == "3/3"

    tell(story)


def test_a_conditions_time_moves_only_when_its_status_flips(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.topic()
        await world.pass_topic()
        first = await world.condition()
        world.time_ms = 5000
        world.controller.active = {1}
        await world.pass_topic()
        second = await world.condition()
        assert second["message"] != first["message"]
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        world.time_ms = 9000
        world.controller.active = {0, 1, 2}
        await world.pass_topic()
        assert (await world.condition())["lastTransitionTime"] == "2026-01-01T00:00:09Z"

    tell(story)


def test_what_attention_says_is_looked_at_again_when_brokers_come_and_go(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(world: Cluster) -> None:
        await world.ready_topic()
        broker_came = StateChange("broker", POOL, "1")
        world.added.clear()
        world.reconciler.on_change(broker_came)
        key = WorkKey("Topic", NAMESPACE, "orders")
        assert key not in world.added
        ((topic_id, view),) = world.controller.views.items()
        world.controller.views[topic_id] = replace(view, notices=("start broker 1",))
        await world.pass_topic()
        assert (await world.condition(type_="Attention"))["message"] == "start broker 1"
        world.reconciler.on_change(broker_came)
        assert key in world.added

    tell(story)


def test_an_impossible_placement_is_named_beside_what_else_there_is_to_say(
    tell: Callable[[Experiment], None],
) -> None:
    """And what the status counts goes on to be true meanwhile."""

    async def story(world: Cluster) -> None:
        await world.ready_topic()
        ((topic_id, view),) = world.controller.views.items()
        (state,) = view.partitions
        fewer = replace(state, in_sync_replicas=state.in_sync_replicas[:2])
        world.controller.views[topic_id] = replace(view, partitions=(fewer,))
        world.controller.cannot_reassign = "partition 0: brokers [9] are not registered"
        await world.topic(placement=[{"partition": 0, "replicas": [9, 1, 2]}])
        await world.pass_topic()
        placed = await world.condition(type_="Placed")
        assert (placed["status"], placed["message"]) == ("False", world.controller.cannot_reassign)
        assert (await world.condition())["status"] == "True"
        assert (await world.stored(TOPIC, "orders"))["status"]["inSync"] == "2/3"

    tell(story)
