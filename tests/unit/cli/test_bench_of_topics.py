"""What `bench.topics` makes of what it saw, and how its load is paced."""

import math
from typing import Any

import pytest

from bench import rdkafka_load
from bench.systems import BenchFailed
from bench.topics import check_open_files, exponent


def test_the_exponent_is_that_of_the_curve_through_all_sizes() -> None:
    assert math.isclose(exponent({1000: 2.0, 10_000: 20.0}), 1.0)
    assert math.isclose(exponent({100: 1.0, 1000: 100.0, 10_000: 10_000.0}), 2.0)


def test_a_growth_that_runs_out_of_open_files_is_refused() -> None:
    check_open_files(10_000, 3, 20_000)
    with pytest.raises(BenchFailed, match=r"allows 20000 .* --brokers 5"):
        check_open_files(30_000, 3, 20_000)
    check_open_files(30_000, 5, 20_000)


class FakeTime:
    """Time passes in sleeps and in waits of `poll` alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        return self.now

    def perf_counter_ns(self) -> int:
        return round(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Load:
    """The load for a tenth of a second, with a producer of nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, tick_seconds: float) -> None:
        self.time = FakeTime()
        self.sent: list[float] = []
        self.polls = 0
        monkeypatch.setattr(rdkafka_load, "time", self.time)
        monkeypatch.setattr(rdkafka_load, "Producer", lambda settings: self)
        rdkafka_load._produce_steadily("", "gap", 1000, 100, tick_seconds, self, self)

    def produce(self, *_: Any, **__: Any) -> None:
        self.sent.append(round(self.time.now, 6))

    def poll(self, seconds: float) -> None:
        self.polls += 1
        self.time.now += seconds

    def flush(self, _: float) -> None: ...

    def send(self, _: object) -> None: ...

    def is_set(self) -> bool:
        return self.time.now > 0.1


def test_a_load_with_ticks_sends_all_that_is_due_and_then_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = Load(monkeypatch, tick_seconds=0.005)
    assert abs(len(load.sent) - 100) <= 5
    assert set(load.time.slept) == {0.005}
    assert len(load.time.slept) == load.polls <= 21
    assert {round(at / 0.005, 3) % 1 for at in load.sent} == {0.0}


def test_a_load_without_ticks_sends_each_record_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = Load(monkeypatch, tick_seconds=0)
    assert load.time.slept == []
    assert abs(len(load.sent) - 100) <= 1
    assert len(set(load.sent)) == len(load.sent)
