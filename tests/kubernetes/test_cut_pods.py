"""Faults of a leader's pod that no kill is, under load: cut from all, cut from its followers, alone
in sync and killed. Every promise to its clients is kept, and no two replicas differ."""

import logging
import signal
import uuid
from collections.abc import Iterator

import pytest

from tests.kubernetes.kube_cluster import ON_KUBERNETES, KubeCluster, topic
from tests.kubernetes.pod_cuts import cut_off

log = logging.getLogger(__name__)

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.timeout(300),
]
TOPIC, SLICE = "cut", "cut-0"
BROKERS = frozenset(range(3))


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"cut-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    # A leader that does not hear its followers gives them the lag window.
    config = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}
    cluster.apply(topic(TOPIC, partitions=1, replicationFactor=3, config=config))
    cluster.wait_ready(TOPIC, timeout_s=90)
    cluster.until_in_sync(TOPIC)
    yield cluster
    cluster.delete_namespace()


def in_sync(cluster: KubeCluster) -> set[int]:
    (partition,) = cluster.must_get("pslice", SLICE)["partitions"]
    return {member["id"] for member in partition["isr"]}


def leader_that_stays(cluster: KubeCluster) -> int:
    """Return the leader once leadership is back at the preferred replica.

    The test before moved it away. A leader that loses leadership to the balancer after it was
    named here would be a follower when it is cut off.
    """
    cluster.until_in_sync(TOPIC)
    cluster.until_preferred_lead(SLICE)
    return cluster.leader_of(SLICE)


def until_in_sync_are(cluster: KubeCluster, *brokers: int) -> None:
    cluster.until(lambda: in_sync(cluster) == set(brokers), f"{brokers} alone in sync")


def test_a_leader_that_nobody_reaches_is_replaced_and_comes_back(cluster: KubeCluster) -> None:
    leader = leader_that_stays(cluster)
    with cluster.load(TOPIC, "cut-off") as load:
        with cut_off(cluster, leader):
            seconds = cluster.until(
                lambda: cluster.leader_of(SLICE) not in (leader, -1), "another broker leads"
            )
            log.info(f"another broker leads after {seconds:.1f} s")
            load.goes_on()
            assert leader not in in_sync(cluster)
        log.info(f"in sync again {cluster.until_in_sync(TOPIC):.1f} s after the cut healed")
        load.clean_verdict()


def test_a_leader_that_its_followers_do_not_reach_acknowledges_nothing_alone(
    cluster: KubeCluster,
) -> None:
    leader = leader_that_stays(cluster)
    with cluster.load(TOPIC, "cut-peers") as load:
        with cut_off(cluster, leader, peers=sorted(BROKERS - {leader})):
            until_in_sync_are(cluster, leader)
            before = load.acknowledged()
            state = cluster.must_get("pslice", SLICE)["partitions"][0]
            assert state["leader"] == leader
            assert load.acknowledged() == before
        cluster.until_in_sync(TOPIC)
        load.goes_on()
        load.clean_verdict()


def test_the_only_one_in_sync_is_killed_and_leads_again(cluster: KubeCluster) -> None:
    leader = leader_that_stays(cluster)
    followers = sorted(BROKERS - {leader})
    with cluster.load(TOPIC, "alone") as load:
        # One by one: a controller that loses most of its brokers at once suspects itself.
        for number, follower in enumerate(followers, start=1):
            cluster.signal_broker(follower, signal.SIGSTOP)
            until_in_sync_are(cluster, leader, *followers[number:])
        try:
            epoch = cluster.broker_epoch(leader)
            cluster.kill_broker(leader)
            cluster.until(
                lambda: cluster.broker_epoch(leader) > epoch and cluster.leader_of(SLICE) == leader,
                "it leads again alone",
            )
            assert in_sync(cluster) == {leader}
        finally:
            for follower in followers:
                cluster.signal_broker(follower, signal.SIGCONT)
        cluster.until_in_sync(TOPIC)
        load.goes_on()
        load.clean_verdict()
