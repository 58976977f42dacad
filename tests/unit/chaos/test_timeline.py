"""Samples of the status become changes; a sample that shows nothing new adds nothing."""

from tidemark_chaos.timeline import Timeline
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.metadata import PartitionView, TopicView


def status(leader: int, epoch: int, in_sync: tuple[int, ...], state: str) -> ClusterStatus:
    view = PartitionView(0, leader, epoch, (0, 1), in_sync)
    return ClusterStatus((BrokerRow(0, state),), (TopicView("chaos", (view,)),))


def test_a_failover_is_told_once_by_its_parts() -> None:
    timeline = Timeline("chaos")
    for t_ms, sample in (
        (1.0, status(0, 3, (0, 1), "Active")),
        (2.0, status(0, 3, (1, 0), "Active")),
        (3.0, status(1, 4, (1,), "Fenced")),
        (4.0, status(1, 4, (1,), "Fenced")),
        (5.0, status(1, 4, (0, 1), "Active")),
    ):
        timeline.on_sample(t_ms, sample)
    assert [(change.t_ms, change.text) for change in timeline.changes] == [
        (1.0, "broker 0 is Active"),
        (1.0, "chaos-0: leader 0, leader epoch 3"),
        (1.0, "chaos-0: in sync 0, 1"),
        (3.0, "broker 0 is Fenced, was Active"),
        (3.0, "chaos-0: leader 1, leader epoch 4"),
        (3.0, "chaos-0: in sync 1"),
        (5.0, "broker 0 is Active, was Fenced"),
        (5.0, "chaos-0: in sync 0, 1"),
    ]


def test_a_controller_that_does_not_answer_is_told_when_it_begins_and_ends() -> None:
    timeline = Timeline("chaos")
    for t_ms, sample in ((1.0, None), (2.0, None), (3.0, ClusterStatus())):
        timeline.on_sample(t_ms, sample)
    assert [(change.t_ms, change.what, change.text) for change in timeline.changes] == [
        (1.0, "controller", "the controller does not answer"),
        (3.0, "controller", "the controller answers again"),
    ]


def test_a_partition_without_a_leader_says_so() -> None:
    timeline = Timeline("chaos")
    timeline.on_sample(1.0, status(-1, 3, (0,), "Fenced"))
    assert timeline.changes[1].text == "chaos-0: no leader, leader epoch 3"
