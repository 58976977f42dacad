"""A topic that is deleted while its data is kept is no outage, in its window and in later ones."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, IntervalKind
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.integration.test_real_scrapes import now_ms, wait_for_scrapes
from tests.support.local_cluster import ORDERS, running
from tests.support.prometheus_server import running_prometheus
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
TEMPORARY = ORDERS.replace("name: orders", "name: tmp")


@dataclass
class Audits:
    of_the_deletion: AuditResult
    afterwards: AuditResult


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audits]:
    path: Path = tmp_path_factory.mktemp("deleted")
    with running(path / "cluster", manifest=f"{ORDERS}\n---\n{TEMPORARY}") as cluster:
        cluster.wait_until_in_sync()
        jobs = {
            "brokers": [url.removeprefix("http://") for url in cluster.broker_urls],
            "operator": [cluster.controller_url.removeprefix("http://")],
        }
        with running_prometheus(path / "prometheus", jobs) as prometheus:
            prometheus.wait_until_scraped()
            in_sync = 'min(tidemark_partition_in_sync_replicas{topic="tmp"})'
            wait_for(
                "the topic tmp to be in sync",
                lambda: [value for _, value in prometheus.query(in_sync)] == [3.0],
                seconds=60,
            )
            wait_for_scrapes(prometheus, 4)
            start_ms = now_ms()
            wait_for_scrapes(prometheus, 4)
            command = [sys.executable, "-m", "tidemark_cli.main", "topics", "delete", "tmp"]
            command += ["--server", cluster.controller_url]
            subprocess.run(command, check=True, timeout=60, capture_output=True)
            kept = 'count(tidemark_replica_is_retained{topic="tmp"} == 1)'
            wait_for(
                "every broker to say that it keeps the data",
                lambda: bool(found := prometheus.query(kept)) and found[0][1] == 9,
                seconds=60,
            )
            wait_for_scrapes(prometheus, 6)
            middle_ms = now_ms()
            wait_for_scrapes(prometheus, 6)
            windows = (Window(start_ms, middle_ms), Window(middle_ms, now_ms()))
            sources = sources_at([prometheus.url])
            yield Audits(
                *(audit(LocalEngine(), sources, window=w, interval_ms=1000) for w in windows)
            )


def test_the_window_of_the_deletion_shows_no_outage(audits: Audits) -> None:
    result = audits.of_the_deletion
    assert {row.topic for row in result.sli_by_partition} == {"orders", "tmp"}
    bad = [each for each in result.intervals if each.kind is not IntervalKind.UNOBSERVED]
    assert bad == []
    # On a crowded machine scrapes may fail; that is a gap in the evidence.
    assert {each.rule for each in result.findings} <= {"R4", "R8"}


def test_later_windows_do_not_know_the_topic(audits: Audits) -> None:
    result = audits.afterwards
    assert {row.topic for row in result.sli_by_partition} == {"orders"}
    assert "tmp" not in " ".join(f"{each.subject} {each.sentence}" for each in result.findings)
    assert {each.rule for each in result.findings} <= {"R4", "R8"}
