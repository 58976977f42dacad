"""Why the ISR lost members, as the leader counts it."""

from dataclasses import replace

import pytest
from tidemark_broker.replication.partition_snapshot import IsrChanges, ShrinkReason
from tidemark_protocol.controller_messages import BrokerState, Endpoints, IsrProposal
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidemark_protocol.partition_state import Member, PartitionState

MEMBERS = tuple(Member(BrokerId(number), BrokerEpoch(5)) for number in (1, 2, 3))
STATE = PartitionState(
    partition=0,
    replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
    leader=BrokerId(1),
    leader_broker_epoch=BrokerEpoch(5),
    leader_epoch=LeaderEpoch(2),
    in_sync_replicas=MEMBERS,
    eligible_leaders=(),
    partition_epoch=PartitionEpoch(8),
    min_insync_replicas=2,
)


def brokers(*, stopping: tuple[int, ...] = ()) -> dict[BrokerId, BrokerState]:
    endpoints = Endpoints("127.0.0.1", 9092, 8080, "http://b")
    return {
        member.broker_id: BrokerState(
            member.broker_id, member.broker_epoch, False, member.broker_id in stopping, endpoints
        )
        for member in MEMBERS
    }


def without(*gone: int) -> PartitionState:
    kept = tuple(member for member in MEMBERS if member.broker_id not in gone)
    return replace(STATE, in_sync_replicas=kept, partition_epoch=PartitionEpoch(9))


def proposal_without(*gone: int) -> IsrProposal:
    kept = without(*gone).in_sync_replicas
    return IsrProposal(TopicId("t"), 0, STATE.leader_epoch, STATE.partition_epoch, kept)


@pytest.mark.parametrize(
    ("after", "stopping", "proposal", "expected"),
    [
        (without(3), (), proposal_without(3), {"lag": 1}),
        (without(3), (), None, {"fenced": 1}),
        (without(3), (), proposal_without(2), {"fenced": 1}),
        (without(3), (3,), None, {"planned": 1}),
        (without(2, 3), (3,), proposal_without(2), {"lag": 1, "planned": 1}),
        (without(2, 3), (), None, {"fenced": 1}),
        (STATE, (), None, {}),
    ],
)
def test_a_shrink_counts_once_for_each_of_its_reasons(
    after: PartitionState,
    stopping: tuple[int, ...],
    proposal: IsrProposal | None,
    expected: dict[str, int],
) -> None:
    changes = IsrChanges()
    changes.note(STATE, after, brokers(stopping=stopping), proposal)
    counted = {reason.value: count for reason, count in changes.shrinks if count}
    assert (counted, changes.expands) == (expected, 0)


def test_who_comes_back_expands() -> None:
    changes = IsrChanges()
    changes.note(without(2, 3), STATE, brokers(), None)
    assert (dict(changes.shrinks), changes.expands) == (dict.fromkeys(ShrinkReason, 0), 1)
