"""Conditions that `tidemark status` tells, and brokers that commands refuse to name."""

from typing import Any

import pytest
from tidemark_cli.commands.move import _original
from tidemark_client.cluster_status import BrokerRow, ClusterStatus, open_conditions, read_status
from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import PartitionView, TopicView


def item(name: str, *conditions: tuple[str, str, str]) -> dict[str, Any]:
    reported = [{"type": t, "status": s, "reason": "R", "message": m} for t, s, m in conditions]
    return {"metadata": {"name": name}, "status": {"conditions": reported}}


def test_what_is_well_is_not_told() -> None:
    items = [
        {"metadata": {"name": "new"}},
        item("good", ("Ready", "True", "all led"), ("FullyReplicated", "True", "all in sync")),
        item("big", ("Ready", "False", "needs 5 brokers")),
        item("orders", ("Moving", "True", "partition 0"), ("Placed", "False", "no broker 7")),
    ]
    assert [str(each) for each in open_conditions("Topic", items)] == [
        "topic/big: not Ready: needs 5 brokers",
        "topic/orders: Moving: partition 0",
        "topic/orders: not Placed: no broker 7",
    ]


def test_brokers_that_are_not_in_the_pool_are_refused() -> None:
    status = ClusterStatus(
        brokers=(
            BrokerRow(0, "Active", pool="default"),
            BrokerRow(1, "Fenced", pool="default"),
            BrokerRow(2, "Gone", pool="default"),
            BrokerRow(3, "Active", pool="other"),
        )
    )
    status.check_brokers("default", [1, 0])
    for unknown in (2, 3, 7):
        with pytest.raises(CommandFailed, match=f"no broker {unknown}. Brokers: 0, 1"):
            status.check_brokers("default", [0, unknown])


def test_a_controller_that_does_not_lead_says_so() -> None:
    assert read_status({"leads": True, "pools": []}).has_controller
    assert not read_status({"leads": False, "pools": []}).has_controller


def view(replicas: tuple[int, ...], adding: tuple[int, ...] = ()) -> ClusterStatus:
    partition = PartitionView(
        partition=0, leader=0, leader_epoch=0, replicas=replicas, in_sync_replicas=(0,),
        partition_epoch=0, min_insync_replicas=1, adding=adding,
    )  # fmt: skip
    return ClusterStatus(
        topics=(TopicView("orders", (partition,), pool="default", object_name="orders"),)
    )


def topic(*placement: Any) -> dict[str, Any]:
    return {"metadata": {"name": "orders"}, "spec": {"placement": list(placement)}}


def test_a_move_is_turned_back_also_before_it_begins() -> None:
    requested = topic({"partition": 0, "replicas": [7, 1, 2]})
    assert _original(view((0, 1, 2)), requested, "orders", 0) == [0, 1, 2]
    assert _original(view((3, 1, 2, 0), adding=(3,)), topic(), "orders", 0) == [1, 2, 0]
    for settled in (topic(), topic({"partition": 0, "replicas": [0, 1]})):
        with pytest.raises(CommandFailed, match="is not being moved"):
            _original(view((0, 1)), settled, "orders", 0)
