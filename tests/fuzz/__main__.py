"""Fuzzing of the wire for as long as one likes; a line a minute, exit 1 at what should not be.

python -m tests.fuzz --seconds 3600 --report build/e2e-long/wire.json

Round trips against Kafka's own classes and kafka-python, decoders on hostile bytes with their
costs counted, and hostile bytes at real brokers beside a good client; each turn has a seed.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.corpus import attacked, request_bodies
from tests.fuzz.java_peer import JavaPeer
from tests.fuzz.live import Report, attack, unharmed
from tests.fuzz.round_trips import disagreements
from tests.support.kafka_cluster import kafka_cluster

TURN_LIVE_SECONDS = 20.0
MESSAGES = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--report", type=Path, required=True)
    requested = parser.parse_args()
    began = time.monotonic()
    totals: Counter[str] = Counter()
    wrong: list[str] = []
    seed = requested.first_seed
    with JavaPeer() as java, tempfile.TemporaryDirectory(prefix="tidemark-wire-") as name:
        while not wrong and (
            seed == requested.first_seed or time.monotonic() - began < requested.seconds
        ):
            wrong += turn(java, seed, Path(name) / str(seed), totals)
            reported = {"seed": seed, "seconds": round(time.monotonic() - began), **totals}
            sys.stdout.write(json.dumps(reported) + "\n")
            sys.stdout.flush()
            seed += 1
    found = {**totals, "turns": seed - requested.first_seed, "wrong": wrong}
    requested.report.parent.mkdir(parents=True, exist_ok=True)
    requested.report.write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write(requested.report.read_text())
    return 1 if wrong else 0


def turn(java: JavaPeer, seed: int, directory: Path, totals: Counter[str]) -> list[str]:
    """One seed through all three; what is wrong in it."""
    wrong = list(disagreements(java, seed, MESSAGES))
    hostile = attacked(java, seed, MESSAGES, blows=20)
    wrong += hostile.dear
    bodies = request_bodies(java, seed, MESSAGES)
    with kafka_cluster(directory) as cluster:
        report = Report()
        with unharmed(cluster, report):
            live = attack(cluster, bodies, random.Random(seed), TURN_LIVE_SECONDS)
    totals["refused"] += hostile.refused
    totals["read"] += hostile.read
    totals["liveFrames"] += live.frames
    totals["liveAnswers"] += live.responded
    totals["liveCloses"] += live.closed
    return wrong + [f"seed {seed}: {sentence}" for sentence in report.wrong]


if __name__ == "__main__":
    sys.exit(main())
