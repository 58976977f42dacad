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
    async def story(cluster: Cluster) -> None:
        await cluster.topic(partitions=3)
        await cluster.pass_topic()
        pool = await cluster.stored(BROKER_POOL, "default")
        assert pool["spec"]["replicas"] == 3
        assert (await cluster.condition())["reason"] == "WaitingForBrokers"
        await cluster.pass_pool()
        cluster.controller.active = {0, 1, 2}
        await cluster.pass_topic()
        topic = await cluster.stored(TOPIC, "orders")
        status = topic["status"]
        assert (await cluster.condition())["status"] == "True"
        assert (status["inSync"], status["underReplicated"], status["leaderless"]) == ("9/9", 0, 0)
        assert status["topicId"] == topic["metadata"]["uid"]

    tell(story)


def test_a_placement_holds_from_the_first_moment_on(tell: Callable[[Experiment], None]) -> None:
    """No partition is made elsewhere and moved then (Kafka's CreateTopics with assignments)."""

    async def story(cluster: Cluster) -> None:
        await cluster.apply(BROKER_POOL, "default", replicas=4)
        cluster.controller.active = {0, 1, 2, 3}
        await cluster.pass_pool()
        await cluster.topic(partitions=2, placement=[{"partition": 1, "replicas": [3, 0, 1]}])
        await cluster.pass_topic()
        (view,) = cluster.controller.views.values()
        assert [state.replicas for state in view.partitions] == [(0, 1, 2), (3, 0, 1)]
        assert not any(call.startswith("reassign") for call in cluster.controller.calls)

    tell(story)


def test_the_default_pool_has_brokers_enough_for_the_topic(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.topic(replicationFactor=5)
        await cluster.pass_topic()
        pool = await cluster.stored(BROKER_POOL, "default")
        assert pool["spec"]["replicas"] == 5

    tell(story)


def test_a_topic_begins_once_min_insync_replicas_are_active(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.topic()
        cluster.controller.active = {2}
        await cluster.pass_topic()
        assert (await cluster.condition())["message"] == (
            "1 of 3 brokers of pool default are active; not active: 0, 1"
        )
        cluster.controller.active = {0, 2}
        await cluster.pass_topic()
        assert (await cluster.condition())["status"] == "True"

    tell(story)


def test_another_missing_pool_is_a_condition(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.topic(brokerPool="mine")
        await cluster.pass_topic()
        condition = await cluster.condition()
        assert (condition["status"], condition["reason"]) == ("False", "BrokerPoolNotFound")
        assert await cluster.store.list(BROKER_POOL, NAMESPACE) == []

    tell(story)


def test_fewer_brokers_than_replication_factor_says_which_number_to_change(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.apply(BROKER_POOL, "default", replicas=2)
        cluster.controller.active = {0, 1}
        await cluster.topic(replicationFactor=3)
        await cluster.pass_topic()
        condition = await cluster.condition()
        assert condition["reason"] == "NotEnoughBrokers"
        assert condition["message"].endswith(
            "set its spec.replicas to at least 3, or create the Topic with replicationFactor 2"
        )
        assert cluster.controller.calls == []

    tell(story)


def test_a_manifest_that_reached_the_store_around_the_rules_is_told_so(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.topic(config={"min.insync.replica": "2"})
        await cluster.pass_topic()
        condition = await cluster.condition()
        assert condition["reason"] == "InvalidSpec"
        assert 'the nearest known name is "min.insync.replicas"' in condition["message"]

    tell(story)


def test_a_pass_over_an_unchanged_cluster_writes_nothing(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic(partitions=3)
        await cluster.topic("broken", brokerPool="mine")
        await cluster.evaluate()
        before = cluster.store.writes, len(cluster.runtime.actions)
        for key in await cluster.reconciler.all_keys(None):
            await cluster.reconciler.reconcile(key)
        assert (cluster.store.writes, len(cluster.runtime.actions)) == before  # I21
        cluster.reconciler = cluster.new_reconciler()
        for key in await cluster.reconciler.all_keys(None):
            await cluster.reconciler.reconcile(key)
        assert cluster.store.writes == before[0]  # I21: after a restart too

    tell(story)


def test_more_partitions_are_added_behind_the_first(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic(partitions=2)
        await cluster.topic(partitions=4)
        await cluster.pass_topic()
        assert "add [[2, 0, 1], [0, 1, 2]] at 2" in cluster.controller.calls
        assert (await cluster.stored(TOPIC, "orders"))["status"]["inSync"] == "12/12"

    tell(story)


def test_a_new_config_is_told_to_the_controller_once(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        await cluster.topic(config={"min.insync.replicas": "1"})
        await cluster.pass_topic()
        await cluster.pass_topic()
        assert cluster.controller.calls == ["create orders", "update orders"]

    tell(story)


def test_a_deleted_topic_is_retained_and_adopted_by_its_successor(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        previous = await cluster.ready_topic(partitions=3)
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        (item,) = await cluster.store.list(PARTITION_SLICE, NAMESPACE)
        assert item["retained"] is True
        assert cluster.added[-1] == POOL_KEY  # whose conditions tell of it
        await cluster.pass_pool()
        kept = await cluster.condition(BROKER_POOL, "default", "DataRetained")
        assert kept["message"].startswith(
            "data of 1 deleted topic is retained (orders): a Topic of that name serves it again"
        )
        cluster.added.clear()
        await cluster.topic(partitions=3)
        await cluster.pass_topic()
        assert POOL_KEY in cluster.added
        await cluster.pass_pool()
        assert not await cluster.condition(BROKER_POOL, "default", "DataRetained")
        heir = await cluster.stored(TOPIC, "orders")
        assert heir["metadata"]["uid"] != previous["metadata"]["uid"]
        assert heir["status"]["topicId"] == previous["metadata"]["uid"]
        assert (await cluster.condition())["status"] == "True"
        await cluster.evaluate()
        assert sum(call.startswith("delete") for call in cluster.controller.calls) == 1

    tell(story)


def test_deleted_and_made_anew_before_anybody_looked(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        previous = await cluster.ready_topic()
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.topic()
        await cluster.pass_topic()
        heir = await cluster.stored(TOPIC, "orders")
        assert heir["status"]["topicId"] == previous["metadata"]["uid"]

    tell(story)


def test_deletion_policy_delete_removes_the_slices(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        previous = await cluster.ready_topic(deletionPolicy="Delete")
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.topic(deletionPolicy="Delete")
        await cluster.pass_topic()
        assert f"delete {previous['metadata']['uid']} retain=False" in cluster.controller.calls
        heir = await cluster.stored(TOPIC, "orders")
        assert heir["status"]["topicId"] == heir["metadata"]["uid"]

    tell(story)


@pytest.mark.parametrize("retain", [False, True])
def test_made_anew_with_another_topic_name_before_anybody_looked(
    tell: Callable[[Experiment], None], retain: bool
) -> None:
    """Its slices would have the names of the former's, which nobody else would ever end."""

    async def story(cluster: Cluster) -> None:
        policy = "Retain" if retain else "Delete"
        previous = await cluster.ready_topic(deletionPolicy=policy)
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.topic(topicName="other")
        await cluster.pass_topic()
        ended = f"delete {previous['metadata']['uid']} retain={retain}"
        assert cluster.controller.calls.count(ended) == 1
        cluster.time_ms += 5000
        await cluster.pass_topic()
        expected = "SliceNameTaken" if retain else "AllPartitionsLed"
        assert (await cluster.condition())["reason"] == expected

    tell(story)


def test_what_the_api_server_refuses_is_told(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.topic()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.store, "create", refusing)
            assert await cluster.pass_topic() is not None
        condition = await cluster.condition()
        assert (condition["reason"], condition["message"]) == ("Refused", "exceeded quota")

    async def refusing(kind: ResourceKind, item: Object) -> Object:
        raise Rejected("exceeded quota")

    tell(story)


def test_the_policy_that_counts_is_the_slices_own_copy(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        previous = await cluster.ready_topic(deletionPolicy="Delete")
        await cluster.topic(deletionPolicy="Retain")
        await cluster.pass_topic()
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        assert f"delete {previous['metadata']['uid']} retain=True" in cluster.controller.calls

    tell(story)


def test_slices_that_another_topic_adopted_survive_a_sweep(
    tell: Callable[[Experiment], None],
) -> None:
    """The slices are named after the former object, which is gone for good."""

    async def story(cluster: Cluster) -> None:
        previous = await cluster.ready_topic(deletionPolicy="Delete")
        await cluster.topic(deletionPolicy="Retain")
        await cluster.pass_topic()
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        await cluster.topic("heir", topicName="orders", deletionPolicy="Delete")
        await cluster.pass_topic("heir")
        heir = await cluster.stored(TOPIC, "heir")
        assert heir["status"]["topicId"] == previous["metadata"]["uid"]
        await cluster.pass_topic("orders")
        assert sum(call.startswith("delete") for call in cluster.controller.calls) == 1

    tell(story)


def test_retained_data_with_other_numbers_is_not_adopted(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic(partitions=3)
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        await cluster.topic(partitions=2)
        await cluster.pass_topic()
        condition = await cluster.condition()
        assert condition["reason"] == "RetainedDataDiffers"
        assert "set partitions to 3" in condition["message"]

    tell(story)


OTHER_PROMISES = pytest.mark.parametrize(
    ("name", "found", "requested"), [("commitRule", "MinInsync", "Isr"), ("flush", "Os", "Always")]
)


async def reported(cluster: Cluster) -> tuple[str, str, str]:
    condition = await cluster.condition()
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
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        calls = list(cluster.controller.calls)
        await cluster.topic(**{name: requested})
        await cluster.pass_topic()
        assert await reported(cluster) == rejection_of(name, found, requested)
        assert cluster.controller.calls == calls
        assert "topicId" not in (await cluster.stored(TOPIC, "orders"))["status"]

    tell(story)


@OTHER_PROMISES
def test_an_adoption_cut_short_does_not_go_on_under_another_promise(
    tell: Callable[[Experiment], None], name: str, found: str, requested: str
) -> None:
    """The id is recorded, the slices are retained still."""

    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        ((topic_id, view),) = cluster.controller.views.items()
        cluster.controller.views[topic_id] = replace(view, is_retained=True)
        await cluster.topic(**{name: requested})
        await cluster.pass_topic()
        assert await reported(cluster) == rejection_of(name, found, requested)
        assert cluster.controller.calls == ["create orders"]

    tell(story)


@OTHER_PROMISES
def test_a_served_topic_does_not_take_another_promise_over(
    tell: Callable[[Experiment], None], name: str, found: str, requested: str
) -> None:
    """The manifest reached the store around the rules; what else it changes waits too."""

    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        await cluster.topic(**{name: requested}, config={"min.insync.replicas": "1"})
        await cluster.pass_topic()
        assert await reported(cluster) == rejection_of(name, found, requested)
        assert cluster.controller.calls == ["create orders"]

    tell(story)


def test_the_oldest_topic_has_the_name(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        await cluster.topic("late", topicName="orders")
        await cluster.pass_topic("late")
        condition = await cluster.condition(name="late")
        assert condition["reason"] == "TopicNameTaken"
        assert "the older Topic orders" in condition["message"]

    tell(story)


def test_churn_costs_one_status_write_a_second_and_the_last_state_lands(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        topic = await cluster.ready_topic()
        topic_id = topic["metadata"]["uid"]
        cluster.time_ms = 60_000
        before = cluster.store.writes
        view = cluster.controller.views[topic_id]
        again_ms: int | None = None
        for turn in range(100):
            in_sync = 2 + turn % 2
            (state,) = view.partitions
            members = view.partitions[0].in_sync_replicas[:in_sync]
            cluster.controller.views[topic_id] = replace(
                view, partitions=(replace(state, in_sync_replicas=members),)
            )
            again_ms = await cluster.pass_topic()
            cluster.time_ms += 10
        assert cluster.store.writes - before <= 6
        if again_ms is not None:
            cluster.time_ms += again_ms
            await cluster.pass_topic()
        assert (await cluster.stored(TOPIC, "orders"))["status"]["inSync"] == "3/3"

    tell(story)


def test_a_conditions_time_moves_only_when_its_status_flips(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.topic()
        await cluster.pass_topic()
        first = await cluster.condition()
        cluster.time_ms = 5000
        cluster.controller.active = {1}
        await cluster.pass_topic()
        second = await cluster.condition()
        assert second["message"] != first["message"]
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        cluster.time_ms = 9000
        cluster.controller.active = {0, 1, 2}
        await cluster.pass_topic()
        assert (await cluster.condition())["lastTransitionTime"] == "2026-01-01T00:00:09Z"

    tell(story)


def test_what_attention_says_is_looked_at_again_when_brokers_come_and_go(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        broker_came = StateChange("broker", POOL, "1")
        cluster.added.clear()
        cluster.reconciler.on_change(broker_came)
        key = WorkKey("Topic", NAMESPACE, "orders")
        assert key not in cluster.added
        ((topic_id, view),) = cluster.controller.views.items()
        cluster.controller.views[topic_id] = replace(view, notices=("start broker 1",))
        await cluster.pass_topic()
        assert (await cluster.condition(type_="Attention"))["message"] == "start broker 1"
        cluster.reconciler.on_change(broker_came)
        assert key in cluster.added

    tell(story)


def test_an_impossible_placement_is_named_beside_what_else_there_is_to_say(
    tell: Callable[[Experiment], None],
) -> None:
    """And what the status counts goes on to be true meanwhile."""

    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        ((topic_id, view),) = cluster.controller.views.items()
        (state,) = view.partitions
        fewer = replace(state, in_sync_replicas=state.in_sync_replicas[:2])
        cluster.controller.views[topic_id] = replace(view, partitions=(fewer,))
        cluster.controller.cannot_reassign = "partition 0: brokers [9] are not registered"
        await cluster.topic(placement=[{"partition": 0, "replicas": [9, 1, 2]}])
        await cluster.pass_topic()
        placed = await cluster.condition(type_="Placed")
        assert (placed["status"], placed["message"]) == (
            "False",
            cluster.controller.cannot_reassign,
        )
        assert (await cluster.condition())["status"] == "True"
        assert (await cluster.stored(TOPIC, "orders"))["status"]["inSync"] == "2/3"

    tell(story)
