"""A real Prometheus scrapes real brokers and the operator, and the audit reads what it stored."""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, IntervalKind
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.integration.test_local_mode import start_workload
from tests.support.local_cluster import ORDERS, LocalCluster, running
from tests.support.metric_docs import documented_families
from tests.support.prometheus_server import PrometheusServer, running_prometheus
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
POOL = """
apiVersion: tidemark.dev/v1alpha1
kind: BrokerPool
metadata: {name: default}
spec: {replicas: 3, metricsProfile: full}
---
"""


@dataclass
class Scraped:
    cluster: LocalCluster
    prometheus: PrometheusServer
    window: Window
    killed: int
    stopped: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_for_scrapes(prometheus: PrometheusServer, count: int) -> None:
    """So many more of every target, however slow the machine is."""
    began = time.monotonic()

    def scraped() -> bool:
        seconds = max(1, int(time.monotonic() - began))
        found = prometheus.query(f"min(count_over_time(up[{seconds}s]))")
        return bool(found) and found[0][1] >= count

    wait_for(f"{count} scrapes of every target", scraped, seconds=60)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Under load a leader is killed, then its successor is stopped in order."""
    path = tmp_path_factory.mktemp("scraped")
    out, until = path / "events.ndjson", path / "enough"
    with running(path / "cluster", manifest=POOL + ORDERS) as cluster:
        cluster.wait_until_in_sync()
        jobs = {
            "brokers": [url.removeprefix("http://") for url in cluster.broker_urls],
            "operator": [cluster.controller_url.removeprefix("http://")],
        }
        with running_prometheus(path / "prometheus", jobs) as prometheus:
            prometheus.wait_until_scraped()
            load = start_workload(cluster, out, until)
            wait_for_scrapes(prometheus, 4)
            start_ms = now_ms() - 2000
            leaders = []
            for how in (signal.SIGKILL, signal.SIGTERM):
                broker_id = int(cluster.partition(0)["leader"])
                leaders.append(broker_id)
                previous = cluster.broker(broker_id)["brokerEpoch"]
                cluster.kill(broker_id, how)
                wait_for(
                    f"another life of broker {broker_id}",
                    lambda broker_id=broker_id, previous=previous: (
                        cluster.broker(broker_id)["brokerEpoch"] > previous
                    ),
                    seconds=30,
                )
                cluster.wait_until_in_sync()
                wait_for_scrapes(prometheus, 4)
            until.touch()
            assert load.wait(timeout=60) == 0
            yield Scraped(cluster, prometheus, Window(start_ms, now_ms()), *leaders)


@pytest.fixture(scope="module")
def result(scraped: Scraped) -> AuditResult:
    sources = sources_at([scraped.prometheus.url])
    return audit(LocalEngine(), sources, window=scraped.window, interval_ms=1000)


def test_every_documented_family_is_scraped(scraped: Scraped) -> None:
    found = set(scraped.prometheus.ask("label/__name__/values"))
    # Of partitions with an unclean election, deleted topics, audits, Kafka's clients, TLS.
    elsewhere = {
        family.name
        for family in documented_families()
        if family.section.startswith("Audits")
        or family.name.startswith("tidemark_partition_recovery_")
        or family.name.endswith("_expiry_timestamp_seconds")
        or family.name
        in (
            "tidemark_connections_rejected_total",  # after the first one
            "tidemark_controller_lost_records",
            "tidemark_replica_is_retained",
            "tidemark_group_committed_offset",
            "tidemark_group_lag_records",
            "tidemark_kafka_request_errors_total",
            "tidemark_reconcile_in_progress_start_time_seconds",  # while a pass runs
        )
    }
    expected = {
        f"{family.name}_count" if "histogram" in family.kinds and "duration" in family.name
        else family.name
        for family in documented_families()
    }  # fmt: skip
    assert expected - elsewhere - found == set()


def test_the_kill_is_found_and_the_orderly_stop_is_called_planned(
    scraped: Scraped, result: AuditResult
) -> None:
    degraded = [each for each in result.intervals if each.kind is IntervalKind.UNDER_REPLICATED]
    reported = {(broker, each.planned) for each in degraded for broker in each.brokers}
    assert reported == {(str(scraped.killed), False), (str(scraped.stopped), True)}


def test_nothing_is_lost_and_nothing_is_made_up(result: AuditResult) -> None:
    assert result.loss_evidence == ()
    assert {row.topic for row in result.sli_by_partition} == {"orders"}
    assert all(row.total_ms == result.window_ms for row in result.sli_by_partition)


def test_elections_are_seen_with_their_kind(scraped: Scraped) -> None:
    counted = {
        labels["kind"]: value
        for labels, value in scraped.prometheus.query(
            'sum by (kind) (tidemark_partition_leader_elections_total{topic="orders"})'
        )
    }
    assert counted["unclean"] == 0
    assert counted["clean"] >= 1  # the killed broker led something
    assert counted["planned"] >= 1


def test_replicas_that_name_a_boundary_name_one_digest(scraped: Scraped) -> None:
    def at_one_boundary() -> dict[tuple[str, float], set[float]] | None:
        offsets: dict[tuple[str, str], float] = {}
        digests: dict[tuple[str, str], float] = {}
        for labels, value in scraped.prometheus.query(
            '{__name__=~"tidemark_replica_digest(_offset)?"}'
        ):
            is_offset = labels["__name__"].endswith("_offset")
            replica = (labels["partition"], labels["broker"])
            (offsets if is_offset else digests)[replica] = value
        found: dict[tuple[str, float], list[float]] = {}
        for replica, offset in offsets.items():
            if offset > 0:
                found.setdefault((replica[0], offset), []).append(digests[replica])
        return {place: set(each) for place, each in found.items() if len(each) == 3} or None

    for digests in wait_for("three replicas at one boundary", at_one_boundary, seconds=60).values():
        assert len(digests) == 1
