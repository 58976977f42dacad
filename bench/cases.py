"""One system from nothing to its end: every row of `rows.py` in the order that fits.

What wears a system out (kills) comes last, what needs it fresh first. Each load is preceded by a
smaller one of the same kind, which warms up the JVM and our interpreter alike. A group of rows that
fails is named and the next one begins.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean

import msgspec

from bench import command_line, rdkafka_load
from bench.java_tools import JavaTools
from bench.rows import TIDEMARK, Figures, key_at
from bench.systems import (
    BROKERS,
    System,
    TidemarkSystem,
    cpu_seconds,
    leader_of,
    resident_mb,
    running,
    wait_for,
)

PARTITIONS = 3
TOPICS = {
    "warm": PARTITIONS,
    "default": PARTITIONS,
    "large": PARTITIONS,
    "small": PARTITIONS,
    "latency": PARTITIONS,
    "web": PARTITIONS,
    "lines": PARTITIONS,
    "read": PARTITIONS,
    "end-to-end": 1,
    "gap": 1,
}
IDLE_SECONDS = 3.0
REJOIN_LIMIT_SECONDS = 60.0
LAST_RESPONSE_SECONDS = 0.15
MOST_MEDIAN_MS = 250.0
LATENCY_RATES = (250, 500, 1000, 2500, 5000, 10_000, 20_000)
END_TO_END_RATES = (50, 100, 200, 400, 800, 1500, 3000, 6000)
LARGE_BATCHES = ("batch.size=131072", "linger.ms=5")

Say = Callable[[str], None]
Steps = Iterable[tuple[str, Callable[[], Figures]]]


@dataclass(frozen=True, slots=True)
class Scale:
    """`size` 1.0 is about 100 s of each system; `only` the groups to run, all if empty."""

    size: float
    only: frozenset[str]

    def of(self, records: int) -> int:
        return max(1000, int(records * self.size))


def measure(
    system: System, tools: JavaTools, scale: Scale, say: Say
) -> tuple[Figures, dict[str, str]]:
    """The figures, and by group what failed."""
    found: Figures = {}
    failed: dict[str, str] = {}
    try:
        with running(system) as start_seconds:
            found["start"] = start_seconds
            say(f"serving after {start_seconds:.2f} s")
            system.create_topics(TOPICS)
            run_steps(_steps(system, tools, scale, say), scale, say, found, failed)
    except Exception as error:
        failed["start"] = _sentence(error)
    return found, failed


def _steps(system: System, tools: JavaTools, scale: Scale, say: Say) -> Steps:
    return (
        ("memory", lambda: _memory_idle(system)),
        ("produce", lambda: _produce(system, tools, scale)),
        ("consume", lambda: _consume(system, tools, scale)),
        ("latency", lambda: _latency(system, tools, scale, say)),
        ("end-to-end", lambda: _end_to_end(system, scale, say)),
        ("http", lambda: _http(system, scale)),
        ("cli", lambda: _cli(system, scale)),
        ("memory", lambda: _memory_loaded(system)),
        ("kill", lambda: _kill(system)),
        ("term", lambda: _term(system)),
    )


def run_steps(steps: Steps, scale: Scale, say: Say, found: Figures, failed: dict[str, str]) -> None:
    for group, step in steps:
        if scale.only and group not in scale.only:
            continue
        try:
            figures = step()
        except Exception as error:  # of whatever tool: the other rows are worth having
            failed[group] = _sentence(error)
            say(f"{group} failed: {failed[group]}")
            continue
        found.update(figures)
        say(", ".join(f"{key} {figure:,.4g}" for key, figure in figures.items()) or group)


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__


def _memory_idle(system: System) -> Figures:
    time.sleep(IDLE_SECONDS)
    return {"memory_idle": _broker_mb(system)}


def _memory_loaded(system: System) -> Figures:
    return {
        "memory_loaded": _broker_mb(system),
        "memory_all": sum(resident_mb(pid) for pid in system.all_pids()),
    }


def _broker_mb(system: System) -> float:
    return mean(resident_mb(pid) for pid in system.broker_pids())


def _produce(system: System, tools: JavaTools, scale: Scale) -> Figures:
    tools.produce(system, "warm", records=scale.of(100_000), record_bytes=1024)
    found: Figures = {}
    for name, records, record_bytes, settings in (
        ("default", scale.of(250_000), 1024, ()),
        ("large", scale.of(350_000), 1024, LARGE_BATCHES),
        ("small", scale.of(2_000_000), 100, ()),
    ):
        warm_up = records // 5
        pids = system.all_pids()
        before = cpu_seconds(pids)
        found[f"produce_{name}"], _, _ = tools.produce(
            system,
            name,
            records=records,
            record_bytes=record_bytes,
            settings=settings,
            warm_up_records=warm_up,
        )
        found[f"cpu_{name}"] = (cpu_seconds(pids) - before) / (warm_up + records) * 1e6
    return found


def _consume(system: System, tools: JavaTools, scale: Scale) -> Figures:
    records = scale.of(250_000)
    rdkafka_load.consume(system, "default", partitions=PARTITIONS, records=records)  # warms up
    return {
        "consume": rdkafka_load.consume(system, "default", partitions=PARTITIONS, records=records),
        "consume_java": tools.consume(system, "default", records=records),
    }


def _latency(system: System, tools: JavaTools, scale: Scale, say: Say) -> Figures:
    seconds = max(3.0, 6 * scale.size)

    def at(rate: int) -> Figures | None:
        sent, p50, p99 = tools.produce(
            system,
            "latency",
            records=int(rate * seconds),
            record_bytes=1024,
            per_second=rate,
            settings=("linger.ms=0",),
            warm_up_records=2 * rate,
        )
        if not is_sustained(rate, sent, seconds, p50_ms=p50):
            say(f"latency: {rate:,}/s are too many: {sent:,.0f}/s were sent, p50 {p50:,.0f} ms")
            return None
        return {"latency_p50": p50, "latency_p99": p99}

    return up_to_saturation(LATENCY_RATES, at, "latency_rate")


def _end_to_end(system: System, scale: Scale, say: Say) -> Figures:
    """An answer at a time for each connection, which is how Kafka serves, bounds the rate of small
    requests: so the rate that each system sustains is a row of its own."""
    seconds = max(2.0, 4 * scale.size)

    def at(rate: int) -> Figures | None:
        found = rdkafka_load.end_to_end(
            system, "end-to-end", partitions=1, per_second=rate, seconds=seconds
        )
        if not found.is_sustained:
            say(f"end to end: {rate:,}/s are too many, {found.came:.0%} came in time")
            return None
        return {"end_to_end_p50": found.p50_ms, "end_to_end_p99": found.p99_ms}

    return up_to_saturation(END_TO_END_RATES, at, "end_to_end_rate")


def is_sustained(rate: float, sent: float, seconds: float, *, p50_ms: float = 0.0) -> bool:
    """Whether the load was late by little at its end: by its last acknowledgements, which weigh
    more in a short run, and by a fiftieth of its time. With a median as late as a queue makes it
    the rate is held up by that queue alone."""
    late_seconds = seconds * (rate / sent - 1)
    most_seconds = LAST_RESPONSE_SECONDS + seconds * (1 - rdkafka_load.SUSTAINED_SHARE)
    return late_seconds <= most_seconds and p50_ms <= MOST_MEDIAN_MS


def up_to_saturation(
    rates: Iterable[int], at: Callable[[int], Figures | None], highest_key: str
) -> Figures:
    """The figures of each of the rising `rates` before the first that is not sustained, for which
    `at` has none, and the highest of these; 0: none was sustained."""
    found: Figures = {highest_key: 0.0}
    for rate in rates:
        figures = at(rate)
        if figures is None:
            break
        found |= {key_at(key, rate): figure for key, figure in figures.items()}
        found[highest_key] = float(rate)
    return found


def _cli(system: System, scale: Scale) -> Figures:
    if not isinstance(system, TidemarkSystem):
        return {}
    return command_line.measure(system, many=scale.of(command_line.MANY_LINES))


def _http(system: System, scale: Scale) -> Figures:
    if not isinstance(system, TidemarkSystem):
        return {}
    seconds = str(max(2.0, 5 * scale.size))
    output = system.command(
        *("bench", "http", "web", "--output", "json"),
        *("--records", "100", "--size", "1024", "--seconds", seconds, "--connections", "16"),
    )
    return {"http": float(msgspec.json.decode(output)[0]["records_per_second"])}


def _kill(system: System) -> Figures:
    """The leader dies, writing goes on; then it is started, and the clock runs until it is in
    sync again. Where the system starts it by itself, the clock runs from its death."""
    leader = leader_of(system, "gap")
    killed_at = 0.0

    def kill() -> None:
        nonlocal killed_at
        killed_at = time.monotonic()
        system.signal_broker(leader, signal.SIGKILL)
        if system.name == TIDEMARK:
            rejoin()

    rejoined: Figures = {}

    def rejoin() -> None:
        started = time.monotonic()
        system.bring_back(leader)
        wait_for(
            f"{system.name}: broker {leader} in sync",
            lambda: system.is_in_sync("gap"),
            seconds=REJOIN_LIMIT_SECONDS,
        )
        rejoined["rejoin"] = time.monotonic() - started

    gap = rdkafka_load.write_gap(system, "gap", kill)
    if system.name != TIDEMARK:
        rejoin()
    return {"gap_kill": gap, **rejoined}


def _term(system: System) -> Figures:
    leader = leader_of(system, "gap")
    gap = rdkafka_load.write_gap(
        system, "gap", lambda: system.signal_broker(leader, signal.SIGTERM)
    )
    return {"gap_term": gap}


def machine() -> dict[str, object]:
    return {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "brokers": BROKERS}
