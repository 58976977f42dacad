"""Roles become brokers when the fault begins."""

from dataclasses import replace

import pytest
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import FaultName, Role
from tidemark_chaos.targets import NoTarget, choose, led_by
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.metadata import PartitionView, TopicView

STATUS = ClusterStatus(
    brokers=tuple(BrokerRow(number, "Active") for number in range(3)),
    topics=(
        TopicView(
            "chaos",
            (
                PartitionView(0, 1, 4, (0, 1, 2), (0, 1, 2)),
                PartitionView(1, -1, 5, (1, 2, 0), (1,)),
                PartitionView(2, 1, 6, (2, 0, 1), (2, 0, 1)),
            ),
        ),
    ),
)
NONE: frozenset[int] = frozenset()


def fault(role: Role, partition: int = 0, count: int = 1, draw: float = 0.0) -> PlannedFault:
    return PlannedFault(1, FaultName.KILL, role, partition, count, 0.0, 6.0, draw)


def test_a_leader_and_its_followers_are_found() -> None:
    assert choose(fault(Role.LEADER), STATUS, "chaos", NONE) == (1,)
    assert choose(fault(Role.FOLLOWER), STATUS, "chaos", NONE) == (0,)
    assert choose(fault(Role.FOLLOWER, draw=0.9), STATUS, "chaos", NONE) == (2,)
    assert choose(fault(Role.FOLLOWER, count=2, draw=0.9), STATUS, "chaos", NONE) == (0, 2)


def test_all_and_random_brokers_are_those_that_run() -> None:
    gone = replace(STATUS.brokers[2], state="Gone")
    status = replace(STATUS, brokers=(*STATUS.brokers[:2], gone))
    assert choose(fault(Role.ALL), status, "chaos", NONE) == (0, 1)
    assert choose(fault(Role.RANDOM, draw=0.99), status, "chaos", NONE) == (1,)


def test_the_controller_is_no_broker() -> None:
    assert choose(fault(Role.CONTROLLER), None, "chaos", NONE) == ()


def test_a_broker_that_another_fault_holds_is_not_chosen() -> None:
    assert choose(fault(Role.FOLLOWER), STATUS, "chaos", frozenset({0})) == (2,)
    with pytest.raises(NoTarget, match="0 brokers with role leader"):
        choose(fault(Role.LEADER), STATUS, "chaos", frozenset({1}))


@pytest.mark.parametrize(
    ("partition", "status", "sentence"),
    [
        (1, STATUS, "chaos-1 has no leader"),
        (9, STATUS, "chaos-9 is not known"),
        (0, None, "the controller does not answer"),
        (0, ClusterStatus(), "chaos-0 is not known"),
    ],
)
def test_a_role_that_nothing_has_is_an_error(
    partition: int, status: ClusterStatus | None, sentence: str
) -> None:
    with pytest.raises(NoTarget, match=sentence):
        choose(fault(Role.LEADER, partition), status, "chaos", NONE)


def test_the_partitions_of_a_leader_are_those_that_it_leads() -> None:
    assert led_by(STATUS, "chaos", (1,)) == (0, 2)
    assert led_by(STATUS, "chaos", (0, 2)) == ()
    assert led_by(None, "chaos", (1,)) == ()
