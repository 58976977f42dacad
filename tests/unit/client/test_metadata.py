"""Views are merged by epochs, and read from each form in which they come."""

import pytest
from tidemark_client.cluster_status import BrokerRow, ClusterStatus, read_status, status_of_objects
from tidemark_client.metadata import (
    NO_LEADER,
    ClusterMetadata,
    PartitionView,
    TopicView,
    UnreadableResponse,
    read_brokers,
    read_topic,
)


def view(leader: int, leader_epoch: int, partition_epoch: int = 0) -> TopicView:
    replicas = (0, 1, 2)
    return TopicView(
        "orders", (PartitionView(0, leader, leader_epoch, replicas, replicas, partition_epoch),)
    )


def test_an_older_view_never_replaces_a_newer_one() -> None:
    metadata = ClusterMetadata()
    assert metadata.on_topic(view(1, leader_epoch=2))
    assert not metadata.on_topic(view(0, leader_epoch=1))
    assert not metadata.on_topic(view(1, leader_epoch=2))
    assert metadata.topic("orders") == view(1, leader_epoch=2)


def test_a_newer_partition_epoch_is_taken_too() -> None:
    metadata = ClusterMetadata()
    metadata.on_topic(view(1, 2, partition_epoch=5))
    assert not metadata.on_topic(view(1, 2, partition_epoch=4))
    assert metadata.on_topic(view(1, 2, partition_epoch=6))


def test_a_leader_without_an_address_has_no_url() -> None:
    metadata = ClusterMetadata()
    metadata.on_topic(view(1, 2))
    assert metadata.leader_url("orders", 0) is None
    assert metadata.on_brokers({1: "http://b1:8080"})
    assert not metadata.on_brokers({1: "http://b1:8080"})
    assert metadata.leader_url("orders", 0) == "http://b1:8080"


def test_both_families_of_replica_lists_are_read() -> None:
    ours = {
        "name": "orders",
        "partitions": [
            {
                "partition": 0,
                "leader": 1,
                "leader_epoch": 2,
                "replicas": [0, 1],
                "in_sync_replicas": [1],
            }
        ],
    }
    bridge = {
        "name": "orders",
        "partitions": [
            {
                "partition": 0,
                "leader": 1,
                "leader_epoch": 2,
                "replicas": [
                    {"broker": 0, "leader": False, "in_sync": False},
                    {"broker": 1, "leader": True, "in_sync": True},
                ],
            }
        ],
    }
    assert read_topic(ours) == read_topic(bridge)
    assert read_topic(ours).partitions == (PartitionView(0, 1, 2, (0, 1), (1,)),)


def test_no_leader_is_never_in_sync() -> None:
    partition = PartitionView(0, NO_LEADER, 3, (0,), (0,))
    assert not partition.is_fully_in_sync


@pytest.mark.parametrize("body", [None, [], {"name": "x"}, {"name": "x", "partitions": [{}]}])
def test_a_strange_topic_is_refused(body: object) -> None:
    with pytest.raises(UnreadableResponse):
        read_topic(body)


def test_brokers_without_an_address_are_left_out() -> None:
    body = {"brokers": [{"broker_id": 0, "http_url": "http://a:1/"}, {"broker_id": 1}, 2]}
    assert read_brokers(body) == {0: "http://a:1"}


def test_objects_and_the_controllers_status_give_the_same_picture() -> None:
    expected = ClusterStatus(
        (BrokerRow(0, "Active", 7, "http://a:8080", "r1", "default"),),
        (
            TopicView(
                "orders",
                (PartitionView(0, 0, 3, (0, 1), (0,), 9),),
                pool="default",
                object_name="shop",
            ),
        ),
        retained=(TopicView("old", (), pool="default", object_name="old"),),
    )
    endpoints = {"host": "10.0.0.1", "advertisedHttpUrl": "http://a:8080"}
    partition = {
        "partition": 0,
        "leader": 0,
        "leaderEpoch": 3,
        "partitionEpoch": 9,
        "replicas": [0, 1],
        "isr": [{"id": 0, "epoch": 7}],
    }
    objects = status_of_objects(
        [
            {
                "spec": {"pool": "default/default", "brokerId": 0},
                "status": {
                    "state": "Active",
                    "brokerEpoch": 7,
                    "endpoints": endpoints,
                    "rack": "r1",
                },
            }
        ],
        [
            {
                "topicName": "orders",
                "topicObject": "shop",
                "pool": "default/default",
                "partitions": [partition],
            },
            {"topicName": "old", "pool": "default/default", "retained": True, "partitions": []},
        ],
    )
    status = read_status(
        {
            "leads": True,
            "pools": [
                {
                    "pool": "default/default",
                    "brokers": [
                        {
                            "brokerId": 0,
                            "state": "Active",
                            "brokerEpoch": 7,
                            "advertisedHttpUrl": "http://a:8080",
                            "rack": "r1",
                        }
                    ],
                    "topics": [
                        {"topic": "orders", "objectName": "shop", "partitions": [partition]},
                        {"topic": "old", "retained": True, "partitions": []},
                    ],
                }
            ],
        }
    )
    assert objects == expected
    assert status == expected


@pytest.mark.parametrize("body", [None, {}, {"pools": [{}]}, {"pools": [{"pool": 1}]}, "x"])
def test_a_strange_status_is_refused(body: object) -> None:
    with pytest.raises(UnreadableResponse):
        read_status(body)
