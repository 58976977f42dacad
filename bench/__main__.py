"""`make bench`: Tidemark beside Apache Kafka 4.4 on this machine, in turns.

Each round runs both systems from nothing to their end, one after the other, the first of a round
by turns; a ratio is of two figures of one round, because only that can be trusted on a machine that
others use too. Rows that fail are named below the table, and then the exit code is 1. Writes
build/bench.json and build/bench.svg.
"""

import argparse
import platform
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bench import report
from bench.cases import Scale, machine, measure
from bench.java_tools import JavaTools
from bench.rows import KAFKA, TIDEMARK, Failure, Figures, Rounds, compare
from bench.systems import (
    KafkaSystem,
    System,
    TidemarkSystem,
    compile_as_in_images,
)

ROOT = Path(__file__).parent.parent
GROUPS = ("memory", "produce", "consume", "latency", "end-to-end", "http", "cli", "kill", "term")


def main() -> int:
    arguments = _arguments()
    jars = Path(
        subprocess.run(
            [str(ROOT / "hack/kafka/jars")], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
    )
    tools = JavaTools(jars)
    data = ROOT / "build" / "bench"
    started = time.monotonic()
    scale = Scale(arguments.size, frozenset(arguments.only or ()))
    rounds: Rounds = []
    failures: list[Failure] = []
    compile_as_in_images()
    for number in range(arguments.rounds):
        systems: list[System] = [KafkaSystem(data / KAFKA, jars), TidemarkSystem(data / TIDEMARK)]
        if arguments.system:
            systems = [system for system in systems if system.name == arguments.system]
        if number % 2:
            systems.reverse()
        found: dict[str, Figures] = {}
        rounds.append(found)
        for system in systems:
            place = f"round {number + 1}/{arguments.rounds} {system.name}"
            say = partial(_say, started, place)
            found[system.name], failed = measure(system, tools, scale, say)
            failures += [Failure(number + 1, system.name, *entry) for entry in failed.items()]
    about = {"python": platform.python_version(), "kernel": platform.release(), **machine()}
    report.write(ROOT / "build", rounds, about, failures)
    report.print_table(compare(rounds), failures)
    print(f"{(time.monotonic() - started) / 60:.1f} min; build/bench.json, build/bench.svg")
    return 1 if failures else 0


def _say(started: float, place: str, text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    print(f"{minutes:02}:{seconds:02} {place}: {text}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=float, default=1.0, help="of the loads, default 1")
    parser.add_argument("--only", action="append", choices=GROUPS, help="repeatable")
    parser.add_argument("--system", choices=(KAFKA, TIDEMARK), help="one of them alone")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
