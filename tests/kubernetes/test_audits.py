"""A ReplicationAudit on a real cluster: its Job reads an export from a claim, Spark judges it, and
status, Event and report say what it found."""

import base64
import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.kube_cluster import LOAD_IMAGE, ON_KUBERNETES, KubeCluster
from tests.support.audit_exports import Export, brokers, partition

log = logging.getLogger(__name__)

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.long,  # the image with Spark and Java takes minutes to make and to load
    pytest.mark.timeout(2400),
]

AUDIT_IMAGE = "tidemark/audit:dev"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"audit-{uuid.uuid4().hex[:8]}")
    for command in (("hack/images/build", "--audit"), ("hack/kind/cluster", "load", AUDIT_IMAGE)):
        ended = cluster.run(*command, timeout_s=900)
        assert ended.code == 0, ended.err
    cluster.install_chart()
    cluster.make_namespace()
    yield cluster
    cluster.delete_namespace()


def claim_with(cluster: KubeCluster, export: Path) -> None:
    """A claim, and a pod that holds it, so that files can be put there and read again."""
    metadata: dict[str, Any] = {"name": "exports", "namespace": cluster.namespace}
    resources = {"requests": {"storage": "1Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    cluster.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim}
    )
    container = {
        "name": "files",
        "image": LOAD_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "1800"],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "exports", "mountPath": "/exports"}],
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "securityContext": {"fsGroup": 10001},
        "containers": [container],
        "volumes": [{"name": "exports", "persistentVolumeClaim": {"claimName": "exports"}}],
    }
    metadata = {"name": "files", "namespace": cluster.namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Ready", "pod/files", "--timeout=60s", timeout_s=70)
    text = base64.b64encode(export.read_bytes()).decode()
    write = "mkdir -p /exports/today && base64 -d > /exports/today/export.jsonl"
    cluster.kubectl("exec", "-i", "files", "--", "sh", "-c", write, stdin=text)


def test_an_audit_of_an_export_that_lost_records(cluster: KubeCluster, tmp_path: Path) -> None:
    export = Export()
    partition(export, without=frozenset({"replica_committed_truncated_records_total"}))
    brokers(export)
    export.add(
        "replica_committed_truncated_records_total",
        lambda at_ms: 12.0 if at_ms >= 60_000 else 0.0,
        topic="orders",
        topic_id="id-orders",
        partition="0",
        broker="2",
    )
    claim_with(cluster, export.write(tmp_path / "export.jsonl"))
    source = {"files": {"claimName": "exports", "path": "today"}}
    # A window ends with an export's last sample.
    spec = {"window": "2m", "source": source, "output": {"claimName": "exports"}}
    metadata = {"name": "once", "namespace": cluster.namespace}
    kind = {"apiVersion": "tidemark.dev/v1alpha1", "kind": "ReplicationAudit"}
    cluster.apply({**kind, "metadata": metadata, "spec": spec})

    def verdict() -> str:
        status = cluster.must_get("raudit", "once").get("status", {})
        found: str = status.get("verdict", "")
        return found

    seconds = cluster.until(lambda: verdict() != "", "the audit has a verdict", timeout_s=300)
    status = cluster.must_get("raudit", "once")["status"]
    log.info(f"verdict after {seconds:.1f} s: {status['verdict']}, {status['sentence']}")
    assert (status["verdict"], status["lostRecords"]) == ("LOSS", 12)
    assert cluster.condition("raudit", "once", "LossDetected")["status"] == "True"
    assert cluster.condition("raudit", "once", "Completed")["status"] == "True"
    events = cluster.items("events", "--field-selector=involvedObject.kind=ReplicationAudit")
    assert any(event["reason"] == "R6" for event in events)
    run = status["history"][0]["run"]
    report = f"/exports/audits/once/{run}/report.json"
    assert json.loads(cluster.kubectl("exec", "files", "--", "cat", report))["verdict"] == "LOSS"
