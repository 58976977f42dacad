"""Kafka's own load tools against either system, with their words turned into figures."""

import re
import subprocess
from pathlib import Path

from bench.systems import BenchFailed, System

LIMIT_SECONDS = 180.0
_SENT = re.compile(
    r"^(\d+)(?: steady state)? records sent, ([\d.]+) records/sec .* ([\d.]+) ms max latency", re.M
)
_PERCENTILES = re.compile(r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th")


class JavaTools:
    def __init__(self, jars: Path) -> None:
        self._jars = jars

    def produce(
        self,
        system: System,
        topic: str,
        *,
        records: int,
        record_bytes: int,
        per_second: int = -1,
        settings: tuple[str, ...] = (),
        warm_up_records: int = 0,
    ) -> tuple[float, float, float]:
        """(records a second, p50 ms, p99 ms) of ProducerPerformance with acks=all, of the records
        after `warm_up_records`: its own JVM compiles what it runs meanwhile, and so do brokers."""
        warm_up = ("--warmup-records", str(warm_up_records)) if warm_up_records else ()
        output = self._run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(warm_up_records + records), *warm_up),
            *("--record-size", str(record_bytes), "--throughput", str(per_second)),
            *("--bootstrap-server", system.bootstrap),
            *("--command-property", "acks=all", *settings),
        )
        percentiles = _PERCENTILES.findall(output)
        totals = _SENT.findall(output)
        if not percentiles or int(totals[-1][0]) != records:
            raise BenchFailed(f"ProducerPerformance against {system.name}:\n{output[-2000:]}")
        return float(totals[-1][1]), float(percentiles[-1][0]), float(percentiles[-1][2])

    def consume(self, system: System, topic: str, *, records: int) -> float:
        """Records a second of ConsumerPerformance, without the time to join its group."""
        output = self._run(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", system.bootstrap, "--topic", topic),
            *("--messages", str(records), "--timeout", "20000", "--hide-header"),
        )
        lines = [line.split(", ") for line in output.splitlines() if line.count(", ") == 9]
        if not lines or int(lines[-1][4]) < records:
            raise BenchFailed(f"ConsumerPerformance against {system.name}:\n{output[-2000:]}")
        return float(lines[-1][9])

    def _run(self, main: str, *arguments: str) -> str:
        done = subprocess.run(
            ["java", "-Xmx512m", "-cp", f"{self._jars}/*", main, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
            start_new_session=True,
        )
        if done.returncode != 0:
            raise BenchFailed(f"{main}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
        return done.stdout
