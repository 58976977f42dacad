"""What a broker believes of a push: newest epochs win, absence means nothing."""

from dataclasses import replace

from tidemark_broker.metadata.metadata_cache import Leader, MetadataCache, MetadataChanges
from tidemark_protocol.controller_messages import (
    BrokerState,
    Endpoints,
    MetadataPush,
    ReportedEpoch,
    TopicPush,
)
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import PartitionState, TopicState

ORDERS = TopicState("orders", TopicId("id-1"), 1, 3)
KEY = (ORDERS.topic_id, 0)
BROKER = BrokerState(
    BrokerId(1), BrokerEpoch(4), False, False, Endpoints("10.0.0.1", 9092, 8080, "http://b1")
)


def a_state(*, partition_epoch: int = 3, leader_epoch: int = 1, leader: int = 1) -> PartitionState:
    return PartitionState(
        0,
        (BrokerId(1), BrokerId(2), BrokerId(3)),
        BrokerId(leader),
        BrokerEpoch(4),
        LeaderEpoch(leader_epoch),
        (),
        (),
        PartitionEpoch(partition_epoch),
        2,
    )


def a_push(
    *entries: TopicPush, controller_epoch: int = 1, version: int = 1, is_full: bool = True
) -> MetadataPush:
    return MetadataPush(ControllerEpoch(controller_epoch), version, is_full, (BROKER,), entries)


def orders(*states: PartitionState, is_deleted: bool = False) -> TopicPush:
    return TopicPush(ORDERS, states, is_deleted)


def test_a_first_push_is_all_news() -> None:
    cache = MetadataCache()
    assert cache.apply_push(a_push(orders(a_state()))) == MetadataChanges(
        brokers_changed=True, topics=(ORDERS,), partitions=(KEY,)
    )
    assert cache.partition("orders", 0) == a_state()
    assert cache.leader_of("orders", 0) == Leader(BrokerId(1), LeaderEpoch(1))


def test_the_same_push_again_changes_nothing() -> None:
    cache = MetadataCache()
    cache.apply_push(a_push(orders(a_state())))
    assert cache.apply_push(a_push(orders(a_state()))) == MetadataChanges()


def test_older_pushes_are_dropped_whole() -> None:  # S25
    cache = MetadataCache()
    cache.apply_push(a_push(orders(a_state()), controller_epoch=2, version=7))
    dropped = MetadataChanges(is_dropped=True)
    newer = orders(a_state(partition_epoch=9))
    assert cache.apply_push(a_push(newer, controller_epoch=2, version=6)) == dropped
    assert cache.apply_push(a_push(newer, controller_epoch=1, version=99)) == dropped
    assert cache.partition("orders", 0) == a_state()


def test_a_new_controllers_first_version_is_newer_than_any_of_the_last_one() -> None:
    cache = MetadataCache()
    cache.apply_push(a_push(orders(a_state()), controller_epoch=2, version=700))
    pushed = a_push(orders(a_state(partition_epoch=4)), controller_epoch=3, version=1)
    assert cache.apply_push(pushed).partitions == (KEY,)


def test_lower_partition_epochs_are_kept_out_and_reported_as_held() -> None:  # S17, I14
    cache = MetadataCache()
    cache.apply_push(a_push(orders(a_state(partition_epoch=8, leader_epoch=5))))
    stale = a_push(orders(a_state(partition_epoch=3)), controller_epoch=2)
    assert cache.apply_push(stale).partitions == ()
    assert cache.held_epochs == (
        ReportedEpoch(ORDERS.topic_id, 0, LeaderEpoch(5), PartitionEpoch(8)),
    )
    rebuilt = a_state(partition_epoch=9, leader_epoch=6)
    cache.apply_push(a_push(orders(rebuilt), controller_epoch=2, version=2))
    assert cache.held_epochs == ()
    assert cache.partition("orders", 0) == rebuilt


def test_absence_means_nothing() -> None:  # S12
    cache = MetadataCache()
    cache.apply_push(a_push(orders(a_state())))
    assert cache.apply_push(a_push(version=2)) == MetadataChanges()
    assert cache.partition("orders", 0) == a_state()


def test_an_explicit_entry_deletes_the_topic_and_its_partitions() -> None:
    cache = MetadataCache()
    cache.apply_push(a_push(orders(a_state())))
    assert cache.apply_push(a_push(orders(is_deleted=True), version=2)).deleted == (KEY[0],)
    assert (cache.topics, cache.partitions) == ({}, {})


def test_a_topic_recreated_under_its_name_is_another_topic() -> None:
    cache = MetadataCache()
    cache.apply_push(a_push(orders(a_state())))
    again = replace(ORDERS, topic_id=TopicId("id-2"))
    first = a_state(partition_epoch=0)
    entries = (TopicPush(again, (first,)), orders(is_deleted=True))
    assert cache.apply_push(a_push(*entries, version=2)) == MetadataChanges(
        topics=(again,), partitions=((again.topic_id, 0),), deleted=(KEY[0],)
    )
    assert cache.partition("orders", 0) == first


def test_there_is_no_address_without_a_leader_or_a_known_broker() -> None:
    cache = MetadataCache()
    assert cache.leader_of("orders", 0) is None
    cache.apply_push(a_push(orders(a_state(leader=-1))))
    assert cache.leader_of("orders", 0) is None
    cache.apply_push(a_push(orders(a_state(leader=2, partition_epoch=4)), version=2))
    assert cache.leader_of("orders", 0) is None
