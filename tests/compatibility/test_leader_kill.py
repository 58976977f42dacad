"""Every client writes while a leader is killed: one kill for all at once. `kill_rounds` does it for
minutes, with groups that read."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compatibility.client_programs import CLIENTS, ClientPrograms
from tests.compatibility.kill_matrix import RATE, Outcome, run_under_kills, topic_of, topics_of
from tests.support.client_tools import ROOT
from tests.support.kafka_cluster import kafka_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SECONDS = 6


@dataclass(frozen=True)
class Killed:
    outcomes: dict[str, Outcome]
    data_dirs: list[Path]  # of brokers that are stopped


@pytest.fixture(scope="module")
def killed(programs: ClientPrograms, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    directory = tmp_path_factory.mktemp("killed")
    with kafka_cluster(directory, **topics_of(CLIENTS)) as cluster:

        def kill(until: float) -> None:
            cluster.kill(cluster.partition(0, topic_of(CLIENTS[0]))["leader"])

        outcomes = run_under_kills(
            cluster, programs, CLIENTS, seconds=SECONDS, members=0, kill=kill
        )
    return Killed(outcomes, sorted(directory.glob("brokers/*/*")))


@pytest.mark.parametrize("client", CLIENTS)
def test_survives_a_leaders_death(killed: Killed, client: str) -> None:
    outcome = killed.outcomes[client]
    assert outcome.acknowledged == SECONDS * RATE
    assert outcome.is_good, outcome


def test_kafkas_own_code_reads_what_all_of_it_left_on_the_disks(killed: Killed) -> None:
    """Segments, indexes, producer snapshots, checkpoints, epochs: of every client's batches, after
    a kill, a recovery and a clean stop."""
    assert len(killed.data_dirs) == 3
    command = [str(ROOT / "hack" / "dump-log-segments"), *map(str, killed.data_dirs)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-2000:]
    *_, checkpoints, segments = found.stdout.splitlines()
    assert int(re.findall(r"\d+", checkpoints)[0]) > 3 * len(CLIENTS)
    assert int(re.findall(r"\d+", segments)[1]) > 3 * len(CLIENTS)
