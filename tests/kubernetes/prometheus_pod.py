"""Prometheus as a pod: it scrapes the pods of brokers and operator that ask for it by annotation.

Debian builds Prometheus without its own discovery in Kubernetes. So a second container asks the API
server for the pods, as that would, and writes the targets where Prometheus looks for them.
"""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.kube_cluster import LOAD_IMAGE, OPERATOR_NAMESPACE, ROOT, KubeCluster

IMAGE = "tidemark/prometheus:test"
NAME = "prometheus"
PORT = 9090
DISCOVERY = r"""
import json, os, pathlib, ssl, sys, time, urllib.request
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
trust = ssl.create_default_context(cafile=account / "ca.crt")
targets = pathlib.Path("/targets/pods.json")

def pods(namespace):
    url = f"https://kubernetes.default.svc/api/v1/namespaces/{namespace}/pods"
    bearer = {"Authorization": "Bearer " + (account / "token").read_text()}
    request = urllib.request.Request(url, headers=bearer)
    with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
        return json.load(answer)["items"]

def group(pod):
    notes, address = pod["metadata"].get("annotations", {}), pod["status"].get("podIP")
    if notes.get("prometheus.io/scrape") != "true" or not address:
        return None
    labels = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
    labels["__metrics_path__"] = notes.get("prometheus.io/path", "/metrics")
    return {"targets": [f"{address}:{notes['prometheus.io/port']}"], "labels": labels}

while True:
    try:
        found = [group(pod) for namespace in sys.argv[1:] for pod in pods(namespace)]
        text = json.dumps([each for each in found if each])
        if not targets.exists() or targets.read_text() != text:
            targets.with_suffix(".new").write_text(text)
            os.replace(targets.with_suffix(".new"), targets)
    except OSError as error:
        print(error, flush=True)
    time.sleep(0.5)
"""


def configuration(interval_seconds: int) -> dict[str, Any]:
    every = f"{interval_seconds}s"
    found = {"files": ["/targets/*.json"], "refresh_interval": "1s"}
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [{"job_name": "pods", "file_sd_configs": [found]}],
    }


def deploy(cluster: KubeCluster, *, interval_seconds: int = 1) -> None:
    """Image, rights to see pods in both namespaces, pod; returns once it is ready."""
    for command in (("hack/prometheus/image",), ("hack/kind/cluster", "load", IMAGE)):
        ended = cluster.run(*command, timeout_s=600)
        assert ended.code == 0, ended.err
    cluster.apply(_object("v1", "ServiceAccount", NAME))
    for place in (cluster, KubeCluster.of_rig(OPERATOR_NAMESPACE)):
        _allow(place, cluster.namespace)
    text = json.dumps(configuration(interval_seconds))  # JSON is YAML
    cluster.apply(_object("v1", "ConfigMap", NAME, data={"prometheus.yml": text}))
    spec = _pod([cluster.namespace, OPERATOR_NAMESPACE])
    cluster.apply(_object("v1", "Pod", NAME, spec=spec))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=90s", timeout_s=100)


def remove_rights(cluster: KubeCluster) -> None:
    """Those outside of the test's namespace, which goes as a whole."""
    place = KubeCluster.of_rig(OPERATOR_NAMESPACE)
    name = f"{NAME}-{cluster.namespace}"
    place.kubectl("delete", "role,rolebinding", name, "--ignore-not-found")


def _allow(place: KubeCluster, namespace: str) -> None:
    name, group = f"{NAME}-{namespace}", "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    place.apply(_object(f"{group}/v1", "Role", name, rules=rules))
    place.apply(
        _object(
            f"{group}/v1",
            "RoleBinding",
            name,
            roleRef={"apiGroup": group, "kind": "Role", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        )
    )


def _object(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _pod(namespaces: list[str]) -> dict[str, Any]:
    prometheus = {
        "name": NAME,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/prometheus"},
            {"name": "data", "mountPath": "/data"},
            {"name": "targets", "mountPath": "/targets"},
        ],
    }
    discovery = {
        "name": "discovery",
        "image": LOAD_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", DISCOVERY, *namespaces],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "targets", "mountPath": "/targets"}],
    }
    return {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"fsGroup": 10001},
        "containers": [prometheus, discovery],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "data", "emptyDir": {"sizeLimit": "512Mi"}},
            {"name": "targets", "emptyDir": {"sizeLimit": "1Mi"}},
        ],
    }


@contextlib.contextmanager
def forwarded(cluster: KubeCluster) -> Iterator[str]:
    """Its URL on this machine."""
    command = ["kubectl", "-n", cluster.namespace, "port-forward", f"pod/{NAME}", f":{PORT}"]
    forwarding = subprocess.Popen(
        command, env=cluster.environment, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert forwarding.stdout is not None
        line = forwarding.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found is not None, f"kubectl port-forward said {line!r}"
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        forwarding.terminate()
        forwarding.wait(timeout=10)
