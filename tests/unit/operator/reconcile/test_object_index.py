"""The index: found by what they claim, never undone by a read that comes late."""

from typing import Any

from tidemark_operator.api.kinds import PARTITION_SLICE, TOPIC, Object
from tidemark_operator.reconcile.object_index import ObjectIndex
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_protocol.ids import TopicId

ORDERS, OTHER = TopicId("uid-orders"), TopicId("uid-other")
KEY = WorkKey(TOPIC.kind, "shop", "orders")


def a_topic(name: str = "orders", *, uid: str = ORDERS, recorded: str = "", **spec: Any) -> Object:
    item: Object = {"metadata": {"name": name, "namespace": "shop", "uid": uid}, "spec": spec}
    return {**item, "status": {"topicId": recorded}} if recorded else item


def a_slice(name: str = "orders-0", *, version: int = 1, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "shop", "uid": "s", "resourceVersion": str(version)}
    owned = {"topicId": ORDERS, "pool": "shop/default", "topicName": "orders"}
    return {"metadata": metadata, **owned, **fields}


def test_topic_is_found_by_pool_and_topic_name() -> None:
    index = ObjectIndex()
    index.note(TOPIC, a_topic("a", uid="1", topicName="orders"))
    index.note(TOPIC, a_topic("b", uid="2", topicName="orders", brokerPool="mine"))
    assert [each.key.name for each in index.topics_named("shop/default", "orders")] == ["a"]
    assert [each.key.name for each in index.topics_named("shop/mine", "orders")] == ["b"]


def test_recorded_id_is_not_lost_by_an_older_read() -> None:
    index = ObjectIndex()
    index.note(TOPIC, a_topic(recorded=OTHER))
    index.note(TOPIC, a_topic())
    assert [each.key for each in index.topics_with_id(OTHER)] == [KEY]
    index.note(TOPIC, a_topic(uid="another"))
    assert index.topics_with_id(OTHER) == ()


def test_late_deletion_event_leaves_the_next_object_of_that_name() -> None:
    index = ObjectIndex()
    index.note(TOPIC, a_topic(uid="another"))
    index.record_gone(TOPIC, "shop", "orders", uid=ORDERS)
    assert index.topic(KEY) is not None
    index.record_gone(TOPIC, "shop", "orders")
    assert index.topic(KEY) is None
    assert index.topics_named("shop/default", "orders") == ()


def test_adopted_slices_are_found_by_the_topic_that_has_them() -> None:
    index = ObjectIndex()
    index.note(PARTITION_SLICE, a_slice(version=9))
    index.note(PARTITION_SLICE, a_slice(version=10, topicObject="heir"))
    index.note(PARTITION_SLICE, a_slice(version=9))  # a read that comes late
    assert index.ids_of_owner(WorkKey(TOPIC.kind, "shop", "heir")) == (ORDERS,)
    assert index.ids_of_owner(KEY) == ()
    assert index.ids_named("shop/default", "orders") == (ORDERS,)


def test_tombstones_and_slices_that_do_not_say_whose_they_are_do_not_count() -> None:
    index = ObjectIndex()
    index.note(PARTITION_SLICE, a_slice())
    index.note(PARTITION_SLICE, a_slice(version=2, topicId=""))
    index.note(PARTITION_SLICE, a_slice("deleted.x", deleted=True))
    assert index.slices_with_id(ORDERS) == ()
    assert index.owners() == ()


def test_slice_that_a_list_lacked_is_in_doubt_until_it_is_read() -> None:
    index = ObjectIndex()
    index.note(PARTITION_SLICE, a_slice())
    moment = index.moment()
    index.note(PARTITION_SLICE, a_slice("orders-1"))  # written while the list was read
    index.doubt_slices_unseen_since(moment, "shop")
    assert index.has_slices("shop", ["orders-1"], ORDERS)
    assert not index.has_slices("shop", ["orders-0", "orders-1"], ORDERS)
    assert len(index.slices_with_id(ORDERS)) == 2
    index.note(PARTITION_SLICE, a_slice())
    assert index.has_slices("shop", ["orders-0", "orders-1"], ORDERS)


def test_slice_of_another_topic_is_not_the_one_that_is_looked_for() -> None:
    index = ObjectIndex()
    index.note(PARTITION_SLICE, a_slice(topicId=OTHER))
    assert not index.has_slices("shop", ["orders-0"], ORDERS)
    assert index.has_slices("shop", [], ORDERS)
