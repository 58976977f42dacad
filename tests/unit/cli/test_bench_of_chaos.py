"""The benches of chaos experiments: what Kafka's brokers say, and an outside producer's gaps."""

import struct

import pytest
from tidemark_chaos.spec import parse_experiment
from tidemark_cli.kafka_requests import listing, text
from tidemark_client.metadata import NO_LEADER, PartitionView

from bench.chaos_kafka import impossible_on_kafka
from bench.chaos_witness import longest_gap
from bench.kafka_metadata import Answer, MetadataWatch, parse

RUNNING = frozenset({0, 1, 2})


def numbers(*values: int) -> bytes:
    return listing([struct.pack(">i", value) for value in values])


def test_a_response_is_read_with_epochs_and_without_other_topics() -> None:
    broker = struct.pack(">i", 7) + text("host") + struct.pack(">i", 9092) + b"\xff\xff"
    partition = struct.pack(">hiii", 5, 3, -1, 12) + numbers(7, 8) + numbers(8) + numbers(7)
    topics = [
        struct.pack(">h", 0) + text(name) + b"\0" + listing([partition])
        for name in ("other", "chaos")
    ]
    head = struct.pack(">i", 0) + listing([broker]) + text("cluster") + struct.pack(">i", 7)
    answer = parse(head + listing(topics), "chaos", 1.5)
    assert answer.alive == {7}
    assert answer.partitions == {3: PartitionView(3, NO_LEADER, 12, (7, 8), (8,))}


def watch_of(now: float, answers: dict[int, tuple[set[int], int, int]]) -> MetadataWatch:
    """`answers`: of each broker who is alive, and leader and epoch of partition 0."""
    watch = MetadataWatch("chaos", {0: 1, 1: 2, 2: 3})
    for broker_id, (alive, leader, epoch) in answers.items():
        view = PartitionView(0, leader, epoch, (0, 1, 2), tuple(alive))
        watch.answers[broker_id] = Answer(now, frozenset(alive), {0: view})
    return watch


def test_the_highest_epoch_counts_and_of_one_epoch_the_leaders_own_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    watch = watch_of(100.0, {0: ({0, 1, 2}, 0, 4), 1: ({1, 2}, 1, 5), 2: ({2}, 1, 5)})
    status = watch.status(frozenset({1, 2}), {1: 9})
    assert status is not None
    (view,) = status.topics[0].partitions
    assert (view.leader, view.leader_epoch, view.in_sync_replicas) == (1, 5, (1, 2))
    states = [(row.state, row.broker_epoch) for row in status.brokers]
    assert states == [("Gone", -1), ("Fenced", 9), ("Active", -1)], "all have to name a broker"


def test_old_answers_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    assert watch_of(99.0, {0: ({0}, 0, 1)}).status(RUNNING, {}) is None


def test_kafka_takes_part_in_what_signals_do() -> None:
    head = "{apiVersion: tidemark.dev/v1alpha1, kind: ChaosExperiment, metadata: {name: a}, spec: "
    kill = parse_experiment(head + "{rounds: 1, faults: [{kind: kill}]}}")
    assert impossible_on_kafka(kill.spec) == []
    cut = parse_experiment(
        head + "{rounds: 1, workload: {acks: mixed}, faults: [{kind: network-cut, for: 1s}]}}"
    )
    assert [problem.partition(":")[0] for problem in impossible_on_kafka(cut.spec)] == [
        "spec.workload.acks",
        "spec.faults[0].kind",
    ]


def test_the_outside_gap_is_the_longest_that_overlaps_the_window() -> None:
    times = {0: [0.0, 10.0, 400.0, 410.0], 1: [0.0, 300.0, 310.0, 2000.0]}
    assert longest_gap(times, 5.0, 305.0) == (390.0, 0)
    assert longest_gap(times, 405.0, 500.0) == (1690.0, 1)
    assert longest_gap({}, 0.0, 1.0) == (0.0, -1)
