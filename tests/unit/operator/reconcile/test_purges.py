"""spec.purgeRetained: retained data goes for good, and data that has a Topic never does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.kinds import BROKER_POOL, PARTITION_SLICE, TOPIC, Object, ResourceKind
from tidemark_operator.reconcile.topic import purges
from tidemark_operator.store.object_store import OutcomeUnknown
from tidemark_protocol.ids import BrokerId, TopicId

from tests.support.reconcile_harness import NAMESPACE, Cluster, Experiment


async def with_retained(cluster: Cluster, name: str = "orders", **spec: Any) -> TopicId:
    """A topic that was served and deleted; its id."""
    item = await cluster.ready_topic(name, **spec)
    await cluster.store.delete(TOPIC, NAMESPACE, name)
    await cluster.pass_topic(name)
    return TopicId(item["metadata"]["uid"])


async def ask_for(cluster: Cluster, *names: str, **spec: Any) -> list[dict[str, str]]:
    """The results in the status after a pass over the pool."""
    await cluster.apply(BROKER_POOL, "default", replicas=3, purgeRetained=list(names), **spec)
    await cluster.pass_pool()
    return await results(cluster)


async def results(cluster: Cluster) -> list[dict[str, str]]:
    status = (await cluster.stored(BROKER_POOL, "default"))["status"]
    found: list[dict[str, str]] = status.get("purgeRetained", [])
    return found


async def purged(cluster: Cluster) -> tuple[str, str, str]:
    condition = await cluster.condition(BROKER_POOL, "default", "Purged")
    return condition["status"], condition["reason"], condition["message"]


def deletions(cluster: Cluster) -> list[str]:
    return [call for call in cluster.controller.calls if call.endswith("retain=False")]


def test_retained_data_that_is_named_is_purged_and_told(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        orders = await with_retained(cluster)
        payments = await with_retained(cluster, "payments")
        found = await ask_for(cluster, "orders", "of-nobody", drain=[2])
        assert found == [
            {"topicName": "orders", "result": "Purged"},
            {"topicName": "of-nobody", "result": "NothingRetained"},
        ]
        assert deletions(cluster) == [f"delete {orders} retain=False"]
        assert await purged(cluster) == (
            "True",
            "Done",
            "purged: orders; no retained data: of-nobody",
        )
        assert list(cluster.controller.views) == [payments]
        drained = await cluster.condition(BROKER_POOL, "default", "Drained")
        assert "orders" not in drained["message"]
        assert "payments" in drained["message"]

    tell(story)


def test_a_topic_that_has_an_object_is_never_purged(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        assert await ask_for(cluster, "orders") == [{"topicName": "orders", "result": "HasTopic"}]
        status, reason, message = await purged(cluster)
        assert (status, reason) == ("False", "HasTopic")
        assert message.startswith(
            "not purged, because a Topic object has the name: orders. To purge"
        )
        await cluster.evaluate()
        assert deletions(cluster) == []
        # It is no standing order: what is deleted with Retain later is retained.
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.evaluate()
        assert deletions(cluster) == []
        assert len(await cluster.store.list(PARTITION_SLICE, NAMESPACE)) == 1

    tell(story)


@pytest.mark.parametrize(
    ("name", "spec"), [("orders", {}), ("second", {"topicName": "orders"})], ids=["same", "other"]
)
def test_data_that_a_new_topic_will_take_is_not_purged(
    tell: Callable[[Experiment], None], name: str, spec: dict[str, str]
) -> None:
    async def story(cluster: Cluster) -> None:
        await with_retained(cluster)
        await cluster.topic(name, **spec)  # no pass has seen it yet
        assert await ask_for(cluster, "orders") == [{"topicName": "orders", "result": "HasTopic"}]
        await cluster.pass_topic(name)
        assert (await cluster.condition(TOPIC, name))["status"] == "True"
        assert deletions(cluster) == []

    tell(story)


def test_data_of_a_topic_that_adopted_it_under_another_name_is_not_purged(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        topic_id = await with_retained(cluster)
        other = await cluster.topic("elsewhere", topicName="elsewhere")
        await cluster.store.replace_status(TOPIC, {**other, "status": {"topicId": topic_id}})
        assert await ask_for(cluster, "orders") == [{"topicName": "orders", "result": "HasTopic"}]

    tell(story)


def test_a_name_is_purged_once_until_it_is_asked_for_again(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await with_retained(cluster)
        await ask_for(cluster, "orders")
        again = await with_retained(cluster)
        await cluster.evaluate()
        cluster.reconciler = cluster.new_reconciler()
        await cluster.evaluate()
        assert len(deletions(cluster)) == 1
        assert await ask_for(cluster) == []
        assert not await cluster.condition(BROKER_POOL, "default", "Purged")
        assert await ask_for(cluster, "orders") == [{"topicName": "orders", "result": "Purged"}]
        assert deletions(cluster)[1:] == [f"delete {again} retain=False"]

    tell(story)


def test_a_deleted_topic_that_is_not_retained_yet_is_waited_for(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.ready_topic()
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")  # no pass has seen that yet
        assert await ask_for(cluster, "orders") == []
        assert await purged(cluster) == ("False", "Waiting", "waiting for the deletion of orders")
        assert await cluster.pass_pool() is not None
        assert deletions(cluster) == []
        await cluster.pass_topic()
        await cluster.pass_pool()
        assert await results(cluster) == [{"topicName": "orders", "result": "Purged"}]

    tell(story)


def test_data_of_which_a_slice_is_served_is_not_purged(tell: Callable[[Experiment], None]) -> None:
    """An adoption was cut short: the Topic object went before its last slice was taken."""

    async def story(cluster: Cluster) -> None:
        topic_id = await with_retained(cluster)
        view = cluster.controller.views[topic_id]
        cluster.controller.views[topic_id] = replace(view, is_retained=False)
        assert await ask_for(cluster, "orders") == []
        assert deletions(cluster) == []

    tell(story)


def test_a_purge_that_fails_keeps_no_broker_from_its_start_and_is_tried_again(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await with_retained(cluster)
        cluster.runtime.brokers.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.controller, "delete_topic", io_failure)
            with pytest.raises(OutcomeUnknown):
                await ask_for(cluster, "orders")
        assert BrokerId(0) in cluster.runtime.brokers
        assert await results(cluster) == []
        assert await ask_for(cluster, "orders") == [{"topicName": "orders", "result": "Purged"}]

    tell(story)


async def io_failure(*given: Any, **named: Any) -> None:
    raise OutcomeUnknown("no answer")


def test_many_purges_take_several_turns_of_their_pool(
    tell: Callable[[Experiment], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        names = ["a", "b", "c"]
        for name in names:
            await with_retained(cluster, name)
        assert len(await ask_for(cluster, *names)) == 2
        assert await cluster.pass_pool() is None
        assert len(await results(cluster)) == 3
        assert cluster.controller.views == {}

    monkeypatch.setattr(purges, "MAX_PURGES_PER_TURN", 2)
    tell(story)


def test_a_list_without_the_topic_is_not_believed(tell: Callable[[Experiment], None]) -> None:
    async def story(cluster: Cluster) -> None:
        await with_retained(cluster)
        await cluster.topic()
        listed = cluster.store.list

        async def lagging(kind: ResourceKind, *given: Any, **named: Any) -> list[Object]:
            return [] if kind is TOPIC else await listed(kind, *given, **named)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.store, "list", lagging)
            assert await ask_for(cluster, "orders") == []
        assert deletions(cluster) == []

    tell(story)
