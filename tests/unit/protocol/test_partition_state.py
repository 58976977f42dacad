"""States of partitions and topics: who leads, who is in sync, and a changed partition count."""

from dataclasses import replace

from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

STATE = PartitionState(
    partition=0,
    replicas=(BrokerId(0), BrokerId(2)),
    leader=BrokerId(0),
    leader_broker_epoch=BrokerEpoch(7),
    leader_epoch=LeaderEpoch(3),
    in_sync_replicas=(
        Member(BrokerId(0), BrokerEpoch(7)),
        Member(BrokerId(2), BrokerEpoch(5)),
    ),
    eligible_leaders=(Member(BrokerId(1), BrokerEpoch(9)),),
    partition_epoch=PartitionEpoch(4),
    min_insync_replicas=1,
)


def test_broker_0_is_a_leader_and_minus_one_is_none() -> None:
    assert STATE.has_leader
    assert not replace(STATE, leader=NO_BROKER).has_leader


def test_ids_in_sync_are_those_of_the_isr_alone() -> None:
    assert STATE.in_sync_ids == {0, 2}
    assert replace(STATE, in_sync_replicas=()).in_sync_ids == frozenset()


def test_members_are_ordered_by_broker_and_then_by_epoch() -> None:
    members = [Member(BrokerId(2), BrokerEpoch(1)), Member(BrokerId(1), BrokerEpoch(9))]
    members.append(Member(BrokerId(1), BrokerEpoch(3)))
    assert [(each.broker_id, each.broker_epoch) for each in sorted(members)] == [
        (1, 3),
        (1, 9),
        (2, 1),
    ]


def test_topic_with_another_partition_count_is_else_the_same() -> None:
    topic = TopicState("t", TopicId("id"), 3, 2, flush="Always", config={"a": "1"})
    grown = topic.counting(5)
    assert grown.partition_count == 5
    assert replace(grown, partition_count=3) == topic
    assert topic.counting(3) is topic
