"""A pool with TLS on real pods: who trusts what, and that nothing is readable without it."""

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.kubernetes.kube_cluster import (
    ON_KUBERNETES,
    OPEN,
    OPERATOR_NAMESPACE,
    CommandFailed,
    KubeCluster,
    topic,
)

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.timeout(300),
]

POOL = {
    "apiVersion": "tidemark.dev/v1alpha1",
    "kind": "BrokerPool",
    "metadata": {"name": "default"},
    "spec": {
        "replicas": 3,
        "storage": {"size": "1Gi"},
        "security": {"tls": {"mode": "Required"}, "authentication": "none"},
    },
}
SERVER = "https://default-bootstrap:8080"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    cluster.apply(POOL)
    cluster.apply(topic("orders", partitions=3, replicationFactor=3))
    cluster.wait_ready("orders", timeout_s=180)
    yield cluster
    cluster.delete_namespace()


def in_pod(cluster: KubeCluster, *command: str) -> str:
    """The environment of a broker pod names the authorities to trust."""
    return cluster.kubectl("exec", "default-0", "--", *command)


def test_pods_write_and_read_by_tls(cluster: KubeCluster) -> None:
    in_pod(cluster, "tidemark", "produce", "orders", "hello", "--server", SERVER)
    read = in_pod(
        cluster,
        *("tidemark", "consume", "orders", "--from", "earliest", "--max", "1"),
        *("--server", SERVER),
    )
    assert "hello" in read
    cluster.until_in_sync("orders")


def test_nothing_is_trusted_or_readable_without_the_authorities(cluster: KubeCluster) -> None:
    for command in (
        "TIDEMARK_CA_FILE= tidemark topics list --server " + SERVER,
        "tidemark topics list --server " + SERVER.replace("https", "http"),
    ):
        with pytest.raises(CommandFailed):
            in_pod(cluster, "sh", "-c", command)


def test_authorities_are_where_only_the_operator_reads_them(cluster: KubeCluster) -> None:
    secrets = json.loads(cluster.kubectl("get", "secrets", "-o", "json"))["items"]
    assert secrets == []
    trust = cluster.must_get("configmap", "default-trust")["data"]
    assert trust["ca.crt"].count("BEGIN CERTIFICATE") == 1
    assert "PRIVATE" not in json.dumps(trust)
    name = f"{cluster.namespace}.default-ca"
    found = cluster.kubectl("get", "secret", name, "-n", OPERATOR_NAMESPACE, "-o", "json")
    assert json.loads(found)["type"] == "tidemark.dev/certificate-authority"


def test_killed_broker_gets_another_certificate(cluster: KubeCluster) -> None:
    previous = cluster.broker_epoch(1)
    cluster.kill_broker(1)
    cluster.until_back(1, previous, "orders")


def test_tls_cannot_be_disabled_in_one_step(cluster: KubeCluster) -> None:
    plain = POOL | {"spec": {"replicas": 3, "storage": {"size": "1Gi"}, "security": OPEN}}
    assert "set Optional first" in cluster.rejection(plain)
