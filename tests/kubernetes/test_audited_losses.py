"""Show 3 of the audit, on a real cluster with a real Prometheus: a kill, a rolling restart and an
unclean election that really loses records, held against the harness's own record of them.

The loss: of two replicas one is frozen until it left the in-sync set; the leader takes more records
alone; then the leader is frozen and the other one thawed, which leads without them.
"""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tidemark_audit.analysis.anomalies import AnomalyKind
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Interval, IntervalKind, LossKind, Severity, Verdict
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.kubernetes import prometheus_pod
from tests.kubernetes.kube_cluster import ON_KUBERNETES, KubeCluster, topic
from tests.kubernetes.scraped_cluster import (
    INTERVAL_MS,
    TARGETS,
    now_ms,
    queried,
    scraped_cluster,
    until_scraped,
)

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.long,
    pytest.mark.timeout(1200),
]
SAFE, CARELESS = "safe", "careless"
KILLED = 1
KEPT, LOST = 10, 25
# A broker that is killed or frozen leaves the in-sync sets when it is fenced.
FENCED_WITHIN_MS = 5000


@dataclass(frozen=True, slots=True)
class Span:
    """Something happened between these two moments of the harness's clock."""

    start_ms: int
    end_ms: int

    def is_seen_in(self, after_ms: int, at_ms: int) -> bool:
        """By two scrapes around it, one interval more or less."""
        return after_ms <= self.end_ms + INTERVAL_MS and at_ms >= self.start_ms - INTERVAL_MS


@dataclass(frozen=True, slots=True)
class Record:
    """What was really done, and what the audit says of it."""

    result: AuditResult
    killed: Span
    rolled: Span
    elected: Span
    truncated: Span


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    with scraped_cluster("losses") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def record(cluster: KubeCluster) -> Record:
    cluster.apply(topic(SAFE, partitions=3))
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    cluster.apply(topic(CARELESS, partitions=1, replicationFactor=2, config=config))
    for name in (SAFE, CARELESS):
        cluster.wait_ready(name, timeout_s=120)
        cluster.until_in_sync(name, timeout_s=90)
    prometheus_pod.deploy(cluster)
    with prometheus_pod.forwarded(cluster) as url:
        until_scraped(cluster, url)
        start_ms = now_ms()
        until_scraped(cluster, url, after_ms=start_ms + 5 * INTERVAL_MS)
        with cluster.load(SAFE, "losses") as load:
            killed = kill(cluster)
            load.goes_on()
            rolled = roll(cluster)
            load.goes_on()
            load.clean_verdict()
        elected, truncated = lose_records(cluster, url)
        end_ms = now_ms() + 3 * INTERVAL_MS
        until_scraped(cluster, url, after_ms=end_ms)
        window = Window(start_ms, end_ms)
        result = audit(LocalEngine(), sources_at([url]), window=window, interval_ms=INTERVAL_MS)
    return Record(result, killed, rolled, elected, truncated)


def kill(cluster: KubeCluster) -> Span:
    """Until it was fenced, at the latest."""
    epoch, at_ms = cluster.broker_epoch(KILLED), now_ms()
    cluster.kill_broker(KILLED)
    cluster.until_back(KILLED, epoch, SAFE)
    cluster.until_in_sync(CARELESS)
    return Span(at_ms, at_ms + FENCED_WITHIN_MS)


def roll(cluster: KubeCluster) -> Span:
    """Every broker, by a change of the pods' template."""

    def pods() -> set[str]:
        brokers = cluster.items("pods", "--selector=app.kubernetes.io/component=broker")
        return {each["metadata"]["uid"] for each in brokers}

    before, start_ms = pods(), now_ms()

    def is_rolled() -> bool:
        present = pods()
        updated = cluster.condition("bpool", "default", "Updated").get("status") == "True"
        return updated and len(present) == 3 and not present & before

    change = {"spec": {"podTemplate": {"annotations": {"example.com/round": "2"}}}}
    cluster.kubectl("patch", "bpool", "default", "--type=merge", f"--patch={json.dumps(change)}")
    cluster.until(is_rolled, "the pool is rolled", timeout_s=180)
    for name in (SAFE, CARELESS):
        cluster.until_in_sync(name, timeout_s=90)
    return Span(start_ms, now_ms())


def lose_records(cluster: KubeCluster, url: str) -> tuple[Span, Span]:
    """When an unclean leader was elected, and when the former one cut its records."""
    cluster.until_preferred_lead(f"{CARELESS}-0")  # else the balancer moves the leader meanwhile
    found = cluster.must_get("pslice", f"{CARELESS}-0")["partitions"][0]
    leader = found["leader"]
    (follower,) = {*found["replicas"]} - {leader}
    write(cluster, leader, KEPT)
    cluster.until(lambda: state(cluster, leader) == "Active", "the leader serves")
    known = f'count(tidemark_replica_high_watermark_offset{{topic="{CARELESS}"}} >= {KEPT})'
    cluster.until(lambda: queried(url, known) == 2, "both replicas know of what is kept")
    cluster.signal_broker(follower, signal.SIGSTOP)
    cluster.until(lambda: in_sync(cluster) == 1, "the frozen follower is out of sync")
    write(cluster, leader, LOST)
    until_scraped(cluster, url, targets=TARGETS - 1)  # the watermark that will be lost is seen
    cluster.signal_broker(leader, signal.SIGSTOP)
    cluster.until(lambda: state(cluster, leader) != "Active", "the frozen leader is fenced")
    thawed_at_ms = now_ms()
    cluster.signal_broker(follower, signal.SIGCONT)
    cluster.until(lambda: cluster.leader_of(f"{CARELESS}-0") == follower, "the other replica leads")
    elected = Span(thawed_at_ms, now_ms())
    until_scraped(cluster, url, targets=TARGETS - 1)
    thawed_at_ms = now_ms()
    cluster.signal_broker(leader, signal.SIGCONT)
    cluster.until_in_sync(CARELESS, timeout_s=90)
    return elected, Span(thawed_at_ms, now_ms())


def write(cluster: KubeCluster, leader: int, count: int) -> None:
    """Acknowledged records, one batch."""
    body = {"records": [{"value": f"record {number}"} for number in range(count)]}
    path = f"/topics/{CARELESS}/partitions/0?acks=all"
    response = cluster.broker_http(leader, path, body)
    assert [each.get("error_code") for each in response["offsets"]] == [None] * count, response


def in_sync(cluster: KubeCluster) -> int:
    return len(cluster.must_get("pslice", f"{CARELESS}-0")["partitions"][0]["isr"])


def state(cluster: KubeCluster, broker_id: int) -> str:
    found: str = cluster.must_get("bkr", f"default-{broker_id}")["status"]["state"]
    return found


def absences(record: Record, broker: int) -> list[Interval]:
    return [
        each
        for each in record.result.intervals
        if each.partition.topic == SAFE
        and each.kind is IntervalKind.UNDER_REPLICATED
        and str(broker) in each.brokers
    ]


def test_the_loss_is_a_loss_of_the_records_that_were_acknowledged_and_are_gone(
    record: Record,
) -> None:
    result = record.result
    assert (result.verdict, result.sentence) == (
        Verdict.LOSS,
        f"at least {LOST} committed records lost in 1 partition",
    )
    assert {each.partition.topic for each in result.loss_evidence} == {CARELESS}
    assert max(each.records or 0 for each in result.loss_evidence) == LOST


def test_every_piece_of_evidence_stands_where_the_loss_was(record: Record) -> None:
    whole = Span(record.elected.start_ms, record.truncated.end_ms)
    for each in record.result.loss_evidence:
        assert whole.is_seen_in(each.after_ms, each.at_ms), (each, whole)
    counted = [
        each for each in record.result.loss_evidence if each.kind is LossKind.COMMITTED_TRUNCATION
    ]
    assert counted, record.result.loss_evidence
    assert all(record.truncated.is_seen_in(each.after_ms, each.at_ms) for each in counted)


def test_the_unclean_election_is_found_when_it_was(record: Record) -> None:
    # The leadership may go back to the preferred replica soon after: another election.
    found = min(
        (
            each
            for each in record.result.elections
            if each.partition.topic == CARELESS and each.kind == "unclean"
        ),
        key=lambda each: each.at_ms,
    )
    assert record.elected.is_seen_in(found.after_ms, found.at_ms), (found, record.elected)
    (reported,) = [
        each
        for each in record.result.findings
        if each.rule == "R6" and each.subject.endswith(AnomalyKind.UNCLEAN_ELECTION)
    ]
    assert reported.severity is Severity.CRITICAL
    assert record.elected.is_seen_in(reported.start_ms, reported.end_ms), (reported, record.elected)


def test_the_kill_is_one_unplanned_absence_that_begins_when_it_was(record: Record) -> None:
    near = [
        each
        for each in absences(record, KILLED)
        if record.killed.start_ms - INTERVAL_MS
        <= each.start_ms
        <= record.killed.end_ms + INTERVAL_MS
    ]
    assert near, absences(record, KILLED)
    assert not any(each.planned for each in near)


def test_the_rolling_restart_is_planned_for_every_broker(record: Record) -> None:
    for broker in range(3):
        during = [
            each
            for each in absences(record, broker)
            if record.rolled.start_ms - INTERVAL_MS <= each.start_ms <= record.rolled.end_ms
        ]
        assert during, f"broker {broker} was never missed: {absences(record, broker)}"
        assert [each for each in during if not each.planned] == []
