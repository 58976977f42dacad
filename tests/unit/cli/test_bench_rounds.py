"""A round of `make bench` on a slow machine: what fails is named, and the rest is measured."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import report, systems
from bench.cases import Scale, is_sustained, run_steps, up_to_saturation
from bench.java_tools import JavaTools
from bench.rows import KAFKA, TIDEMARK, Failure, Figures, compare
from bench.systems import BenchFailed

ALL = Scale(1.0, frozenset())
PERFORMANCE = """\
Warmup first 4000 records. Steady state results will print after the complete test summary.
10000 records sent, 1992.4 records/sec (1.95 MB/sec), 6.07 ms avg latency, 424.00 ms max latency, \
1 ms 50th, 50 ms 95th, 58 ms 99th, 62 ms 99.9th.
6000 steady state records sent, 1984.7 records/sec (1.94 MB/sec), 1.34 ms avg latency, 12.00 ms \
max latency, 2 ms 50th, 3 ms 95th, 7 ms 99th, 12 ms 99.9th.
"""


def _compared(rounds: list[dict[str, Figures]], key: str) -> Any:
    return next(entry for entry in compare(rounds) if entry.row.key == key)


def _latencies(highest: float, **p99: float) -> Figures:
    rates = {f"latency_p99@{rate.removeprefix('at_')}": figure for rate, figure in p99.items()}
    return {"latency_rate": highest, **rates}


def test_a_group_that_fails_does_not_hide_the_others() -> None:
    def fails() -> Figures:
        raise BenchFailed("kafka: nothing is acknowledged")

    def breaks() -> Figures:
        raise subprocess.TimeoutExpired("java", 180)

    found: Figures = {}
    failed: dict[str, str] = {}
    said: list[str] = []
    steps = (
        ("kill", fails),
        ("produce", breaks),
        ("term", lambda: {"gap_term": 0.5}),
    )
    run_steps(steps, ALL, said.append, found, failed)
    assert found == {"gap_term": 0.5}
    assert failed["kill"] == "kafka: nothing is acknowledged"
    assert "180" in failed["produce"]
    assert said[0] == "kill failed: kafka: nothing is acknowledged"


def test_a_system_that_does_not_start_leaves_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import cases

    class Dead:
        name = "kafka"
        brokers = 3
        bootstrap = ""

        def prepare(self) -> None:
            raise BenchFailed("kafka: format failed")

        def stop(self) -> None: ...

    found, failed = cases.measure(Dead(), JavaTools(Path()), ALL, print)  # type: ignore[arg-type]
    assert (found, failed) == ({}, {"start": "kafka: format failed"})


def test_rates_rise_until_one_is_not_sustained() -> None:
    tried: list[int] = []

    def at(rate: int) -> Figures | None:
        tried.append(rate)
        return {"latency_p99": rate / 100} if rate < 1000 else None

    found = up_to_saturation((250, 500, 1000, 2500), at, "latency_rate")
    assert tried == [250, 500, 1000]
    assert found == {"latency_rate": 500, "latency_p99@250": 2.5, "latency_p99@500": 5}


def test_a_short_run_is_not_late_by_its_last_answer() -> None:
    assert is_sustained(1000, 968, 2.0)
    assert not is_sustained(1000, 900, 2.0)
    assert not is_sustained(1000, 950, 6.0)


def test_a_rate_that_a_standing_queue_holds_up_is_not_sustained() -> None:
    """The queue is from the warm-up, so the records after it are sent and acknowledged at the
    rate, each of them late."""
    assert is_sustained(5000, 5000, 6.0, p50_ms=60)
    assert not is_sustained(5000, 5000, 6.0, p50_ms=1088)


def test_a_system_that_sustains_no_rate_has_a_rate_of_none() -> None:
    assert up_to_saturation((250,), lambda _: None, "latency_rate") == {"latency_rate": 0}


def test_latencies_are_compared_where_both_are_half_loaded_at_most() -> None:
    ours = _latencies(5000, at_250=1, at_500=2, at_1000=3, at_2500=4, at_5000=9)
    theirs = _latencies(1000, at_250=5, at_500=8, at_1000=300)
    found = _compared([{TIDEMARK: ours, KAFKA: theirs}], "latency_p99")
    assert found.rates == (500,)
    assert found.ratios == (0.25,)
    assert found.title == "produce, linger 0: p99 at 500/s"


def test_rates_of_two_rounds_may_differ() -> None:
    slow = {TIDEMARK: _latencies(500, at_250=1, at_500=2), KAFKA: _latencies(250, at_250=4)}
    fast = {name: _latencies(1000, at_250=1, at_500=2, at_1000=3) for name in (TIDEMARK, KAFKA)}
    found = _compared([slow, fast], "latency_p99")
    assert found.rates == (250, 500)
    assert found.ratios == (0.25, 1.0)


def test_no_common_rate_is_no_ratio() -> None:
    found = _compared([{TIDEMARK: _latencies(250, at_250=1), KAFKA: _latencies(0)}], "latency_p99")
    assert (found.ratios, found.rates) == ((), ())
    assert _compared([], "latency_p99").ratios == ()
    assert _compared([{KAFKA: {}, TIDEMARK: {}}], "produce_default").ratios == ()


def test_one_system_alone_has_figures() -> None:
    found = _compared([{TIDEMARK: _latencies(1000, at_500=2, at_1000=3)}], "latency_p99")
    assert (found.tidemark, found.ratios) == ((2,), ())


def test_failures_stand_below_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds: list[dict[str, Figures]] = [{KAFKA: {"start": 8.0}, TIDEMARK: {"start": 2.0}}]
    failures = [Failure(1, KAFKA, "kill", "no steady writes within 60 s")]
    report.print_table(compare(rounds), failures)
    report.write(tmp_path, rounds, {}, failures)
    table = capsys.readouterr().out
    assert "failed: round 1, kafka, kill: no steady writes within 60 s" in table
    assert "0.25" in table
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["failures"][0]["group"] == "kill"


def test_a_warm_up_is_in_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = JavaTools(Path())
    requested: list[str] = []

    def run(*arguments: str) -> str:
        requested.extend(arguments)
        return PERFORMANCE

    monkeypatch.setattr(tools, "_run", run)
    kafka = systems.KafkaSystem(Path(), Path())
    found = tools.produce(kafka, "t", records=6000, record_bytes=10, warm_up_records=4000)
    assert found == (1984.7, 2, 7)
    assert requested[requested.index("--num-records") + 1] == "10000"
    assert requested[requested.index("--warmup-records") + 1] == "4000"
