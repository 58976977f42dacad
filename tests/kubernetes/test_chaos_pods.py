"""A chaos experiment on real pods: the same file as in local mode, one fault of each kind."""

import json
from pathlib import Path

import pytest

from tests.kubernetes.kube_cluster import ON_KUBERNETES, KubeCluster

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(400)]

EXPERIMENT = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: pods}
spec:
  rounds: 4
  quiet: 500ms
  workload: {partitions: 3, config: {min.insync.replicas: "2"}, producers: 4, recordsPerSecond: 30}
  faults:
    - {kind: kill, target: {role: leader}}
    - {kind: pause, target: {role: follower}, for: 5s}
    - {kind: pod-delete, target: {role: leader}}
    - {kind: kill, target: {role: controller}}
"""


def test_leaders_followers_and_the_operator_are_struck_and_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(EXPERIMENT)
    cluster = KubeCluster.of_rig("default")
    command = ("chaos", "run", "-f", str(file), "--on", "kind", "--out", str(tmp_path / "out"))
    ended = cluster.run_tidemark(*command, timeout_s=380)
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["verdict"] == "PASSED"
    assert [each["kind"] for each in report["faults"]] == ["kill", "pause", "pod-delete", "kill"]
    assert not any(each["skipped"] for each in report["faults"])
