"""A guard aborts after its time, and only for what is still wrong then."""

from tidemark_chaos.guards import GuardWatch
from tidemark_chaos.spec import AbortWhen, Guards
from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.metadata import PartitionView, TopicView

GUARDS = Guards(min_in_sync=2, for_seconds=5.0, abort_when=AbortWhen(write_gap_seconds=10.0))


def status(in_sync: tuple[int, ...], leader: int = 0) -> ClusterStatus:
    view = PartitionView(0, leader, 1, (0, 1, 2), in_sync)
    return ClusterStatus((), (TopicView("chaos", (view,)),))


def test_too_few_in_sync_abort_after_their_time_only() -> None:
    watch = GuardWatch(GUARDS, "chaos")
    assert watch.on_sample(0.0, status((0,))) is None
    assert watch.on_sample(5.0, status((0,))) is None
    assert watch.on_sample(5.1, status((0,))) == (
        "chaos-0 had 1 replicas in sync for more than 5 s, the guard is 2"
    )


def test_a_recovery_resets_the_time() -> None:
    watch = GuardWatch(GUARDS, "chaos")
    watch.on_sample(0.0, status((0,)))
    watch.on_sample(4.0, status((0, 1)))
    assert watch.on_sample(6.0, status((0,))) is None


def test_a_partition_without_a_leader_has_none_in_sync() -> None:
    watch = GuardWatch(GUARDS, "chaos")
    watch.on_sample(0.0, status((0, 1, 2), leader=-1))
    assert "had 0 replicas" in str(watch.on_sample(6.0, status((0, 1, 2), leader=-1)))


def test_a_controller_that_does_not_answer_says_nothing() -> None:
    assert GuardWatch(GUARDS, "chaos").on_sample(0.0, None) is None


def test_write_gaps_and_violations_abort() -> None:
    watch = GuardWatch(GUARDS, "chaos")
    assert watch.on_write_gap({0: 9.9, 1: 10.0}) is None
    assert watch.on_write_gap({0: 1.0, 1: 10.1}) == "chaos-1 acknowledged no record for 10.1 s"
    assert watch.on_violations([]) is None
    assert watch.on_violations(["offset 3 twice"]) == (
        "a guarantee was broken while the experiment ran: offset 3 twice"
    )
