"""The audit of Apache Kafka 4.4 itself: brokers under load, one of them killed, metrics served
by the JMX exporter with the configuration beside the mapping, scraped by a real Prometheus.
"""

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Interval, IntervalKind, Outcome, Verdict
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from bench.systems import HOST, KafkaSystem, free_ports, leader_of, running
from tests.support.prometheus_server import PrometheusServer, running_prometheus
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
ROOT = Path(__file__).resolve().parents[2]
TOPIC, PARTITIONS = "orders", 3
STEP_SECONDS = 300.0
IN_SYNC = f'kafka_cluster_partition_insyncreplicascount{{topic="{TOPIC}"}} > 0'


def jars(name: str) -> Path:
    found = subprocess.run(
        [ROOT / "hack" / "kafka" / "jars", name], check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(found.stdout.strip())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def records_flow(bootstrap: str) -> Iterator[None]:
    """Acknowledged by all, to every partition, until the end."""
    enough = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        while not enough.wait(0.02):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"a record", partition=partition)
            producer.poll(0)
        producer.flush(30)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def wait_for_in_sync(prometheus: PrometheusServer, replicas: int) -> int:
    """Until the leaders of all partitions were scraped saying so; the time at which that was."""

    def is_seen() -> bool:
        said = [value for _, value in prometheus.query(IN_SYNC)]
        return len(said) == PARTITIONS and set(said) == {float(replicas)}

    wait_for(f"{replicas} replicas in sync of each partition", is_seen, seconds=STEP_SECONDS)
    return now_ms()


def stretches(result: AuditResult, kind: IntervalKind) -> list[Interval]:
    mine = [each for each in result.intervals if each.partition.topic == TOPIC]
    return [each for each in mine if each.kind is kind]


def test_a_killed_broker_of_kafka_is_found_and_what_is_not_exported_is_not_judged(
    tmp_path: Path,
) -> None:
    agent = next(jars("jmx").glob("jmx_prometheus_javaagent-*.jar"))
    configuration = files("tidemark_audit").joinpath("kafka_jmx_exporter.yaml")
    ports = free_ports(3)
    options = [[f"-javaagent:{agent}={HOST}:{port}:{configuration}"] for port in ports]
    system = KafkaSystem(tmp_path / "kafka", jars("pom"), options)
    targets = {"kafka": [f"{HOST}:{port}" for port in ports]}
    with (
        running(system),
        running_prometheus(tmp_path / "prometheus", targets, interval_seconds=2) as prometheus,
    ):
        system.create_topics({TOPIC: PARTITIONS})
        with records_flow(system.bootstrap):
            began_ms = wait_for_in_sync(prometheus, 3)
            victim = leader_of(system, TOPIC)
            killed_ms = now_ms()
            system.signal_broker(victim, signal.SIGKILL)
            shrunk_ms = wait_for_in_sync(prometheus, 2)
            back_ms = now_ms()
            system.bring_back(victim)
            full_ms = wait_for_in_sync(prometheus, 3)
        result = audit(
            LocalEngine(), sources_at([prometheus.url]), window=Window(began_ms, full_ms)
        )
    bad = stretches(result, IntervalKind.UNDER_REPLICATED)
    assert {each.partition.partition for each in bad} == set(range(PARTITIONS))
    assert min(each.start_ms for each in bad) >= killed_ms
    assert max(each.start_ms for each in bad) <= shrunk_ms
    assert max(each.end_ms for each in bad) >= back_ms
    assert {(each.in_sync_replicas, each.replicas) for each in bad} == {(2, 3)}
    # Two of three with min.insync.replicas 2: still writable, one failure from standing still.
    assert not stretches(result, IntervalKind.UNDER_MIN_ISR)
    stall = stretches(result, IntervalKind.ONE_FAILURE_FROM_STALL)
    assert {each.partition.partition for each in stall} == set(range(PARTITIONS))
    reported = {rule.rule: rule.outcome for rule in result.rules}
    assert {rule for rule, outcome in reported.items() if outcome is Outcome.NOT_EVALUATED} >= {
        "R4", "R6",
    }  # fmt: skip
    assert Outcome.NOT_EVALUATED not in {reported[rule] for rule in ("R1", "R2", "R3", "R5")}
    assert reported["R1"] is Outcome.VIOLATED
    assert result.verdict is Verdict.VIOLATED
    lags = [each for each in result.follower_lag if each.partition.topic == TOPIC]
    assert lags and all(each.records_p50 is not None for each in lags)
