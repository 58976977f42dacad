"""ChaosExperiment objects on real pods: opt-in, verdict, and healing whichever way a run ends."""

import copy
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.kube_cluster import ON_KUBERNETES, ROOT, KubeCluster

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(240)]

LABEL = "tidemark.dev/chaos"
POOL = {
    "apiVersion": "tidemark.dev/v1alpha1",
    "kind": "BrokerPool",
    "metadata": {"name": "default"},
    "spec": {
        "replicas": 3,
        "storage": {"size": "1Gi"},
        "security": {"tls": {"mode": "Required"}, "authentication": "kubernetes"},
    },
}
WORKLOAD = {
    "partitions": 2,
    "config": {"min.insync.replicas": "2"},
    "producers": 4,
    "recordsPerSecond": 30,
}
PAUSE = {"kind": "pause", "target": {"role": "leader", "partition": 0}, "for": "10m"}
# Processes that are stopped, of one container: state is the third word, after a name in brackets.
STOPPED = 'cat /proc/[0-9]*/stat | sed "s/(.*)/name/" | cut -d" " -f3 | grep -c T'
CRASH = """
for stat in /proc/[0-9]*/stat; do
    read -r pid name state parent rest < "$stat" || continue
    if [ "$parent" = 1 ] && [ "$name" != "(sh)" ]; then kill -9 "$pid"; fi
done
"""


def experiment(name: str, *faults: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": name},
        "spec": {
            "rounds": len(faults),
            "quiet": "300ms",
            "workload": WORKLOAD,
            "steadyState": {"for": "1s"},
            "faults": list(faults),
            **spec,
        },
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.make_namespace()  # before the chart, which makes Roles in it
    cluster.install_chart("chaos.enabled=true", f"chaos.namespaces={{{cluster.namespace}}}")
    cluster.apply(POOL)
    cluster.kubectl("wait", "--for=condition=Ready", "bpool/default", "--timeout=60s")
    yield cluster
    cluster.kubectl("delete", "chaos", "--all")  # while its controller is there: finalizers
    cluster.delete_namespace()


@pytest.fixture
def willing(cluster: KubeCluster) -> KubeCluster:
    """Its pool allows experiments."""
    cluster.kubectl("label", "bpool", "default", f"{LABEL}=allowed", "--overwrite")
    return cluster


def status(cluster: KubeCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.must_get("chaos", name).get("status", {})
    return found


def until_phase(cluster: KubeCluster, name: str, phase: str, *, timeout_s: float = 90) -> None:
    def is_so() -> bool:
        return bool(status(cluster, name).get("phase") == phase)

    cluster.until(is_so, f"{name} is {phase}", timeout_s=timeout_s)


def until_paused(cluster: KubeCluster, name: str) -> int:
    """The broker that the experiment has stopped."""

    def stopped() -> list[int]:
        return [broker_id for broker_id in range(3) if is_stopped(cluster, broker_id)]

    cluster.until(
        lambda: "pause leader" in status(cluster, name).get("currentFault", ""),
        f"{name} pauses a leader",
        timeout_s=60,
    )
    cluster.until(lambda: len(stopped()) == 1, "one broker is stopped")
    return stopped()[0]


def is_stopped(cluster: KubeCluster, broker_id: int) -> bool:
    ended = cluster.run(
        *("kubectl", "-n", cluster.namespace, "exec", f"default-{broker_id}", "--"),
        *("sh", "-c", STOPPED),
    )
    return ended.out.strip() not in ("", "0")


def topics(cluster: KubeCluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.items("topics")]


def test_a_pool_without_the_label_is_not_struck_and_with_it_nothing_is_lost(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    kill = {"kind": "kill", "target": {"role": "leader"}}
    cluster.apply(experiment("kills", kill, kill, kill))
    until_phase(cluster, "kills", "Waiting", timeout_s=20)
    told = cluster.condition("chaos", "kills", "Accepted")
    assert told["reason"] == "PoolNotLabelled"
    command = told["message"].partition("To allow them: kubectl ")[2]
    assert command.endswith(f"label brokerpool default {LABEL}=allowed")
    assert cluster.items("jobs") == []
    cluster.kubectl(*command.split()[2:])
    until_phase(cluster, "kills", "Passed", timeout_s=120)
    found = status(cluster, "kills")
    assert (found["verdict"], found["rounds"], found["seed"]) == ("PASSED", 3, 1)
    assert (found["lost"], found["duplicated"]) == (0, 0)
    assert found["acknowledged"] > 100
    assert cluster.condition("chaos", "kills", "Healed")["status"] == "True"
    assert topics(cluster) == []
    columns = cluster.kubectl("get", "chaos", "kills").splitlines()
    assert " ".join(columns[0].split()) == "NAME POOL PHASE FAULT ROUNDS LOST GAP (MS) AGE"
    assert columns[1].split()[1:3] == ["default", "Passed"]
    cluster.tidemark("chaos", "report", "kills", "--out", str(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())
    assert [each["kind"] for each in report["faults"]] == ["kill"] * 3
    assert round(report["writeGapMs"]) == found["writeGapMs"]
    assert "PASSED" in (tmp_path / "report.html").read_text()


def test_a_deletion_during_a_pause_resumes_the_broker_before_the_object_goes(
    willing: KubeCluster,
) -> None:
    willing.apply(experiment("deleted", PAUSE))
    broker_id = until_paused(willing, "deleted")
    started = time.monotonic()
    willing.kubectl("delete", "chaos", "deleted", "--timeout=60s", timeout_s=70)
    assert time.monotonic() - started < 60
    assert not is_stopped(willing, broker_id)
    assert topics(willing) == []
    willing.until(lambda: not willing.items("jobs", "-l", f"{LABEL}-experiment=deleted"), "no Job")


def test_a_crash_of_the_run_during_a_pause_is_aborted_and_healed(willing: KubeCluster) -> None:
    willing.apply(experiment("crashed", PAUSE))
    broker_id = until_paused(willing, "crashed")
    (pod,) = willing.items("pods", "-l", f"{LABEL}-experiment=crashed")
    willing.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", CRASH)
    until_phase(willing, "crashed", "Aborted", timeout_s=60)
    found = status(willing, "crashed")
    assert found["verdict"] == "ABORTED"
    assert "exit code 137" in found["sentence"]
    assert willing.condition("chaos", "crashed", "Healed")["status"] == "True"
    assert not is_stopped(willing, broker_id)
    assert topics(willing) == []


def test_what_cannot_be_done_is_rejected_before_anything_is_struck(willing: KubeCluster) -> None:
    for path in sorted((ROOT / "examples/chaos").glob("*.yaml")):
        assert willing.rejection(yaml.safe_load(path.read_text())) == "", path.name
    kill = {"kind": "kill"}
    for wrong, words in (
        (experiment("wrong", {"kind": "pause"}), "add for"),
        (experiment("wrong", kill, duration="9s"), "expected either duration or rounds"),
        (experiment("wrong", kill, quiet="soon"), "spec.quiet"),
        (experiment("wrong", {"kind": "kil"}), "spec.faults[0].kind"),
        (experiment("wrong", {**kill, "target": {"partition": 7}}), "target.partition"),
    ):
        assert words in willing.rejection(wrong)
    willing.apply(experiment("disks", {"kind": "disk-full", "for": "5s"}))
    until_phase(willing, "disks", "Rejected", timeout_s=30)
    said = willing.condition("chaos", "disks", "Accepted")["message"]
    assert said == (
        "spec.faults[0].kind: disk-full is not possible in a cluster: volumes share the disk of"
        " their node; local mode offers it (tidemark chaos run)"
    )
    changed = copy.deepcopy(experiment("disks", kill))
    assert "spec cannot be changed; create another" in willing.rejection(changed)
