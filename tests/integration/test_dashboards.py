"""Every query of every panel is answered, by a real Prometheus that scraped a run with faults.

In the run a leader is killed, all brokers are restarted one after another, and a follower stands
still. Nothing of it is simulated; what the run itself recorded is compared with what panels show.
"""

import contextlib
import json
import math
import os
import re
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.support.local_cluster import ORDERS, LocalCluster, running
from tests.support.prometheus_server import PrometheusServer, running_prometheus
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "charts" / "tidemark" / "dashboards").glob("*.json"))
FOLLOWER_STOPPED_SECONDS = 2.0
ONLY_WITH_TLS = {"Time until certificates end"}  # which this run has not
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


@dataclass
class Record:
    """What the run knows of itself."""

    killed: int = -1
    restarted: list[int] = field(default_factory=list)
    stopped: int = -1
    log_ends: dict[int, int] = field(default_factory=dict)
    start_s: float = 0.0
    end_s: float = 0.0


@dataclass
class Run:
    cluster: LocalCluster
    prometheus: PrometheusServer
    record: Record

    def points(self, expression: str) -> list[tuple[dict[str, str], list[float]]]:
        """Each series of a range query over the run, without its NaNs."""
        found = self.prometheus.ask(
            "query_range",
            query=expression,
            start=f"{self.record.start_s:.3f}",
            end=f"{self.record.end_s:.3f}",
            step="1",
        )["result"]
        series = [(each["metric"], [float(value) for _, value in each["values"]]) for each in found]
        numbers = [
            (labels, [value for value in values if not math.isnan(value)])
            for labels, values in series
        ]
        return [(labels, values) for labels, values in numbers if values]

    def last(self, expression: str) -> list[tuple[dict[str, str], float]]:
        return [(labels, values[-1]) for labels, values in self.points(expression)]


def bootstrap(cluster: LocalCluster) -> list[str]:
    return [f"127.0.0.1:{cluster.first_port + 5 + number}" for number in range(3)]


def produce_until(cluster: LocalCluster, enough: threading.Event) -> None:
    """Over Kafka and over HTTP; what a fault rejects is not asked again here."""
    producer = KafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all")
    number = 0
    while not enough.wait(0.02):
        number += 1
        with contextlib.suppress(KafkaError):
            producer.send("orders", b"value", partition=number % 3)
        with contextlib.suppress(urllib.error.URLError, OSError):
            body = json.dumps({"records": [{"value": number}]}).encode()
            headers = {"content-type": "application/vnd.kafka.json.v2+json"}
            url = f"{cluster.broker_url(number % 3)}/topics/orders"
            asked = urllib.request.Request(url, body, headers)
            urllib.request.urlopen(asked, timeout=2).close()
    with contextlib.suppress(KafkaError):
        producer.flush(timeout=20)
    producer.close(timeout=5)


def consume_until(cluster: LocalCluster, enough: threading.Event) -> None:
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap(cluster),
        group_id="readers",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
    )
    while not enough.is_set():
        consumer.poll(timeout_ms=200)
    consumer.close()


def commit_once(cluster: LocalCluster) -> None:
    """A group that is behind by all records: what it committed stays at the beginning."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap(cluster), group_id="slow", enable_auto_commit=False
    )
    consumer.assign(PARTITIONS)
    wait_for(
        "an offset committed",
        lambda: (
            consumer.commit({each: OffsetAndMetadata(0, "", -1) for each in PARTITIONS}) is None
        ),
        seconds=30,
    )
    consumer.partitions_for_topic("there-is-none")  # an error of Metadata
    consumer.close()


def another_life(cluster: LocalCluster, broker_id: int, how: signal.Signals) -> None:
    previous = cluster.broker(broker_id)["brokerEpoch"]
    cluster.kill(broker_id, how)
    wait_for(
        f"another life of broker {broker_id}",
        lambda: cluster.broker(broker_id)["brokerEpoch"] > previous,
        seconds=40,
    )
    cluster.wait_until_in_sync()


def wait_for_scrapes(prometheus: PrometheusServer, count: int) -> None:
    began_s = time.time()
    wait_for(
        f"{count} scrapes of every target",
        lambda: (
            min(
                value
                for _, value in prometheus.query(
                    f"count_over_time(up[{max(1, int(time.time() - began_s))}s])"
                )
            )
            >= count
        ),
        seconds=60,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    path = tmp_path_factory.mktemp("dashboards")
    with running(path / "cluster", manifest=ORDERS) as cluster:
        cluster.wait_until_in_sync()
        jobs = {
            "brokers": [url.removeprefix("http://") for url in cluster.broker_urls],
            "operator": [cluster.controller_url.removeprefix("http://")],
        }
        with running_prometheus(path / "prometheus", jobs) as prometheus:
            prometheus.wait_until_scraped()
            record, enough = Record(start_s=time.time()), threading.Event()
            commit_once(cluster)
            clients = [
                threading.Thread(target=work, args=(cluster, enough), daemon=True)
                for work in (produce_until, consume_until)
            ]
            for client in clients:
                client.start()
            wait_for_scrapes(prometheus, 3)
            record.killed = int(cluster.partition(0)["leader"])
            another_life(cluster, record.killed, signal.SIGKILL)
            for broker_id in range(3):
                another_life(cluster, broker_id, signal.SIGTERM)
                record.restarted.append(broker_id)
            leader = int(cluster.partition(0)["leader"])
            record.stopped = next(number for number in range(3) if number != leader)
            pid = cluster.kill(record.stopped, signal.SIGSTOP)
            time.sleep(FOLLOWER_STOPPED_SECONDS)  # the fault's own length
            os.kill(pid, signal.SIGCONT)
            cluster.wait_until_in_sync()
            wait_for_scrapes(prometheus, 3)
            enough.set()
            for client in clients:
                client.join(timeout=60)
                assert not client.is_alive()
            consumer = KafkaConsumer(bootstrap_servers=bootstrap(cluster))
            ends = consumer.end_offsets(PARTITIONS)
            consumer.close()
            record.log_ends = {each.partition: end for each, end in ends.items()}
            wait_for_scrapes(prometheus, 3)
            record.end_s = time.time()
            yield Run(cluster, prometheus, record)


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            yield f"{file.stem}: {panel['title']}", panel


def expressions(title: str) -> list[str]:
    """Of the panel `dashboard: title`, as Grafana sends them with all variables at All."""
    panel = dict(panels())[title]
    return [re.sub(r"\$\w+", ".*", target["expr"]) for target in panel["targets"]]


def test_no_panel_is_empty(run: Run) -> None:
    rows, empty = [], []
    for title, panel in panels():
        for expression in () if panel["title"] in ONLY_WITH_TLS else expressions(title):
            found = run.points(expression)
            if not found:
                empty.append((title, expression))
                continue
            labels, values = max(found, key=lambda series: max(series[1]))
            rows.append(f"{title:70} series {len(found):4}  largest {max(values):.6g} {labels}")
    table = ROOT / "build" / "panels.txt"  # for people
    table.parent.mkdir(exist_ok=True)
    table.write_text("\n".join(rows) + "\n")
    assert empty == []
    assert len(rows) > 80


def test_the_first_row_shows_what_happened(run: Run) -> None:
    def values(title: str) -> list[float]:
        ((expression,),) = [expressions(f"tidemark-overview: {title}")]
        ((_, found),) = run.points(expression)
        return found

    assert (min(values("Brokers online")), max(values("Brokers online"))) == (2, 3)
    assert set(values("Active controllers")) == {1}
    assert set(values("Unclean election rate")) == {0}
    assert max(values("Under replicated")) > 0
    assert max(values("At min ISR")) > 0
    assert values("Under replicated")[-1] == 0
    assert values("Offline")[-1] == 0
    # 3 partitions of orders and those of the topic of committed offsets, 3 replicas each.
    pool = run.cluster.pool()
    replicas = sum(
        len(each["replicas"]) for topic in pool["topics"] for each in topic["partitions"]
    )
    assert values("Online replicas")[-1] == replicas


def test_restarts_and_elections_are_those_of_the_run(run: Run) -> None:
    counted = run.last("tidemark_broker_planned_restarts_total")
    assert {labels["broker"]: value for labels, value in counted} == {
        str(number): run.record.restarted.count(number) for number in range(3)
    }
    elections = {
        labels["kind"]: value
        for labels, value in run.last("sum by (kind) (tidemark_partition_leader_elections_total)")
    }
    assert elections["unclean"] == 0
    assert elections["clean"] >= 1  # the killed broker led partition 0
    assert elections["planned"] >= 1


def test_the_stopped_follower_is_seen_behind(run: Run) -> None:
    (expression,) = expressions("tidemark-topic: Followers not caught up for")
    longest = {labels["follower"]: max(values) for labels, values in run.points(expression)}
    assert longest[str(run.record.stopped)] >= 0.5


def test_offsets_and_lags_are_those_that_kafkas_clients_read(run: Run) -> None:
    expression = expressions("tidemark-topic: Offsets")[1]
    ends = {
        int(labels["partition"]): value
        for labels, value in run.last(expression)
        if labels["topic"] == "orders"
    }
    assert ends == run.record.log_ends
    assert min(ends.values()) > 0
    (expression,) = expressions("tidemark-clients: Lag by group")
    lags = {
        labels["group"]: value
        for labels, value in run.last(expression)
        if labels["topic"] == "orders"
    }
    assert lags["slow"] == sum(ends.values())
    assert 0 <= lags["readers"] < sum(ends.values())


def test_the_volume_is_as_large_as_the_operating_system_says(run: Run) -> None:
    disk = shutil.disk_usage(run.cluster.data_dir)
    sizes = {value for _, value in run.last("tidemark_broker_disk_size_bytes")}
    assert sizes == {disk.total}
    for _, free in run.last("tidemark_broker_disk_free_bytes"):
        assert 0 < free < disk.total
