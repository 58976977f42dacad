"""Topics whose slices are gone, deleted: what their Topic object said of them still counts."""

from collections.abc import Callable
from typing import Any

from tidemark_operator.api.kinds import PARTITION_SLICE, TOPIC
from tidemark_protocol.ids import TopicId

from tests.support.reconcile_harness import NAMESPACE, POOL, Cluster, Experiment


async def without_slices(cluster: Cluster, **spec: Any) -> TopicId:
    """Its only one was deleted by hand, and a pass has seen so."""
    topic = await cluster.ready_topic(**spec)
    topic_id = TopicId(topic["metadata"]["uid"])
    del cluster.controller.views[topic_id]
    await cluster.store.delete(PARTITION_SLICE, NAMESPACE, "orders-0")
    cluster.controller.active = set()  # what is told of it is another test's matter
    await cluster.pass_topic()
    return topic_id


def test_a_deleted_topic_without_slices_is_erased_by_its_deletion_policy(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        topic_id = await without_slices(cluster, deletionPolicy="Delete", topicName="orders.v1")
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        await cluster.pass_topic()
        assert cluster.controller.erased == [(POOL, topic_id, "orders.v1")]

    tell(story)


def test_one_that_was_applied_anew_before_anybody_looked_is_erased_too(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        topic_id = await without_slices(cluster, deletionPolicy="Delete")
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.topic(deletionPolicy="Delete")
        cluster.controller.active = {0, 1, 2}
        await cluster.pass_topic()
        assert cluster.controller.erased == [(POOL, topic_id, "orders")]
        heir = await cluster.stored(TOPIC, "orders")
        assert heir["status"]["topicId"] == heir["metadata"]["uid"]

    tell(story)


def test_with_deletion_policy_retain_and_while_it_is_there_nothing_is_erased(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        await without_slices(cluster)
        await cluster.pass_topic()
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        assert cluster.controller.erased == []

    tell(story)


def test_an_id_that_another_object_has_is_not_erased(tell: Callable[[Experiment], None]) -> None:
    """A slice of it is there again, and its own copy of the policy decides; or a Topic has it."""

    async def story(cluster: Cluster) -> None:
        topic_id = await without_slices(cluster, deletionPolicy="Delete")
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        other = await cluster.topic("other", topicName="another")
        status = {"status": {"topicId": topic_id}}
        await cluster.store.replace_status(TOPIC, {**other, **status})
        await cluster.pass_topic()
        assert cluster.controller.erased == []

    tell(story)


def test_a_slice_that_is_there_again_decides_by_its_own_copy_of_the_policy(
    tell: Callable[[Experiment], None],
) -> None:
    async def story(cluster: Cluster) -> None:
        topic_id = await without_slices(cluster, deletionPolicy="Delete")
        await cluster.store.create(
            PARTITION_SLICE,
            {
                "metadata": {"name": "orders-0", "namespace": NAMESPACE},
                "pool": POOL,
                "topicName": "orders",
                "topicId": topic_id,
                "deletionPolicy": "Delete",
                "partitions": "unreadable",
            },
        )
        await cluster.store.delete(TOPIC, NAMESPACE, "orders")
        await cluster.pass_topic()
        assert cluster.controller.erased == [(POOL, topic_id, "orders")]
        assert len([call for call in cluster.controller.calls if "delete" in call]) == 1

    tell(story)
