"""Prometheus as a pod: it finds brokers and operator by the annotations of their pods."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.kube_cluster import OPERATOR_NAMESPACE, ROOT, KubeCluster

IMAGE = "tidemark/prometheus:test"
NAME = "prometheus"
PORT = 9090
_META = "__meta_kubernetes_pod_"


def configuration(namespaces: list[str], interval_seconds: int) -> dict[str, Any]:
    scrape, port, path = (
        f"{_META}annotation_prometheus_io_{n}" for n in ("scrape", "port", "path")
    )
    return {
        "global": {
            "scrape_interval": f"{interval_seconds}s",
            "scrape_timeout": f"{interval_seconds}s",
        },
        "scrape_configs": [
            {
                "job_name": "pods",
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": namespaces}}],
                "relabel_configs": [
                    {"source_labels": [scrape], "action": "keep", "regex": "true"},
                    {
                        "source_labels": [f"{_META}ip", port],
                        "regex": "(.+);(.+)",
                        "replacement": "$1:$2",
                        "target_label": "__address__",
                    },
                    {"source_labels": [path], "regex": "(.+)", "target_label": "__metrics_path__"},
                    {
                        "source_labels": ["__meta_kubernetes_namespace"],
                        "target_label": "namespace",
                    },
                    {"source_labels": [f"{_META}name"], "target_label": "pod"},
                ],
            }
        ],
    }


def deploy(cluster: KubeCluster, *, interval_seconds: int = 1) -> None:
    """Image, rights to see pods in both namespaces, pod; returns once it is ready."""
    for command in (("hack/prometheus/image",), ("hack/kind/cluster", "load", IMAGE)):
        ended = cluster.run(*command, timeout_s=600)
        assert ended.code == 0, ended.err
    cluster.apply(_object("v1", "ServiceAccount", NAME))
    for place in (cluster, KubeCluster.of_rig(OPERATOR_NAMESPACE)):
        _allow(place, cluster.namespace)
    namespaces = [cluster.namespace, OPERATOR_NAMESPACE]
    text = json.dumps(configuration(namespaces, interval_seconds))  # JSON is YAML
    cluster.apply(_object("v1", "ConfigMap", NAME, data={"prometheus.yml": text}))
    cluster.apply(_object("v1", "Pod", NAME, spec=_pod()))
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


def _pod() -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/prometheus"},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    return {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"fsGroup": 10001},
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "data", "emptyDir": {"sizeLimit": "512Mi"}},
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
