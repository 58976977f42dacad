"""`tidemark chaos run --on dev`: asks for consent, strikes that cluster alone, and leaves it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_chaos.environments.chaos_processes import EVENTS
from tidemark_chaos.heal_journal import JOURNAL
from tidemark_chaos.workload_log import ACKNOWLEDGED, GroupCommitted, decode_event

from tests.support.local_cluster import LocalCluster, running
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
TIDEMARK = str(ROOT / ".venv/bin/tidemark")
CONSENT = "--break-running-cluster"
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TEXT = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {{name: guest}}
spec:
  rounds: 4
  quiet: 500ms
  workload: {{topic: {topic}, recordsPerSecond: 50, groupConsumers: 1}}
  faults:
    - {{kind: {kind}, target: {{role: leader}}}}
    - {{kind: pause, target: {{role: follower}}, for: 1s}}
    - {{kind: pause, target: {{role: controller}}, for: 1s}}
    - {{kind: api-server-outage, target: {{role: controller}}, for: 1s}}
"""


@pytest.fixture(scope="module", params=["plain", "closed"])
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("dev")
    closed = {
        "is_tls": True,
        "arguments": ("--auth",),
        "environment": {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))},
    }
    with running(data, **(closed if request.param == "closed" else {})) as found:
        found.wait_until_in_sync()
        yield found


def topics_of(cluster: LocalCluster) -> list[str]:
    """All but that of consumer groups, which the first group makes."""
    names = [topic["topic"] for topic in cluster.pool()["topics"]]
    return [name for name in names if not name.startswith("__")]


def chaos(
    action: str,
    directory: Path,
    cluster: LocalCluster,
    *more: str,
    topic: str = "guest",
    kind: str = "kill",
    data: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    file = directory / "guest.yaml"
    file.write_text(TEXT.format(topic=topic, kind=kind))
    command = (TIDEMARK, "chaos", action, "-f", str(file), "--out", str(directory / "out"))
    on = ("--on", "dev", "--data-dir", str(data or cluster.data_dir))
    return subprocess.run(
        (*command, *on, *more),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | cluster.environment,
    )


def test_a_running_cluster_is_struck_with_consent_and_left_as_it_was(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    assert cluster.process is not None
    before = cluster.pool()
    ended = chaos("run", tmp_path, cluster)
    assert ended.returncode == 2
    assert CONSENT in ended.stderr
    assert [each["pid"] for each in cluster.pool()["brokers"]] == [
        each["pid"] for each in before["brokers"]
    ], "without consent nothing is struck"

    ended = chaos("run", tmp_path, cluster, CONSENT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    events = map(decode_event, (tmp_path / "out" / EVENTS).read_bytes().splitlines())
    commits = [event for event in events if isinstance(event, GroupCommitted)]
    assert {event.partition for event in commits if event.outcome == ACKNOWLEDGED} == {0, 1, 2}
    kill, *_ = report["faults"]
    assert (report["verdict"], report["lost"]) == ("PASSED", 0)
    assert kill["fullIsrMs"] > 0
    assert f"{CONSENT}" in report["command"]
    assert cluster.process.poll() is None
    wait_for("the end of the topic", lambda: topics_of(cluster) == ["orders"])
    assert not (tmp_path / "out" / JOURNAL).exists()


def test_what_would_not_be_its_own_is_rejected(cluster: LocalCluster, tmp_path: Path) -> None:
    ended = chaos("run", tmp_path, cluster, CONSENT, topic="orders")
    assert ended.returncode == 2
    assert "no topic orders" in ended.stderr
    assert topics_of(cluster) == ["orders"]
    ended = chaos("check", tmp_path, cluster, kind="disk-full")
    assert ended.returncode == 2
    assert "disk-full without a time cannot be undone" in ended.stderr
    assert "its brokers have no volumes of their own" in ended.stderr
    ended = chaos("check", tmp_path, cluster, data=tmp_path)
    assert ended.returncode == 2
    assert "expected a running `tidemark dev` with the data directory" in ended.stderr
