"""The leader's choice of the replica that a consumer reads from (KIP-392)."""

from dataclasses import replace

import pytest
from tidemark_broker.replication.core.leader import PartitionLeader, preferred_replica
from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.ids import BrokerId, Offset

from tests.unit.broker.replication.core.leaders import START_MS, a_leader, brokers, fetches, members

RACKS = {1: "west", 2: "east", 3: "east"}


def in_racks(
    found: dict[BrokerId, BrokerState], racks: dict[int, str] = RACKS
) -> dict[BrokerId, BrokerState]:
    return {number: replace(state, rack=racks.get(number, "")) for number, state in found.items()}


def choose(
    leader: PartitionLeader,
    *,
    rack: str = "east",
    offset: int = 0,
    known: dict[BrokerId, BrokerState] | None = None,
) -> int:
    found = in_racks(brokers()) if known is None else known
    return preferred_replica(leader, found, rack=rack, offset=Offset(offset))


@pytest.fixture
def leader() -> PartitionLeader:
    found = a_leader(log_end=10, high_watermark=0)
    fetches(found, 2, 10, now_ms=START_MS + 1)
    fetches(found, 3, 9, now_ms=START_MS + 1)
    return found


def test_the_member_of_the_readers_rack_that_has_most_is_preferred(leader: PartitionLeader) -> None:
    assert choose(leader) == 2
    fetches(leader, 3, 10, now_ms=START_MS + 5)
    assert choose(leader) == 3  # as much, and caught up later
    fetches(leader, 2, 10, now_ms=START_MS + 5)
    assert choose(leader) == 2  # nothing between them: the lowest id


def test_without_a_rack_or_with_the_leaders_own_it_is_the_leader(leader: PartitionLeader) -> None:
    assert choose(leader, rack="") == 1
    assert choose(leader, rack="west") == 1
    racks = {1: "east", 2: "east", 3: "east"}
    assert choose(leader, known=in_racks(brokers(), racks)) == 1


def test_nobody_in_that_rack_means_the_leader(leader: PartitionLeader) -> None:
    assert choose(leader, rack="north") == 1


def test_one_that_is_not_known_to_have_the_offset_is_not_preferred(leader: PartitionLeader) -> None:
    assert choose(leader, offset=10) == 2
    assert choose(leader, offset=11) == 1


def test_one_that_has_deleted_the_offset_already_is_not_preferred(leader: PartitionLeader) -> None:
    """Each replica deletes for itself: sent there, a client would be sent back, for ever."""
    fetches(leader, 2, 10, now_ms=START_MS + 5, log_start=4)
    assert choose(leader, offset=4) == 2
    assert choose(leader, offset=3) == 3
    fetches(leader, 3, 10, now_ms=START_MS + 5, log_start=9)
    assert choose(leader, offset=3) == 1
    again = a_leader(leader_epoch=6, log_end=10, high_watermark=0, previous=leader)
    assert choose(again, offset=3) == 1


def test_a_replica_out_of_sync_is_never_preferred() -> None:
    leader = a_leader(in_sync=(1, 3), log_end=10, high_watermark=0)
    fetches(leader, 2, 10)  # it is proposed now: not yet in the durable set (KAFKA-14372)
    fetches(leader, 3, 5)
    assert leader.pending_proposal is not None
    assert choose(leader) == 3
    assert choose(leader, offset=6) == 1


def test_a_fenced_or_stopping_member_is_not_preferred(leader: PartitionLeader) -> None:
    assert choose(leader, known=in_racks(brokers(fenced=(2,)))) == 3
    assert choose(leader, known=in_racks(brokers(stopping=(2, 3)))) == 1


def test_another_life_of_a_member_is_not_preferred(leader: PartitionLeader) -> None:  # S2
    assert choose(leader, known=in_racks(brokers(epochs={2: 99}))) == 3
    assert members(2)[0] in leader.in_sync_replicas
