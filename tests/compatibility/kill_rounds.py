"""The long matrix: every client, idempotent, with a broker killed every 10 s.

python -m tests.compatibility.kill_rounds --seconds 300 --report build/e2e-long/clients.json
"""

import argparse
import json
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

from tests.compatibility.client_programs import CLIENTS, client_programs
from tests.compatibility.kill_matrix import report_of, run_under_kills, topic_of, topics_of
from tests.support.kafka_cluster import kafka_cluster

LIMIT_SECONDS = 60.0
MEMBERS = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--every", type=float, default=10.0, help="seconds from kill to kill")
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--report", type=Path, required=True)
    requested = parser.parse_args()
    clients = requested.clients.split(",")
    with tempfile.TemporaryDirectory(prefix="tidemark-clients-") as name:
        report = play(clients, Path(name), requested.seconds, requested.every)
    requested.report.parent.mkdir(parents=True, exist_ok=True)
    requested.report.write_text(json.dumps(report, indent=2) + "\n")
    sys.stdout.write(requested.report.read_text())
    return 0 if all(row["good"] for row in report["clients"].values()) else 1


def play(clients: list[str], directory: Path, seconds: int, every: float) -> dict[str, object]:
    programs_dir = directory / "programs"
    programs_dir.mkdir()
    programs = client_programs(programs_dir)
    kills = 0
    began = time.monotonic()
    with kafka_cluster(directory / "data", **topics_of(clients)) as cluster:

        def kill(until: float) -> None:
            nonlocal kills
            for client in cycle(clients):
                next_kill = time.monotonic() + every
                if next_kill > until:
                    return
                cluster.kill(cluster.partition(kills % 3, topic_of(client))["leader"])
                kills += 1
                time.sleep(next_kill - time.monotonic())
                # Two dead brokers of three are no majority for min.insync.replicas=2.
                cluster.wait_until_in_sync(topic_of(client), seconds=LIMIT_SECONDS)

        outcomes = run_under_kills(
            cluster, programs, clients, seconds=seconds, members=MEMBERS, kill=kill
        )
    return report_of(outcomes, kills, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
