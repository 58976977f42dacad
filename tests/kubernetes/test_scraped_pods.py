"""A real Prometheus pod finds brokers and operator by itself, and the audit tells a kill from a
pod that was deleted in order."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Interval, IntervalKind
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.kubernetes import prometheus_pod
from tests.kubernetes.kube_cluster import ON_KUBERNETES, KubeCluster, topic
from tests.kubernetes.scraped_cluster import (
    INTERVAL_MS,
    TARGETS,
    now_ms,
    scraped_cluster,
    until_scraped,
    up,
)

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.timeout(600),
]
TOPIC = "scraped"
KILLED, DELETED = 1, 2


@dataclass(frozen=True, slots=True)
class Reported:
    """What was done, and what the audit says of it."""

    result: AuditResult
    killed_at_ms: int
    deleted_at_ms: int
    targets_up: int


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    with scraped_cluster("scraped") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def reported(cluster: KubeCluster) -> Reported:
    cluster.apply(topic(TOPIC, partitions=3))
    cluster.wait_ready(TOPIC, timeout_s=90)
    cluster.until_in_sync(TOPIC)
    prometheus_pod.deploy(cluster)
    with prometheus_pod.forwarded(cluster) as url, cluster.load(TOPIC, "scraped") as load:
        until_scraped(cluster, url)
        load.goes_on()
        targets, start_ms = up(url), now_ms()
        load.goes_on()
        epoch, killed_at_ms = cluster.broker_epoch(KILLED), now_ms()
        cluster.kill_broker(KILLED)
        cluster.until_back(KILLED, epoch, TOPIC)
        load.goes_on()
        epoch, deleted_at_ms = cluster.broker_epoch(DELETED), now_ms()
        cluster.kubectl("delete", "pod", f"default-{DELETED}", "--wait=false")
        cluster.until_back(DELETED, epoch, TOPIC)
        load.goes_on()
        load.clean_verdict()
        # Both ends of the window lie between scrapes of every target.
        end_ms = now_ms() - 2 * INTERVAL_MS
        result = audit(
            LocalEngine(),
            sources_at([url]),
            window=Window(start_ms, end_ms),
            interval_ms=INTERVAL_MS,
        )
    return Reported(result, killed_at_ms, deleted_at_ms, targets)


def degraded(reported: Reported) -> list[Interval]:
    return [
        each
        for each in reported.result.intervals
        if each.partition.topic == TOPIC and each.kind is IntervalKind.UNDER_REPLICATED
    ]


def test_brokers_and_both_operators_are_found_by_their_annotations(reported: Reported) -> None:
    assert reported.targets_up >= TARGETS


def absence(reported: Reported, broker: int, since_ms: int) -> Interval:
    """The first time from then on that the broker is missing from an in-sync set. On a crowded
    machine a follower can fall behind at other times too: that is no mistake of the audit."""
    found = [
        each
        for each in degraded(reported)
        if str(broker) in each.brokers and each.start_ms >= since_ms - INTERVAL_MS
    ]
    assert found, f"broker {broker} was never missed: {degraded(reported)}"
    return min(found, key=lambda each: each.start_ms)


def test_the_kill_is_unplanned_and_the_deleted_pod_is_planned(reported: Reported) -> None:
    assert not absence(reported, KILLED, reported.killed_at_ms).planned
    assert absence(reported, DELETED, reported.deleted_at_ms).planned


def test_both_begin_within_a_scrape_of_the_blow(reported: Reported) -> None:
    """A killed broker leaves the in-sync sets when it is fenced, a fraction of a second later."""
    for broker, at_ms in ((KILLED, reported.killed_at_ms), (DELETED, reported.deleted_at_ms)):
        assert absence(reported, broker, at_ms).start_ms - at_ms <= 5000 + INTERVAL_MS


def test_nothing_is_lost(reported: Reported) -> None:
    assert [each for each in reported.result.loss_evidence if each.partition.topic == TOPIC] == []
