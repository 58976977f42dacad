"""Apache Kafka's own metrics, as the JMX exporter names them: fewer rules, none passes unseen."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.metrics.families import FAMILIES, PREFIX, series_key
from tidemark_audit.metrics.kafka_names import kafka_names
from tidemark_audit.results import AuditResult, IntervalKind, Outcome, Verdict
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import json_line

STEP_MS = 5000
LENGTH_MS = 600_000
MOVED_MS = 300_000  # leadership goes from broker 0 to broker 1
SHRUNK = (100_000, 160_000)


def leader(at_ms: int) -> int:
    return 0 if at_ms < MOVED_MS else 1


def a_kafka_cluster(path: Path) -> AuditResult:
    """Three brokers of Strimzi's, one partition; followers export 0."""

    def said(broker: int, value: float, at_ms: int) -> float:
        return value if leader(at_ms) == broker else 0

    times = range(0, LENGTH_MS, STEP_MS)
    with path.open("w") as file:
        for broker in (0, 1, 2):
            about = {
                "topic": "orders", "partition": "0",
                "pod": f"my-cluster-kafka-{broker}", "namespace": "kafka",
            }  # fmt: skip
            replicas = [(at_ms, said(broker, 3, at_ms)) for at_ms in times]
            in_sync = [
                (at_ms, said(broker, 2 if SHRUNK[0] <= at_ms < SHRUNK[1] else 3, at_ms))
                for at_ms in times
            ]
            end = [(at_ms, at_ms / 10) for at_ms in times]
            for name, samples in (
                ("kafka_cluster_partition_replicascount", replicas),
                ("kafka_cluster_partition_insyncreplicascount", in_sync),
                ("kafka_log_log_logendoffset", end),
                ("kafka_server_replicamanager_leadercount", end),
            ):
                file.write(json_line({"__name__": name, **about}, samples))
    return audit(LocalEngine(), sources_at([str(path)]))


def outcomes(result: AuditResult) -> dict[str, Outcome]:
    return {rule.rule: rule.outcome for rule in result.rules}


def test_under_replication_is_found_from_leaders_alone(tmp_path: Path) -> None:
    result = a_kafka_cluster(tmp_path / "kafka.jsonl")
    found = [each for each in result.intervals if each.kind is IntervalKind.UNDER_REPLICATED]
    assert [(each.start_ms, each.end_ms) for each in found] == [SHRUNK]
    row = result.sli_by_partition[0]
    assert (row.unobserved_ms, row.offline_ms) == (0, 0)
    assert row.degraded_unplanned_ms == SHRUNK[1] - SHRUNK[0]


def test_what_kafka_does_not_export_is_not_evaluated_and_no_pass(tmp_path: Path) -> None:
    result = a_kafka_cluster(tmp_path / "kafka.jsonl")
    reported = outcomes(result)
    assert reported["R1"] is Outcome.VIOLATED
    assert {rule for rule, outcome in reported.items() if outcome is Outcome.NOT_EVALUATED} >= {
        "R2", "R4", "R6",
    }  # fmt: skip
    assert result.verdict is not Verdict.PASS


@pytest.mark.parametrize(
    ("labels", "broker"),
    [
        ({"pod": "my-cluster-kafka-12"}, "12"),
        ({"broker_id": "3", "pod": "x-9"}, "3"),
        ({"instance": "kafka1:7071"}, "kafka1:7071"),
        ({}, ""),
    ],
)
def test_a_broker_is_named_by_the_first_label_that_is_there(
    labels: dict[str, str], broker: str
) -> None:
    name = "kafka_cluster_partition_replicascount"
    key = series_key({"__name__": name, "topic": "t", "partition": "1", **labels})
    assert key is not None
    assert (key.family, key.broker) == ("partition_replicas", broker)


def test_every_name_stands_for_a_family_that_is_read() -> None:
    assert {PREFIX + family for family in kafka_names().families.values()} <= set(FAMILIES)


MIN_ISR = 2
LEADERLESS = (400_000, 430_000)


def in_sync(at_ms: int) -> int:
    if 100_000 <= at_ms < 130_000:
        return 1
    return 2 if 130_000 <= at_ms < 160_000 else 3


def a_kafka_that_says_more(path: Path) -> AuditResult:
    """As kafka_jmx_exporter.yaml serves it: on which side of min.insync.replicas, and lag."""
    times = range(0, LENGTH_MS, STEP_MS)
    with path.open("w") as file:
        for broker in (0, 1, 2):
            about = {"topic": "orders", "partition": "0", "broker": str(broker)}

            def leads(at_ms: int, broker: int = broker) -> bool:
                return leader(at_ms) == broker and not LEADERLESS[0] <= at_ms < LEADERLESS[1]

            partition = "kafka_cluster_partition_"
            values: tuple[tuple[str, Callable[[int], float]], ...] = (
                ("replicascount", lambda at_ms: 3),
                ("insyncreplicascount", in_sync),
                ("underminisr", lambda at_ms: in_sync(at_ms) < MIN_ISR),
                ("atminisr", lambda at_ms: in_sync(at_ms) == MIN_ISR),
            )
            for name, value in values:
                samples = [(at_ms, value(at_ms) if leads(at_ms) else 0) for at_ms in times]
                file.write(json_line({"__name__": partition + name, **about}, samples))
            lag = [(at_ms, 7.0) for at_ms in times if leader(at_ms) != broker]
            name = "kafka_server_fetcherlagmetrics_consumerlag"
            file.write(json_line({"__name__": name, **about}, lag))
    return audit(LocalEngine(), sources_at([str(path)]))


def test_the_side_of_min_insync_replicas_is_enough_for_the_rules_that_need_it(
    tmp_path: Path,
) -> None:
    result = a_kafka_that_says_more(tmp_path / "kafka.jsonl")

    def intervals(kind: IntervalKind) -> list[tuple[int, int]]:
        return [(each.start_ms, each.end_ms) for each in result.intervals if each.kind is kind]

    assert intervals(IntervalKind.UNDER_MIN_ISR) == [(100_000, 130_000)]
    assert intervals(IntervalKind.UNDER_REPLICATED) == [(130_000, 160_000)]
    assert intervals(IntervalKind.ONE_FAILURE_FROM_STALL) == [(130_000, 160_000)]
    assert intervals(IntervalKind.ONE_FAILURE_FROM_LOSS) == [(100_000, 130_000)]
    reported = outcomes(result)
    assert {reported[rule] for rule in ("R1", "R2", "R5")} == {Outcome.VIOLATED}
    assert {reported[rule] for rule in ("R4", "R6")} == {Outcome.NOT_EVALUATED}


def test_a_partition_that_every_replica_says_it_does_not_lead_is_offline(tmp_path: Path) -> None:
    result = a_kafka_that_says_more(tmp_path / "kafka.jsonl")
    found = [each for each in result.intervals if each.kind is IntervalKind.OFFLINE]
    assert [(each.start_ms, each.end_ms) for each in found] == [LEADERLESS]


def test_lag_that_followers_tell_of_themselves_is_not_thinned_by_when_they_led(
    tmp_path: Path,
) -> None:
    result = a_kafka_that_says_more(tmp_path / "kafka.jsonl")
    found = {each.follower: (each.samples, each.records_p50) for each in result.follower_lag}
    half, whole = MOVED_MS // STEP_MS, LENGTH_MS // STEP_MS
    seven = pytest.approx(7.0, rel=0.01)
    assert found == {"0": (half, seven), "1": (half, seven), "2": (whole, seven)}
