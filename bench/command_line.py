"""`tidemark produce` and `tidemark consume` beside kcat, on the same brokers, as whole processes.

The three runs of both commands take turns, and the median of each counts. kcat has acks=all and an
idempotent producer here, as our command has by default.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

from bench.rows import Figures
from bench.systems import BenchFailed, TidemarkSystem

LINES = 20_000
MANY_LINES = 500_000
RECORDS = 125_873
RUNS = 3
LIMIT_SECONDS = 60.0
LINE = "a line of some sixty bytes, as logs have them"
_PRODUCE = ("-P", "-X", "acks=all", "-X", "enable.idempotence=true", "-X", "linger.ms=5")


def measure(system: TidemarkSystem, *, many: int) -> Figures:
    kcat = _kcat()
    tidemark = (sys.executable, "-m", "tidemark_cli.main", "--server", system.controller_url)
    produce = (*tidemark, "produce", "lines")
    kcat_produce = (kcat, "-b", system.bootstrap, "-t", "lines", *_PRODUCE)
    found: Figures = {}
    for name, count in (("produce", LINES), ("produce_many", many)):
        lines = "".join(f"{LINE} {number}\n" for number in range(count)).encode()
        ours, theirs = _in_turns(produce, kcat_produce, lines)
        found |= {f"cli_{name}": count / ours, f"kcat_{name}": count / theirs}
    _fill(system, "read")
    ours, theirs = _in_turns(
        (*tidemark, "consume", "read", "--until-end"),
        (kcat, "-b", system.bootstrap, "-t", "read", "-C", "-e", "-q"),
    )
    return {**found, "cli_consume": RECORDS / ours, "kcat_consume": RECORDS / theirs}


def _kcat() -> str:
    tools = Path(__file__).parent.parent / "hack" / "client-tools"
    done = subprocess.run([tools, "kcat"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailed(f"hack/client-tools kcat: {done.stderr}")
    return done.stdout.splitlines()[-1]


def _fill(system: TidemarkSystem, topic: str) -> None:
    settings = {"bootstrap.servers": system.bootstrap, "queue.buffering.max.messages": 2 * RECORDS}
    producer = Producer(settings)
    for number in range(RECORDS):
        producer.produce(topic, f"{LINE} {number}")
    if producer.flush(LIMIT_SECONDS):
        raise BenchFailed(f"{RECORDS} records for kcat were not all acknowledged")


def _in_turns(
    ours: Sequence[str], theirs: Sequence[str], stdin: bytes = b""
) -> tuple[float, float]:
    """Seconds of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for command, found in zip((ours, theirs), times, strict=True):
            started = time.perf_counter()
            done = subprocess.run(
                command,
                input=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            found.append(time.perf_counter() - started)
            if done.returncode != 0:
                raise BenchFailed(f"{command[0]}: {done.stderr.decode(errors='replace')[-1000:]}")
    return median(times[0]), median(times[1])
